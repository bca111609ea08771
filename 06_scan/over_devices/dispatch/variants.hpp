#pragma once
/// @file
/// The variants of the operators over several devices: other ways to the same outputs.

#include <cstdint>

#include "06_scan/over_devices.hpp"

namespace tutorial::over_devices {

/// GPUs: `all_gather`, the first pass without outputs. Not for the delta rule.
template <Rule kRule>
void states_alone(const Arguments&);
/// GPUs: the same, half of the heads at a time: the maps of one half travel while the other half is computed.
template <Rule kRule>
void overlap(const Arguments&);
/// GPUs: `relay`, one head after the other: a device computes a head while the next device computes the one before it.
template <Rule kRule>
void head_by_head(const Arguments&);

/// Parts of the heads of a batch entry that `overlap` computes one after the other.
inline int overlapped_parts(const Arguments& a) {
  return a.H > 1 ? 2 : 1;
}

/// One of several parts of the heads, each of about as many: parts = a.H are single heads.
inline Arguments heads_of(Arguments a, int part, int parts) {
  const int first = int(std::int64_t(a.H) * part / parts);
  const auto move = [&](auto& view) {
    if (view.data) view.data += first * view.stride_h;
  };
  move(a.q), move(a.k), move(a.v), move(a.g), move(a.beta), move(a.initial_state), move(a.o), move(a.final_state);
  a.H = int(std::int64_t(a.H) * (part + 1) / parts) - first;
  return a;
}

}  // namespace tutorial::over_devices
