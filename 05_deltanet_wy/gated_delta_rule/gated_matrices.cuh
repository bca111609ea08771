#pragma once
/// @file
/// -T, P and the decays of a chunk by a warpgroup, from tiles in shared memory to tiles in shared memory:
/// chunk/matrices.cuh with gates, and with less code. prepare_gated.hpp has the formulas.
///
/// The sums of K K^T and Q K^T of warp w are row w of their blocks. Each of these blocks is multiplied by the decays of
/// its pairs of positions before anything is rounded, exp(b_t - b_i). To the left of the diagonal, with a the last
/// position before the rows of warp w,
///
///     exp(b_t - b_i) = exp(b_t - b_a) exp(b_a - b_i)       i <= a < t, both factors at most 1
///
/// so that a lane computes one exponential for each of its two rows, and the warp two per lane for all of its columns.
/// Only the diagonal's block takes one for each pair.
///
/// Instructions have to come to the multiprocessor, too. Three kinds of warps run at once in `cluster`, and a warp
/// waits for instructions where the loops of all three take more space than the cache that is next to it. So each
/// product of blocks stands here once, for all warps: a warp skips what is above the diagonal, but no code is written
/// once per warp.

#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/chunk/cluster_memory.cuh"
#include "05_deltanet_wy/chunk/matrices.cuh"
#include "05_deltanet_wy/chunk/split_triangle.cuh"
#include "05_deltanet_wy/chunk/warpgroup_inverse.cuh"
#include "05_deltanet_wy/chunk/warpgroup_products.cuh"
#include "05_deltanet_wy/gated_delta_rule.hpp"
#include "05_deltanet_wy/gated_delta_rule/gates.cuh"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/memory.cuh"
#include "common/device/pack.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/stmatrix.cuh"
#include "common/device/warp.cuh"
#include "common/device/wgmma.cuh"
#include "common/tile/base2.cuh"
#include "common/tile/warpgroup_chunk.cuh"
#include "common/view.hpp"

namespace tutorial::gated_delta_rule {

using delta_rule::BlockRow, delta_rule::BlockSums, delta_rule::kBlock, delta_rule::kBlocks, delta_rule::kGroups;

/// What a chunk's walk needs beside q, k and v, in shared memory: -T in two bf16, P, and two rows of decays.
struct GatedMatrices : delta_rule::ChunkMatrices {
  static constexpr int kBytes = ChunkMatrices::kBytes + 2 * tile::kChunk * int(sizeof(float));
  static constexpr int kStride = (kBytes + 1023) / 1024 * 1024;  ///< from one to the next

  float* from_start;  ///< exp(b_t); the last is that of the whole chunk
  float* to_end;      ///< exp(b_e - b_t)

  /// @param memory kBytes, aligned to 1024
  __device__ __forceinline__ explicit GatedMatrices(unsigned char* memory)
      : ChunkMatrices(memory),
        from_start(reinterpret_cast<float*>(memory + ChunkMatrices::kBytes)),
        to_end(from_start + tile::kChunk) {}
};

/// A row of decays as the chain uses it: of the transposed columns of a chunk, the decays of those that a thread has.
struct ColumnDecays {
  float2 decays[tile::kChunk / 8];

  /// @param of_columns [64] in shared memory
  __device__ __forceinline__ explicit ColumnDecays(const float* of_columns) {
#pragma unroll
    for (int i = 0; i < tile::kChunk / 8; ++i) {
      decays[i] = *reinterpret_cast<const float2*>(of_columns + wgmma_column(4 * i));
    }
  }
  /// sums *= decays.
  __device__ __forceinline__ void multiply(delta_rule::WarpgroupColumns& sums) const {
#pragma unroll
    for (int i = 0; i < tile::kChunk / 2; ++i) sums[i] *= i % 2 ? decays[i / 4].y : decays[i / 4].x;
  }
};

/// A warpgroup of a cluster that computes the matrices of every fourth chunk. It loads beta and the gates one such chunk
/// ahead.
class GatedMatrixGroup : public delta_rule::MatrixGroup {
 public:
  static constexpr int kBytes = MatrixGroup::kBytes + kBlocks * tile::kChunk * int(sizeof(float));

  /// What it has in registers of a chunk that it computes.
  struct Rows {
    delta_rule::SplitRow U;
    std::uint32_t P[kBlocks - 1][4];  ///< to the left of the diagonal's block
    std::uint32_t P_diagonal[4];      ///< that block
    float2 decays;                    ///< of the lane's two positions, exp(b) in warp 0 and exp(b_e - b) in warp 1
  };

  /// @param group of MatrixGroup
  /// @param memory kBytes, of this warpgroup
  __device__ __forceinline__ GatedMatrixGroup(int group, unsigned char* memory)
      : MatrixGroup(group, memory),
        columns_(reinterpret_cast<float*>(memory + MatrixGroup::kBytes) + warp_ * tile::kChunk) {}

  /// Before its first chunk. @param n that chunk
  __device__ __forceinline__ void start(const Bf16Arguments& a, int n) {
    beta_at_ = a.beta.row(int(blockIdx.z), int(blockIdx.y), n * tile::kChunk + position());
    g_at_ = a.g.row(int(blockIdx.z), int(blockIdx.y), n * tile::kChunk + Gates::position());
    beta_step_ = kGroups * tile::kChunk * a.beta.stride_l, g_step_ = kGroups * tile::kChunk * a.g.stride_l;
    load(a, n);
  }

  /// While the products of a chunk run: what this warp needs of the sums of gates lies in shared memory then.
  __device__ __forceinline__ void begin(Rows& rows) {
    beta_ = next_beta_;
    const Gates b = next_gates_.sums();
    const int lane = int(lane_index());
    anchor_ = __shfl_sync(kAllLanes, b.second, (8 * warp_ + 31) % 32);
    const float end = __shfl_sync(kAllLanes, b.second, 31);
    const bool is_left = lane < 8 * warp_;
    reinterpret_cast<float2*>(columns_)[lane] = make_float2(is_left ? tile::ex2(anchor_ - b.first) : b.first,
                                                            is_left ? tile::ex2(anchor_ - b.second) : b.second);
    __syncwarp();
    rows.decays = warp_ == 0 ? make_float2(tile::ex2(b.first), tile::ex2(b.second))
                             : make_float2(tile::ex2(end - b.first), tile::ex2(end - b.second));
  }

  /// From the products.
  /// @param next the warpgroup's next chunk
  __device__ __forceinline__ void compute(Rows& rows, tile::WarpgroupScores& K_K, tile::WarpgroupScores& Q_K,
                                          const Bf16Arguments& a, int next) {
    auto &keys = reinterpret_cast<BlockRow&>(K_K), &scores = reinterpret_cast<BlockRow&>(Q_K);
    BlockSums A;
    decay(rows, A, keys, scores);
    load(a, next);
    delta_rule::invert_compactly(rows.U, blocks_, barrier_, warp_, A, keys, beta_);
  }

  /// Stores T, P and the decays. Blocks above the diagonal are not written.
  __device__ __forceinline__ void store(const GatedMatrices& out, const Rows& rows) const {
    const int unit = delta_rule::unit_of_block();
    __nv_bfloat16* P_row = out.P.data + warp_ * delta_rule::kBlockElements;
    __nv_bfloat16* T_row = out.T.panel.data + row_ * delta_rule::kBlockElements;
#pragma unroll
    for (int c = 0; c < kBlocks; ++c) {  // of T and P in turn, which takes fewer registers
      if (c <= row_) stmatrix(T_row + out.T.advance(unit, c * kBlock, 0), rows.U[c].high);
      if (c <= row_) stmatrix(T_row + out.T.advance(unit, c * kBlock, 1), rows.U[c].low);
      if (c < warp_ && c < kBlocks - 1) stmatrix(P_row + out.P.advance(unit, 0, c * kBlock), rows.P[c]);
    }
    stmatrix(P_row + out.P.advance(unit, 0, warp_ * kBlock), rows.P_diagonal);
    if (warp_ < 2) {
      store_for_copies(reinterpret_cast<float2*>(warp_ == 0 ? out.from_start : out.to_end) + lane_index(), rows.decays);
    }
  }

 private:
  /// Loads beta of position() and the gates of a chunk, and goes on by a step: fewer instructions, and registers, than an
  /// address from the chunk's position.
  __device__ __forceinline__ void load(const Bf16Arguments& a, int n) {
    const int left = a.L - n * tile::kChunk;
    next_beta_ = lane_index() < kBlock && position() < left ? load_global(beta_at_) : 0.0f;
    next_gates_.load(g_at_, a.g.stride_l, left);
    beta_at_ += beta_step_, g_at_ += g_step_;
  }

  /// Multiplies this warp's row of K K^T and of Q K^T by the decays.
  /// @param rows gets P
  /// @param A the diagonal's block of -A
  __device__ __forceinline__ void decay(Rows& rows, BlockSums& A, BlockRow& K_K, BlockRow& Q_K) const {
    const int lane = hide_from_compiler(int(lane_index()));
    const float* own = columns_ + warp_ * kBlock;
    const float2 b{own[lane / 4], own[lane / 4 + 8]};
    const float2 from_anchor{tile::ex2(b.x - anchor_), tile::ex2(b.y - anchor_)};
    const float2 beta_of_rows{__shfl_sync(kAllLanes, beta_, lane / 4), __shfl_sync(kAllLanes, beta_, lane / 4 + 8)};
    const float* columns = columns_ + lane % 4 * 2;
    BlockSums diagonal;
#pragma unroll
    for (int c = 0; c < kBlocks; ++c) {
#pragma unroll
      for (int i = 0; i < 4 && c < kBlocks - 1; ++i) rows.P[c][i] = 0;  // unless the warp has this block
      if (c < warp_ && c < kBlocks - 1) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float2 to_anchor = *reinterpret_cast<const float2*>(columns + c * kBlock + half * 8);
          const float decays[4] = {from_anchor.x * to_anchor.x, from_anchor.x * to_anchor.y,
                                   from_anchor.y * to_anchor.x, from_anchor.y * to_anchor.y};
#pragma unroll
          for (int i = 0; i < 4; ++i) K_K[c][half][i] *= decays[i], Q_K[c][half][i] *= decays[i];
        }
        delta_rule::round_block(rows.P[c], Q_K[c]);
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (c == 0 || c == warp_) A[i / 4][i % 4] = K_K[c][i / 4][i % 4], diagonal[i / 4][i % 4] = Q_K[c][i / 4][i % 4];
      }
    }
    columns += warp_ * kBlock;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float2 b_of_columns = *reinterpret_cast<const float2*>(columns + half * 8);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const bool is_lower = i / 2;
        const float decay = tile::ex2((is_lower ? b.y : b.x) - (i % 2 ? b_of_columns.y : b_of_columns.x));
        A[half][i] *= decay * (is_lower ? -beta_of_rows.y : -beta_of_rows.x);
        const int row = lane / 4 + i / 2 * 8, column = half * 8 + lane % 4 * 2 + i % 2;
        diagonal[half][i] = column <= row ? diagonal[half][i] * decay : 0.0f;
      }
    }
    delta_rule::round_block(rows.P_diagonal, diagonal);
  }

  const float *beta_at_, *g_at_;
  std::int64_t beta_step_, g_step_;  ///< from one chunk of the warpgroup to the next
  float beta_, next_beta_;
  Gates next_gates_;
  float* columns_;  ///< of this warp: exp(b_a - b) of positions to the left of its rows, b of its rows
  float anchor_;    ///< b_a
};

/// A block's shared memory: that of delta_rule's stages, with decays in the slots.
/// @tparam Sharing which blocks compute
template <class Shape, class Sharing = delta_rule::BothBlocks>
using ClusterMemory = delta_rule::ClusterMemory<Shape, Sharing, GatedMatrices, GatedMatrixGroup>;

}  // namespace tutorial::gated_delta_rule
