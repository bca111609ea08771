#pragma once
/// @file
/// What the kernels on tensor cores require of a problem: widths in whole fragments, a state that fits into a block's
/// registers, rows that 16-byte loads can read, and a grid within the limits of a launch.

#include <string>

#include "common/tile/aligned_rows.hpp"
#include "common/tile/launch_plan.hpp"

namespace tutorial::tile {

/// Why the widths, the number of heads or the length are not supported by kernels with one small set of tiles; empty if
/// they are.
std::string unsupported_sizes(const Extents&);
/// The same for kernels with two sets of tiles. If Dk > 128, it queries the device's shared memory and throws CudaError
/// if there is no device.
std::string unsupported_extents(const Extents&);

/// Why rows of q, k, v or o are not supported; empty if they are.
/// @tparam Arguments of an operator on tensors q, k, v, o
template <class Arguments>
std::string unsupported_rows(const Arguments& a) {
  if (!has_aligned_rows(a.q) || !has_aligned_rows(a.k) || !has_aligned_rows(a.v) || !has_aligned_rows(a.o)) {
    return "rows are not aligned to 16 bytes";
  }
  return "";
}

/// Why kernels with two sets of tiles do not support the problem; empty if they do.
template <class Arguments>
std::string tensor_core_unsupported(const Arguments& a) {
  const std::string reason = unsupported_extents(extents_of(a));
  return reason.empty() ? unsupported_rows(a) : reason;
}

/// The same for kernels with one small set of tiles.
template <class Arguments>
std::string one_set_unsupported(const Arguments& a) {
  const std::string reason = unsupported_sizes(extents_of(a));
  return reason.empty() ? unsupported_rows(a) : reason;
}

}  // namespace tutorial::tile
