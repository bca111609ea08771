#pragma once
/// @file
/// From a problem's sizes to the kernel that was compiled for them.

#include <cuda_runtime.h>

#include "02_chunkwise/chunk_products.cuh"
#include "02_chunkwise/linear_attention.hpp"

namespace tutorial::linear_attention {

/// Calls f with the smallest ChunkShape that has Dk, up to 256, and `columns`, 64 or 128. (There is none of 256 and
/// 128: its state would take 256 registers of each thread. It is that of 64 there.)
template <class F>
void with_shape(int Dk, int columns, F f) {
  if (Dk <= 64) {
    columns <= 64 ? f(ChunkShape<64, 64>()) : f(ChunkShape<64, 128>());
  } else if (Dk <= 128) {
    columns <= 64 ? f(ChunkShape<128, 64>()) : f(ChunkShape<128, 128>());
  } else {
    f(ChunkShape<256, 64>());
  }
}

/// The grid: tiles of Dv of all segments, heads, batch entries.
template <class Shape>
dim3 blocks(const HalfArguments& a, int segments) {
  return dim3((unsigned(a.Dv - 1) / Shape::kDv + 1) * unsigned(segments), unsigned(a.H), unsigned(a.B));
}

}  // namespace tutorial::linear_attention
