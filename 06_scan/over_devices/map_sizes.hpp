#pragma once
/// @file
/// How large the maps of maps.cuh are.

#include <cstddef>
#include <cstdint>

#include "06_scan/over_devices.hpp"
#include "06_scan/over_devices/shares.hpp"

namespace tutorial::over_devices {

inline constexpr int kMaxKeyDim = 512;  ///< of states whose maps are matrices
/// Parts in which a device's positions are cut for the sum of its g, so that all multiprocessors read it.
inline constexpr int kGateParts = 256;

/// Floats of a map.
template <Rule kRule>
std::size_t map_size(const Arguments& a) {
  if (kRule == Rule::delta_rule) return heads(a) * a.Dk * (a.Dv + a.Dk);
  return state_size(a) + (kRule == Rule::simple_gla ? heads(a) : 0);
}

/// Bytes of the parts' sums.
template <Rule kRule>
std::int64_t gate_parts_memory(const Arguments& a) {
  return kRule == Rule::simple_gla ? std::int64_t(heads(a) * kGateParts * sizeof(double)) : 0;
}

}  // namespace tutorial::over_devices
