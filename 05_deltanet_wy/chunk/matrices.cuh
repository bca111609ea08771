#pragma once
/// @file
/// T and P of a chunk by a warpgroup, from tiles in shared memory to tiles in shared memory: what prepare_tiles()
/// computes, beside a walk. The products with K^T are those of warpgroups; T is that of warpgroup_inverse.cuh.
///
/// The sums of K K^T of warp w are row w of its blocks, as BlockRow has them. A row of W = N U takes more work the
/// further down it is, and so does a row of T. So warp w, which has row w of N and computes row w of W, computes row
/// 3 - w of T.

#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/chunk/split_triangle.cuh"
#include "05_deltanet_wy/chunk/warpgroup_inverse.cuh"
#include "05_deltanet_wy/chunk/warpgroup_products.cuh"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/pack.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/stmatrix.cuh"
#include "common/device/warp.cuh"
#include "common/device/wgmma.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::delta_rule {

/// What a chunk's walk needs beside q, k and v: -T in two bf16, and P.
struct ChunkMatrices {
  static constexpr int kBytes = int(SplitTriangle::Panel::kPanelBytes) + int(SquarePanel::kPanelBytes);
  static constexpr int kStride = kBytes;  ///< from one to the next

  SplitTriangle T;
  SquarePanel P;

  /// @param memory kBytes in shared memory, aligned to 1024
  __device__ __forceinline__ explicit ChunkMatrices(unsigned char* memory)
      : T{{reinterpret_cast<__nv_bfloat16*>(memory)}}, P{T.panel.data + SplitTriangle::Panel::kPanelElements} {}
};

inline constexpr int kBlockElements = kBlock * tile::kChunk;  ///< from one row of blocks of T or P to the next

/// Where this lane's row of block (0, 0) of T or P is.
__device__ __forceinline__ int unit_of_block() {
  const int lane = hide_from_compiler(int(lane_index()));
  return SquarePanel::unit(lane % 16, lane / 16 * 8);
}

/// Stores a row of blocks of T. Blocks above the diagonal are not written.
/// @param unit unit_of_block()
__device__ __forceinline__ void store_row(const SplitTriangle& T, const SplitRow& U, int row, int unit) {
  __nv_bfloat16* T_row = T.panel.data + row * kBlockElements;
#pragma unroll
  for (int c = 0; c < kBlocks; ++c) {
    if (c > row) continue;
    stmatrix(T_row + SplitTriangle::advance(unit, c * kBlock, 0), U[c].high);
    stmatrix(T_row + SplitTriangle::advance(unit, c * kBlock, 1), U[c].low);
  }
}

/// Makes a row of T's blocks zero above the diagonal, where T has a place for them.
__device__ __forceinline__ void clear_upper_blocks(const SplitTriangle& T, int row) {
  const std::uint32_t zeros[4] = {};
  if (row % 2 == 1) return;
  for (int part = 0; part < 2; ++part) {
    stmatrix(T.panel.data + row * kBlockElements + SplitTriangle::advance(unit_of_block(), (row + 1) * kBlock, part),
             zeros);
  }
}

/// Makes T and P zero above the diagonal, each warp its row of blocks.
/// @param out has members T and P
template <class Matrices>
__device__ __forceinline__ void clear_upper_blocks(const Matrices& out, int warp) {
  const std::uint32_t zeros[4] = {};
  const int unit = unit_of_block();
#pragma unroll
  for (int c = 1; c < kBlocks; ++c) {
    if (c <= warp) continue;
    stmatrix(out.P.data + warp * kBlockElements + SquarePanel::advance(unit, 0, c * kBlock), zeros);
  }
  clear_upper_blocks(out.T, warp);
}

/// A block, rounded, as a fragment.
__device__ __forceinline__ void round_block(std::uint32_t (&rounded)[4], const BlockSums& block) {
#pragma unroll
  for (int i = 0; i < 4; ++i) rounded[i] = pack(block[i / 2][i % 2 * 2], block[i / 2][i % 2 * 2 + 1]);
}

/// A row of blocks of P as fragments; only those up to the diagonal are used.
using RoundedRow = std::uint32_t[kBlocks][4];

/// A warpgroup that computes the matrices of one chunk after the other.
class MatrixGroup {
 public:
  static constexpr int kBytes = SplitBlocks::kBytes;  ///< of shared memory for itself

  /// @param group 0 or 1. It uses the named barrier 1 + group
  /// @param memory kBytes, of this warpgroup
  __device__ __forceinline__ MatrixGroup(int group, unsigned char* memory)
      : barrier_(1 + unsigned(group)),
        warp_(__shfl_sync(kAllLanes, tile::warp_in_group(), 0)),  // tells the compiler that it is the same in all lanes
        row_(kBlocks - 1 - warp_),
        blocks_{reinterpret_cast<__nv_bfloat16*>(memory)} {}

  /// The position in a chunk whose beta this lane brings, of lanes 0 to 15.
  __device__ __forceinline__ int position() const { return warp_ * kBlock + int(lane_index()); }

  /// Computes a row of U = -T from the sums of K K^T. All warps have passed a barrier since they have used the memory
  /// of the chunk before.
  /// @param beta of position()
  __device__ __forceinline__ void invert(SplitRow& U, const tile::WarpgroupScores& K_K, float beta) const {
    const auto& N = reinterpret_cast<const BlockRow&>(K_K);
    const int lane = int(lane_index());
    const float2 beta_of_rows{__shfl_sync(kAllLanes, beta, lane / 4), __shfl_sync(kAllLanes, beta, lane / 4 + 8)};
    BlockSums diagonal = {};
#pragma unroll
    for (int c = 0; c < kBlocks; ++c) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (c == warp_) diagonal[i / 4][i % 4] = N[c][i / 4][i % 4];
      }
    }
    multiply_rows(diagonal, beta_of_rows);
    put_inverse(blocks_, warp_, diagonal, -__shfl_sync(kAllLanes, beta, lane % kBlock));
    wait_at_named_barrier(barrier_, tile::kWarpgroup);
    put_row(blocks_, K_K);
    wait_at_named_barrier(barrier_, tile::kWarpgroup);
    multiply(U, blocks_);
  }

  /// Row `warp_` of the blocks of P from the sums of Q K^T, which are overwritten.
  __device__ __forceinline__ void round(RoundedRow& P, tile::WarpgroupScores& Q_K) const {
#pragma unroll
    for (int c = 0; c < kBlocks; ++c) {
      if (c > warp_) continue;
      BlockSums& block = block_of(Q_K, c);
      if (c == warp_) {
        for_each_of_block(block, [](int row, int column, float& x) { x = column <= row ? x : 0.0f; });
      }
      round_block(P[c], block);
    }
  }

  /// Stores T and P. Blocks above the diagonal are not written.
  __device__ __forceinline__ void store(const ChunkMatrices& out, const SplitRow& U, const RoundedRow& P) const {
    const int unit = unit_of_block();
    __nv_bfloat16* P_row = out.P.data + warp_ * kBlockElements;
    store_row(out.T, U, row_, unit);
#pragma unroll
    for (int c = 0; c < kBlocks; ++c) {
      if (c <= warp_) stmatrix(P_row + SquarePanel::advance(unit, 0, c * kBlock), P[c]);
    }
  }

  /// Stores T alone, all of it.
  __device__ __forceinline__ void store(const SplitTriangle& T, const SplitRow& U) const {
    store_row(T, U, row_, unit_of_block());
    clear_upper_blocks(T, row_);
  }

  /// Makes T and P zero above the diagonal, where store() does not write.
  __device__ __forceinline__ void clear(const ChunkMatrices& out) const {
    clear_upper_blocks(out, warp_);
  }

 protected:
  /// The part after the inverses: row warp_ of W. Afterwards nothing needs K_K.
  __device__ __forceinline__ void put_row(const SplitBlocks& blocks, const tile::WarpgroupScores& K_K) const {
    const auto& N = reinterpret_cast<const BlockRow&>(K_K);
    switch (warp_) {  // the number of blocks is a constant in each case, so that their products overlap
      case 1:
        put_products<1>(blocks, N);
        break;
      case 2:
        put_products<2>(blocks, N);
        break;
      case 3:
        put_products<3>(blocks, N);
        break;
    }
  }

  /// The last part: the warp's row of U.
  __device__ __forceinline__ void multiply(SplitRow& U, const SplitBlocks& blocks) const {
    switch (row_) {
      case 0:
        multiply_row<0>(U, blocks);
        break;
      case 1:
        multiply_row<1>(U, blocks);
        break;
      case 2:
        multiply_row<2>(U, blocks);
        break;
      case 3:
        multiply_row<3>(U, blocks);
        break;
    }
  }

  /// Block c of the row of blocks in a warpgroup's accumulators.
  static __device__ __forceinline__ BlockSums& block_of(tile::WarpgroupScores& sums, int c) {
    return reinterpret_cast<BlockRow&>(sums)[c];
  }

  /// A block of -A.
  static __device__ __forceinline__ void multiply_rows(BlockSums& block, float2 betas) {
#pragma unroll
    for (auto& half : block) {
      half[0] *= -betas.x;
      half[1] *= -betas.x;
      half[2] *= -betas.y;
      half[3] *= -betas.y;
    }
  }

  unsigned barrier_;
  int warp_, row_;
  SplitBlocks blocks_;
};

}  // namespace tutorial::delta_rule
