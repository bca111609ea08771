#pragma once
/// @file
/// The two walks of `--backward` by warpgroups, with gates: delta_rule_backward/warpgroup_walks.cuh, and where its
/// decays go. Everything is transposed, so the decay of a position multiplies a column.
///
///     from the beginning   -Res^T = (S^T K^T) D_k - V^T          v_new^T = (-Res^T) (-T)^T
///                          S^T = exp(b_e) S^T + (v_new^T D_e) K
///     from the end         X^T = (dS^T K^T) D_e + dO^T P         -dV^T = X^T (-T)
///                          dS^T = exp(b_e) dS^T + (dO^T D_q) Q + (-dV^T D_k) K
///
/// D_k, D_q and D_e are the rows of a chunk's decays (gated_delta_rule/prepare_gated.hpp). Three of the six factors wait for
/// nothing: the two exp(b_e) and D_q, which fit under the product with K. D_k dS^T K^T and the like cannot begin with
/// -V^T or dO^T P as their sums, because these are not decayed: so they are added afterwards. Where a product goes into
/// a state decayed, but leaves the walk as it is, the decayed numbers are rounded once more, from fp32.
///
/// The block, its warps and its barriers are those without gates, but for the loading thread: its whole warp loads
/// decays, one chunk ahead of the bulk copies.

#include <cuda_runtime.h>

#include "05_deltanet_wy/delta_rule_backward/warpgroup_walks.cuh"
#include "05_deltanet_wy/gated_delta_rule/prepare_gated.hpp"
#include "05_deltanet_wy/gated_delta_rule_backward.hpp"

namespace tutorial::gated_delta_rule {
namespace {

using namespace delta_rule;  // walks without gates
using namespace tile;

template <class Shape>
constexpr std::size_t kGatedWalkBytes = kWalkBytes<Shape> + kPipelineDepth* kDecays * sizeof(float);

/// A warp brings the decays of a head's chunks to shared memory: two of each row per lane, loaded one chunk before they
/// are stored.
class WalkDecays {
 public:
  /// @param of_head [N, kDecayRows, 64] @param first,step the chunks, of which there are N
  __device__ __forceinline__ WalkDecays(const float* of_head, int first, int step, int N)
      : from_(reinterpret_cast<const float2*>(of_head) + lane_index()), n_(first), step_(step), N_(N) {
    load();
  }
  /// Stores those of the next chunk, and starts to load those after it.
  __device__ __forceinline__ void store(float* decays) {
    auto* to = reinterpret_cast<float2*>(decays) + lane_index();
#pragma unroll
    for (int row = 0; row < kDecayRows; ++row) to[row * 32] = next_[row];
    n_ += step_;
    if (n_ >= 0 && n_ < N_) load();
  }

 private:
  __device__ __forceinline__ void load() {
#pragma unroll
    for (int row = 0; row < kDecayRows; ++row) next_[row] = load_for_update(from_ + n_ * (kDecays / 2) + row * 32);
  }

  const float2* from_;
  int n_, step_, N_;
  float2 next_[kDecayRows];
};

/// Two bf16 times two factors, rounded again.
__device__ __forceinline__ std::uint32_t times(std::uint32_t two, float2 factors) {
  const float2 x = unpack(two);
  return pack(factors.x * x.x, factors.y * x.y);
}

/// The decays of the thread's columns p and p + 1 of the 8 from `column` on. @param decays [64] in shared memory
__device__ __forceinline__ float2 two_decays(const float* decays, int column) {
  return *reinterpret_cast<const float2*>(decays + column + lane_index() % 4 * 2);
}

/// fragments = sums, each column times its decay, rounded. @param decays [64] in shared memory
__device__ __forceinline__ void round_decayed(WarpgroupFragments& fragments, const WarpgroupColumns& sums,
                                              const float* decays) {
#pragma unroll
  for (int t = 0; t < kChunk; t += 8) {
    const float2 two = two_decays(decays, t);
    const float* s = sums + t / 2;
    fragments[t / 16][t / 8 % 2 * 2] = pack(two.x * s[0], two.y * s[1]);
    fragments[t / 16][t / 8 % 2 * 2 + 1] = pack(two.x * s[2], two.y * s[3]);
  }
}

/// fragments = dO^T, each column times its decay. @param unit first_unit_of_columns()
__device__ __forceinline__ void load_decayed(WarpgroupFragments& fragments, const ValuePanel& dO, int unit,
                                             const float* decays) {
#pragma unroll
  for (int t = 0; t < kChunk; t += 16) {
    ldmatrix_x4_trans(fragments[t / 16], dO.data + dO.advance(unit, t, 0));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      fragments[t / 16][i] = times(fragments[t / 16][i], two_decays(decays, t + i / 2 * 8));
    }
  }
}

/// sums = sums, each column times its decay, + others.
__device__ __forceinline__ void decay_and_add(WarpgroupColumns& sums, const WarpgroupColumns& others,
                                              const float* decays) {
#pragma unroll
  for (int i = 0; i < kChunk / 2; i += 4) {
    const float2 two = two_decays(decays, i * 2);
    sums[i] = two.x * sums[i] + others[i];
    sums[i + 1] = two.y * sums[i + 1] + others[i + 1];
    sums[i + 2] = two.x * sums[i + 2] + others[i + 2];
    sums[i + 3] = two.y * sums[i + 3] + others[i + 3];
  }
}

/// The walk from the beginning, by a warpgroup.
/// @tparam kEvery it passes on the states before chunks 0, kEvery, 2 kEvery ...
/// @param all_decays those of the chunks in shared memory
template <class Shape, int kEvery>
__device__ __forceinline__ void walk_forwards(const Bf16BackwardArguments& g, int N, int first, unsigned char* memory,
                                              const StoredTiles<Shape>& stored, const float* all_decays,
                                              WalkBarriers& barriers) {
  const int b = int(blockIdx.z), h = int(blockIdx.y);
  WarpgroupState<Shape::kDk> S;
  load_group_state<Shape::kDk>(S, g.initial_state.data ? g.initial_state.row(b, h, 0) + first : nullptr,
                               g.initial_state.stride_l, g.Dk, g.Dv - first);
  RoundedState<Shape::kDk> s;
  WarpgroupColumns residual, values, v_new;
  WarpgroupFragments factor;
  const int unit = first_unit_of_columns();
  auto ring = Ring<kPipelineDepth>::consumer();
  auto state_ring = Ring<1>::producer(), rows_ring = state_ring;
  for (int n = 0; n < N; ++n) {
    const WalkTiles<Shape> tiles(memory + ring.stage() * WalkTiles<Shape>::kBytes);
    const float* decays = all_decays + ring.stage() * kDecays;
    round_state<Shape::kDk>(s, S);
    ring.wait(barriers.full);
    wgmma_fence(residual, s);
    start_output_from_state<Shape::kDk>(residual, s, tiles.K);  // K in place of Q
    wgmma_commit();
    load_signed_values(values, tiles.V, unit, kMinus);
    if (n % kEvery == 0) {
      state_ring.wait(barriers.state_empty);
      put_fragments(stored.state, s);
      pass_to_copies(barriers.state_full[0]);
      state_ring.advance();
    }
    const float whole = decays[kOfQueries * kChunk + kChunk - 1];
    wgmma_wait<1>(S);  // done already; without it the compiler would wait for the product with K before it touches S
#pragma unroll
    for (float& element : S) element *= whole;
    wgmma_wait<0>(residual);
    decay_and_add(residual, values, decays + kOfKeys * kChunk);

    round_columns(factor, residual);
    wgmma_fence(v_new, factor);
    start_new_values(v_new, factor, tiles.T_high, tiles.T_low);
    wgmma_commit();
    wgmma_wait<0>(v_new);

    round_decayed(factor, v_new, decays + kToEnd * kChunk);
    wgmma_fence(S, factor);
    start_state_update<Shape::kDk>(S, factor, tiles.K);
    wgmma_commit();
    rows_ring.wait(barriers.rows_empty);
    put_output(stored.rows, v_new, 1);
    pass_to_copies(barriers.rows_full[0]);
    wgmma_wait<0>(S);
    // V may be filled again: between the ordinary loads that have read it and this arrival is a fence_async_proxy(),
    // that of pass_to_copies().
    if (lane_index() == 0) barriers.empty[ring.stage()].arrive();
    ring.advance();
    rows_ring.advance();
  }
}

/// The walk from the end, by a warpgroup.
/// @tparam kEvery it passes on the states after chunks kEvery - 1, 2 kEvery - 1, ... and after the last one
template <class Shape, int kEvery>
__device__ __forceinline__ void walk_backwards(const Bf16BackwardArguments& g, int N, int first, unsigned char* memory,
                                               const StoredTiles<Shape>& stored, const float* all_decays,
                                               WalkBarriers& barriers) {
  const int b = int(blockIdx.z), h = int(blockIdx.y);
  WarpgroupState<Shape::kDk> S;  // dS / scale
  load_group_state<Shape::kDk>(S, g.dfinal_state.data ? g.dfinal_state.row(b, h, 0) + first : nullptr,
                               g.dfinal_state.stride_l, g.Dk, g.Dv - first);
#pragma unroll
  for (float& element : S) element /= g.scale;
  RoundedState<Shape::kDk> s;
  WarpgroupColumns X, from_scores, dV;  // dV with the opposite sign, divided by scale
  WarpgroupFragments factor, outputs;   // dO^T
  const int unit = first_unit_of_columns();
  auto ring = Ring<kPipelineDepth>::consumer();
  auto state_ring = Ring<1>::producer(), rows_ring = state_ring;
  for (int n = N - 1; n >= 0; --n) {
    const WalkTiles<Shape> tiles(memory + ring.stage() * WalkTiles<Shape>::kBytes);
    const float* decays = all_decays + ring.stage() * kDecays;
    round_state<Shape::kDk>(s, S);
    ring.wait(barriers.full);
    wgmma_fence(X, s, from_scores);
    start_output_from_state<Shape::kDk>(X, s, tiles.K);  // K in place of Q
    start_transposed_scores(from_scores, tiles.V, tiles.P);
    wgmma_commit();
    const float whole = decays[kOfQueries * kChunk + kChunk - 1];
    wgmma_wait<1>(S);  // done already; without it the compiler would wait for the product with K before it touches S
#pragma unroll
    for (float& element : S) element *= whole;
    load_decayed(outputs, tiles.V, unit, decays + kOfQueries * kChunk);
    wgmma_fence(S, outputs);
    start_state_update<Shape::kDk>(S, outputs, tiles.Q);
    wgmma_commit();
    if (n % kEvery == kEvery - 1 || n == N - 1) {
      state_ring.wait(barriers.state_empty);
      put_fragments(stored.state, s);
      pass_to_copies(barriers.state_full[0]);
      state_ring.advance();
    }
    wgmma_wait<1>(X, from_scores);
    decay_and_add(X, from_scores, decays + kToEnd * kChunk);

    round_columns(factor, X);
    wgmma_fence(dV, factor);
    start_value_gradients(dV, factor, tiles.T_high, tiles.T_low);
    wgmma_commit();
    wgmma_wait<0>(S, dV);

    round_decayed(factor, dV, decays + kOfKeys * kChunk);
    wgmma_fence(S, factor);
    start_state_update<Shape::kDk>(S, factor, tiles.K);
    wgmma_commit();
    rows_ring.wait(barriers.rows_empty);
    put_output(stored.rows, dV, -g.scale);
    pass_to_copies(barriers.rows_full[0]);
    wgmma_wait<0>(S);
    // As in the other walk; here dO has been read.
    if (lane_index() == 0) barriers.empty[ring.stage()].arrive();
    ring.advance();
    rows_ring.advance();
  }
  if (g.dinitial_state.data) {
#pragma unroll
    for (float& element : S) element *= g.scale;
    store_group_state<Shape::kDk>(g.dinitial_state.row(b, h, 0) + first, S, g.dinitial_state.stride_l, g.Dk,
                                  g.Dv - first);
  }
}

/// May start early, as without gates. Grid (tiles of 64 columns of Dv for each walk, H, B).
template <class Shape, int kEvery>
__global__ void __launch_bounds__(kWalkThreads, 1)
    walks_kernel(Bf16BackwardArguments g, const __grid_constant__ WalkMaps maps, const float* all_decays, int N) {
  let_next_kernel_start();
  __shared__ WalkBarriers barriers;
  const int tiles = int(gridDim.x) / 2, tile = int(blockIdx.x) % tiles, first = tile * kColumns;
  const bool is_reversed = int(blockIdx.x) >= tiles;
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const StoredTiles<Shape> stored(memory + kPipelineDepth * WalkTiles<Shape>::kBytes);
  auto* decays = reinterpret_cast<float*>(memory + kWalkBytes<Shape>);
  if (threadIdx.x == 0) {
    for (Barrier& barrier : barriers.full) barrier.init(2);  // one for the bytes, one for the decays
    for (Barrier& barrier : barriers.empty) barrier.init(4);
    barriers.state_full[0].init(4), barriers.state_empty[0].init(1);
    barriers.rows_full[0].init(4), barriers.rows_empty[0].init(1);
    fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x >= kWarpgroup) {
    is_reversed ? walk_backwards<Shape, kEvery>(g, N, first, memory, stored, decays, barriers)
                : walk_forwards<Shape, kEvery>(g, N, first, memory, stored, decays, barriers);
    return;
  }
  if (threadIdx.x < 32) {
    wait_for_previous_kernel();  // T, P and decays
    const std::int64_t head = std::int64_t(blockIdx.z) * g.H + blockIdx.y;
    WalkDecays next(all_decays + head * N * kDecays, is_reversed ? N - 1 : 0, is_reversed ? -1 : 1, N);
    auto ring = Ring<kPipelineDepth>::producer();
    for (int i = 0; i < N; ++i) {
      Barrier& full = barriers.full[ring.stage()];
      ring.wait(barriers.empty);
      if (threadIdx.x == 0) {
        load_walk_chunk(WalkTiles<Shape>(memory + ring.stage() * WalkTiles<Shape>::kBytes), maps, full,
                        is_reversed ? N - 1 - i : i, first, is_reversed);
      }
      next.store(decays + ring.stage() * kDecays);
      __syncwarp();
      if (threadIdx.x == 0) full.arrive();
      ring.advance();
    }
  } else if (threadIdx.x == 32) {
    store_states<kEvery>(is_reversed ? maps.dS : maps.S, stored, barriers, N, tile, tiles, is_reversed);
  } else if (threadIdx.x == 64) {
    store_rows(is_reversed ? maps.dv : maps.v_new, stored, barriers, N, first, is_reversed);
  }
}

}  // namespace
}  // namespace tutorial::gated_delta_rule
