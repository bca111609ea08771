#pragma once
/// @file
/// What bulk copies require of an operator's tensors.

#include <string>

#include "common/device/device.hpp"
#include "common/device/tensor_map.hpp"
#include "common/tile/tensor_sizes.hpp"

namespace tutorial::tile {

/// Why bulk copies cannot load the tiles of an operator's q, k and v or store those of its o; empty if they can.
template <class Arguments>
std::string bulk_copies_unsupported(const Arguments& a) {
  constexpr int kRows = 64;  // of a chunk
  if (const std::string reason = bulk_copies_missing(); !reason.empty()) return reason;
  for (const std::string& reason :
       {why_not_mapped(a.q, tensor_sizes(a, a.Dk), kRows), why_not_mapped(a.k, tensor_sizes(a, a.Dk), kRows),
        why_not_mapped(a.v, tensor_sizes(a, a.Dv), kRows),
        why_not_mapped(read_only(a.o), tensor_sizes(a, a.Dv), kRows)}) {
    if (!reason.empty()) return reason;
  }
  return "";
}

}  // namespace tutorial::tile
