#pragma once
/// @file
/// What the kernels of gla pass on to each other in device memory, up to `intra_fused`. Plain pointers and sizes only.
///
/// A sub-chunk has c = 16 positions, a sequence NC = ceil(L / 16) of them. The keys' width is cut into NK = ceil(Dk /
/// 64) slices, the values' into NV = ceil(Dv / 64).

#include <cuda_bf16.h>

#include "04_fused_chunk/fused_gla.hpp"
#include "common/tile/sub_chunk.hpp"

namespace tutorial::fused_gla {

using tile::kSubChunk;

inline constexpr int kSlice = 64;  ///< columns of a slice

/// NK or NV, the slices of so many columns.
TUTORIAL_HOST_DEVICE inline int slices(int columns) {
  return (columns - 1) / kSlice + 1;
}
/// NC, the sub-chunks of so many positions.
TUTORIAL_HOST_DEVICE inline int sub_chunks(int L) {
  return (L - 1) / kSubChunk + 1;
}

/// Packed tensors.
struct Intermediates {
  View<float> sums;  ///< b [B, H, L, Dk]: sums of the logarithms of gates to base 2 from the sub-chunk's start on
  View<__nv_bfloat16> q_g;  ///< [B, H, L, Dk]: q with its decay from the sub-chunk's start, times scale
  View<__nv_bfloat16> k_g;  ///< [B, H, L, Dk]: k with its decay to the sub-chunk's end
  __nv_bfloat16* scores;    ///< [NK, B, H, NC, 16, 16], zero above the diagonal
  float* partials;          ///< [NK, B, H, L, Dv]: what each slice of the keys contributes to o from the state
};

/// Their memory, which the next call uses again. Throws CudaError if it cannot be allocated.
/// @param with_outputs false: the last two are null
Intermediates intermediates(const Bf16Arguments&, bool with_outputs);

// Their bytes.
std::int64_t prepared_bytes(const Bf16Arguments&);  ///< of sums, q_g and k_g
std::int64_t score_bytes(const Bf16Arguments&);
std::int64_t partial_bytes(const Bf16Arguments&);

}  // namespace tutorial::fused_gla
