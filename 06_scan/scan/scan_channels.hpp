#pragma once
/// @file
/// `hillis_steele` and `blelloch` scan one channel at a time, as a vector of maps. CPU only.

#include <cstddef>
#include <vector>

#include "06_scan/affine.hpp"
#include "06_scan/scan.hpp"
#include "common/parallel.hpp"

namespace tutorial::scan {

/// One map per step.
using Maps = std::vector<Affine<double>>;

/// The steps of channel d as maps.
inline Maps maps_of(const Arguments& a, int b, int h, int d) {
  Maps maps(std::size_t(a.L));
  for (int t = 0; t < a.L; ++t) {
    maps[std::size_t(t)] = {double(a.log_decay.row(b, h, t)[a.Dg == 1 ? 0 : d]), double(a.x.row(b, h, t)[d])};
  }
  return maps;
}

/// Applies the maps, each composed with all before it, to y_0. Writes y of channel d, and its final state and sum of
/// gates if they are wanted.
/// @param prefixes of L steps
inline void write_channel(const Arguments& a, int b, int h, int d, const Maps& prefixes) {
  const double y_0 = a.initial_state.data ? double(a.initial_state.row(b, h, 0)[d]) : 0.0;
  for (int t = 0; t < a.L; ++t) a.y.row(b, h, t)[d] = float(apply(prefixes[std::size_t(t)], y_0));
  if (a.final_state.data) a.final_state.row(b, h, 0)[d] = float(apply(prefixes.back(), y_0));
  if (a.final_log_decay.data && d < a.Dg) a.final_log_decay.row(b, h, 0)[d] = float(prefixes.back().log_decay);
}

/// Scans every channel with `inclusive`, which turns maps into prefixes. OpenMP gives each thread one channel at a
/// time.
/// @param inclusive Maps prefixes = inclusive(Maps steps), as many of them; throws nothing
template <class Inclusive>
void scan_channels(const Arguments& a, Inclusive inclusive) {
#pragma omp parallel for collapse(3) schedule(dynamic)
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) {
      for (int d = 0; d < a.D; ++d) write_channel(a, b, h, d, inclusive(maps_of(a, b, h, d)));
    }
  }
}

}  // namespace tutorial::scan
