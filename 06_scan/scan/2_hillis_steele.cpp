/// @file
/// `hillis_steele`: every step looks back 1, 2, 4, ... steps.
///
/// Idea: a step is the map y -> exp(g_t) y + x_t, and so is a run of steps (affine.hpp). Composition is associative, so
/// the map of steps 1 to t may be composed in any grouping. In round r each step composes its own map with the map 2^r
/// places before it, if there is one. Its map then stands for the last 2^(r+1) steps.
/// Grows out of: 1_sequential.cpp
/// Improves on: `sequential` has L dependent steps. Here there are ceil(log2(L)) dependent rounds, and the compositions
/// within a round do not depend on each other.
/// Unchanged: the values. exp is now taken in every round.
/// Equation:
///
///   m_t <- m_t after m_{t - 2^r}                    all t > 2^r at once, from the maps of the round before
///   y_t  = m_t(y_0)
///
///   t:        1     2     3     4     5     6     7     8
///   r = 0:    1    1-2   2-3   3-4   4-5   5-6   6-7   7-8       the steps that a map stands for
///   r = 1:    1    1-2   1-3   1-4   2-5   3-6   4-7   5-8
///   r = 2:    1    1-2   1-3   1-4   1-5   1-6   1-7   1-8
///
/// Shapes: as `sequential`; the maps of a channel are L pairs of double, in two copies. A round reads one copy and
/// writes the other.
/// Thread mapping: OpenMP gives each thread one channel at a time. Within a channel there is one thread.
/// Resources: 32 L bytes per thread.
/// Work: L ceil(log2(L)) compositions per channel, each of 3 operations and an exponential. `sequential` has L.
/// Bytes: x, g and y once, and the maps twice per round, from a cache while they fit.
/// Bound by: exponentials.
/// Weakness: log2(L) times the work. With one processor per step this is the fastest algorithm. But there are many more
/// steps than processors, so the amount of work matters.
/// Sources: Hillis and Steele, "Data parallel algorithms", CACM 29, 1986.

#include <utility>

#include "06_scan/scan.hpp"
#include "06_scan/scan/scan_channels.hpp"

namespace tutorial::scan {
namespace {

Maps inclusive_scan(Maps maps) {
  Maps next(maps.size());
  for (std::size_t distance = 1; distance < maps.size(); distance *= 2) {
    for (std::size_t t = 0; t < maps.size(); ++t) {
      next[t] = t < distance ? maps[t] : compose(maps[t - distance], maps[t]);
    }
    std::swap(maps, next);
  }
  return maps;
}

}  // namespace

void hillis_steele(const Arguments& a) {
  scan_channels(a, inclusive_scan);
}

}  // namespace tutorial::scan
