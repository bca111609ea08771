#pragma once
/// @file
/// A chunk's matrices as fragments of mma (common/device/mma.cuh draws them), and how warps pass them on to each other.
///
/// A warp has 16 columns of V, v_new, O and S, and holds all of these transposed: 16 rows, the m of one mma.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/chunk/blocks.hpp"
#include "05_deltanet_wy/delta_rule.hpp"
#include "common/device/cp_async.cuh"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/mma.cuh"
#include "common/device/pack.cuh"
#include "common/tile/chunk_shape.cuh"

namespace tutorial::delta_rule {

/// Units of 16 bytes in one triangular matrix of a chunk: P, or one of the two bf16 of T (prepare.hpp).
inline constexpr int kBlockUnits = kLowerBlocks * 32;

/// S^T of a warp, [16, kDk], as accumulators: 8 columns each.
template <int kDk>
using WarpState = float[kDk / 8][4];
/// A matrix [16, 64] of a warp, likewise.
using WarpColumns = float[2 * kBlocks][4];
/// Such a matrix rounded to bf16: four A fragments, 16 columns each.
using WarpFragments = uint4[kBlocks];

/// Two accumulators side by side as an A fragment.
__device__ __forceinline__ uint4 rounded(const float (&left)[4], const float (&right)[4]) {
  return make_uint4(pack(left[0], left[1]), pack(left[2], left[3]), pack(right[0], right[1]), pack(right[2], right[3]));
}

/// An A fragment from the B fragments of the transposed block, and the other way round.
__device__ __forceinline__ uint4 transposed(const uint4& block) {
  return make_uint4(block.x, block.z, block.y, block.w);
}

/// The accumulators of columns 16 i to 16 i + 15 += A B. @param b B's fragments for the left and the right 8 columns
template <int kCount>
__device__ __forceinline__ void multiply(float (&sums)[kCount][4], int i, const uint4& a, const std::uint32_t (&b)[4]) {
  mma_m16n8k16(sums[2 * i], {a.x, a.y, a.z, a.w}, {b[0], b[1]});
  mma_m16n8k16(sums[2 * i + 1], {a.x, a.y, a.z, a.w}, {b[2], b[3]});
}
/// The same with the four registers of B as a load of 16 bytes returns them.
template <int kCount>
__device__ __forceinline__ void multiply(float (&sums)[kCount][4], int i, const uint4& a, const uint4& b) {
  multiply(sums, i, a, {b.x, b.y, b.z, b.w});
}

/// The lane's part of the fragments that 16 columns of a chunk have in device memory; 32 units from one to the next.
/// @param all [B, H, N, Dv / 16, count, 32] @param column the first of the 16
template <class Arguments>
__device__ __forceinline__ uint4* fragments_of(uint4* all, const Arguments& a, std::int64_t chunk, int count,
                                               int column) {
  return all + (chunk * (a.Dv / 16) + column / 16) * count * 32 + tile::fresh_lane();
}

/// 128 threads start the copies of units of 16 bytes, such as those of a chunk's T or P. The caller commits and waits.
/// @param thread the number of this one among them
template <int kUnits>
__device__ __forceinline__ void load_units_async(int thread, uint4* to, const uint4* from) {
  constexpr int kThreads = tile::kThreads;
  static_assert(kUnits % (kThreads / 2) == 0);
  thread = hide_from_compiler(thread);
#pragma unroll
  for (int i = 0; i < kUnits; i += kThreads) {
    if (i + kThreads <= kUnits || thread < kThreads / 2) cp_async<16>(to + i + thread, from + i + thread);
  }
}

}  // namespace tutorial::delta_rule
