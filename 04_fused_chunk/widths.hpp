#pragma once
/// @file
/// What the stages 2 to 4 of gla and stage 3 of simple_gla ask of a problem. (The other tensor-core stages ask what
/// their kernels' patterns in the chapters 02 and 03 ask.)

#include <cstdint>
#include <string>

#include "common/view.hpp"

namespace tutorial {

/// Whether each row of the view begins at a multiple of 16 bytes.
template <class T>
bool has_aligned_rows(const View<T>& view) {
  constexpr int kElements = 16 / int(sizeof(T));
  return reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0 && view.stride_b % kElements == 0 &&
         view.stride_h % kElements == 0 && view.stride_l % kElements == 0;
}

/// Why these stages do not take such widths or rows; empty where they do.
template <class Arguments>
std::string tensor_core_limits(const Arguments& a) {
  if (a.Dk % 16 != 0 || a.Dv % 16 != 0) return "Dk or Dv is no multiple of 16, the width of a fragment";
  if (a.Dk > 256) return "Dk > 256: the state would not fit into a block's registers";
  if (a.Dv > 512) return "Dv > 512: not tested";
  if (!has_aligned_rows(a.q) || !has_aligned_rows(a.k) || !has_aligned_rows(a.v) || !has_aligned_rows(a.o)) {
    return "rows are not aligned to 16 bytes";
  }
  return "";
}

}  // namespace tutorial
