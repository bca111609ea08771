/// @file
/// Stage 5, `warpgroups`: both walks and the last kernel on products of warpgroups.
///
/// Idea: a walk is a chain of products, each of which needs the rounded sums of the one before. A warpgroup keeps these
/// sums in registers as the left factor of the next product, as in `warpgroup_chain` of the operator. The right factors
/// are tiles as bulk copies bring them, and no thread transposes any: a flag of the product says in which direction it
/// reads a tile (common/device/wgmma.cuh). So T and P serve both walks as they are, T for v_new and T^T for dV.
///
///     from the beginning   -residual^T = S^T K^T - V^T      v_new^T = -residual^T (-T)^T   S^T += v_new^T K
///     from the end         X^T = dS^T K^T + dO^T P          -dV^T = X^T (-T)               dS^T += dO^T Q + (-dV^T) K
///
/// Other threads load chunks and store S, dS, v_new and dV, by bulk copies, while the chain goes on. Neither walk reads
/// what the other writes: the recurrence for dS contains no S. So one launch has the blocks of both.
///
/// In the last kernel, dQ and dK begin alike: with X = dO or X = dV a warpgroup computes X v_new^T and X S^T. Then it
/// adds what is its own. A block has one chunk. It needs all of its shared memory twice: dS takes the place of S, the
/// scores that of dO and dV, and the gradients that of Q and K. So two blocks share a multiprocessor, and while one
/// waits for its tiles, the other computes.
/// Grows out of: 05_deltanet_wy/delta_rule/9_warpgroup_chain.cu; large step: a second walk, from the other
/// end, and a kernel for the gradients of all chunks, both on the products of that chain. In between would be the walks
/// alone, with gradients by simple means once more. That would repeat what `walks` teaches, on tiles that the last kernel
/// of `tensor_core` cannot read.
/// Improves on: in `tensor_core` each warp of a walk reads all of K, Q, T and P of a chunk as fragments, and one chunk is
/// loaded ahead. The second walk begins when the first has ended. The last kernel reads do, v_new and dv once per 64
/// columns of Dk.
/// Unchanged: what goes through memory but for its layout; what is rounded, but in marked chunks (chunk/alike_keys.cuh),
/// where v_new, P, X and Y are two bf16.
/// Equation: that of `walks`. The last kernel computes dq and dk divided by scale, because dS in memory is divided by
/// scale.
/// Shapes: those of `tensor_core`. S^T and dS^T / scale [B, H, N, 64 ceil(Dv / 64), Dk] bf16 in memory are rows, for
/// bulk copies; prepare_tiles() leaves -T and P as rows.
/// Thread mapping: in the walks, block (walk and tile of 64 columns of Dv, h, b) has a warpgroup for the chain. Of the
/// other warpgroup one thread loads, one stores states, and one stores v_new or dV. In the last kernel, block (chunk,
/// h, b) has a warpgroup for dQ and one for dK.
/// Synchronization: a chunk's tiles are free (`empty`) when the chain has waited for its last product. What is stored
/// has one place in shared memory for states and one for rows, each with its own pair of barriers. The last kernel
/// starts early, and so do the walks if few blocks have them: their loading threads wait for the kernel before.
/// Resources: at Dk = Dv = 128 a walk has three chunks of 64 KB and 24 KB for what is stored, one block per
/// multiprocessor; the last kernel has 112 KB and 128 registers per thread, two blocks.
/// Work: that of `tensor_core`, but products with the zeros above a diagonal are not skipped, except a quarter of T in
/// the walk from the beginning.
/// Bytes: per position at Dk = Dv = 128, 896 in prepare_tiles(), 1536 and 1920 in the walks, if the tiles of Dv share
/// what they read, and 2816 in the last kernel: 7.2 KB.
/// Bound by: the memory's bandwidth with many chunks, the chain with few.
/// Requires: compute capability 9.0, Dk and Dv multiples of 16, up to 128, tensors that a tensor map can describe, keys
/// of length 1.
/// Weakness: S and dS of every chunk cross device memory. There are two blocks per head and tile of Dv in the walks, so
/// fewer than 33 heads of 128 columns leave multiprocessors idle.
/// Sources: as `tensor_core` and `warpgroup_chain`.

#include <cuda_runtime.h>

#include <string>

#include "05_deltanet_wy/chunk/alike_keys.cuh"
#include "05_deltanet_wy/chunk/prepare.hpp"
#include "05_deltanet_wy/chunk/warpgroup_products.cuh"
#include "05_deltanet_wy/delta_rule_backward.hpp"
#include "05_deltanet_wy/delta_rule_backward/warpgroup_walks.cuh"
#include "common/ceil_div.hpp"
#include "common/device/bulk_copy.cuh"
#include "common/device/early_start.cuh"
#include "common/device/launch.cuh"
#include "common/device/mbarrier.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/workspace.hpp"
#include "common/parts.hpp"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::delta_rule {
namespace {

using namespace tile;

constexpr int kBlockThreads = 2 * kWarpgroup;  // of the last kernel's block

/// A chunk in shared memory.
template <int kDk, int kDv>
struct GradientTiles {
  PanelTile<kDk, kDv> state;     // S^T, later dS^T
  PanelTile<kDv> dO, dV, v_new;  // the scores take the place of dO and dV
  PanelTile<kDk> Q, K;           // dQ and dK take their places

  static constexpr int kStateBytes = kDk * kDv * int(sizeof(__nv_bfloat16));
  static constexpr int kRowsBytes = kChunk * kDv * int(sizeof(__nv_bfloat16));
  static constexpr int kKeysBytes = kChunk * kDk * int(sizeof(__nv_bfloat16));
  static constexpr int kBytes = kStateBytes + 3 * kRowsBytes + 2 * kKeysBytes;

  __device__ __forceinline__ explicit GradientTiles(__nv_bfloat16* memory)
      : state{memory},
        dO{memory + kDk * kDv},
        dV{dO.data + kChunk * kDv},
        v_new{dV.data + kChunk * kDv},
        Q{v_new.data + kChunk * kDv},
        K{Q.data + kChunk * kDk} {}
};

/// O += Y K. @param Y the scores of a chunk, or their transpose
template <int kDk, Major kMajor>
__device__ __forceinline__ void start_product_with_scores(float (&O)[kDk / 2], const SharedFactor<kMajor>& Y,
                                                          const PanelTile<kDk>& K) {
  const auto k = k_from_row_to_row(K);
#pragma unroll
  for (int i = 0; i < kChunk; i += 16) wgmma<kDk>(O, Y.along_k(i), k.along_k(i), true);
}

/// scores += X E^T. @param E what rounding leaves out of v_new
template <int kDv>
__device__ __forceinline__ void start_product_with_errors(WarpgroupScores& scores, const PanelTile<kDv>& X,
                                                          const PanelTile<kDv>& E) {
  const auto x = k_along_rows(X), e = k_along_rows(E);
#pragma unroll
  for (int j = 0; j < kDv; j += 16) wgmma<kChunk>(scores, x.along_k(j), e.along_k(j), true);
}

/// O = E K. @param E what rounding leaves out of Y
template <int kDk>
__device__ __forceinline__ void start_product_of_errors(float (&O)[kDk / 2], const WarpgroupFragments& E,
                                                        const PanelTile<kDk>& K) {
  const auto k = k_from_row_to_row(K);
#pragma unroll
  for (int i = 0; i < kChunk; i += 16) wgmma<kDk>(O, E[i / 16], k.along_k(i), i > 0);
}

/// The barriers of the last kernel. `state_full` has a phase for S and one for dS. In a marked chunk v_new's errors take its
/// place (`errors_full`), and then it comes again: a second phase of `rows_full`.
struct GradientBarriers {
  Barrier rows_full, errors_full, state_full, keys_full;
  bool alike;  // whether the chunk is marked (chunk/alike_keys.cuh)
};

/// Numbers of named barriers: of the block, and the first of those of its warpgroups.
constexpr unsigned kWholeBlock = 1, kOwnGroup = 2;

/// dQ or dK of a chunk, by a warpgroup. dbeta comes with dK.
/// @param load_state loads a state into its tile @param load_values the same of v_new or its errors
template <int kDk, int kDv, bool kIsDk, class LoadState, class LoadValues>
__device__ __forceinline__ void compute_gradient(const Bf16BackwardArguments& g, const GradientMaps& maps,
                                                 const GradientTiles<kDk, kDv>& tiles, GradientBarriers& barriers,
                                                 LoadState load_state, LoadValues load_values) {
  const int t = int(blockIdx.x) * kChunk, h = int(blockIdx.y), b = int(blockIdx.z);
  const PanelTile<kDv> X = kIsDk ? tiles.dV : tiles.dO;
  const SquarePanel Y{tiles.dO.data}, Z{tiles.dV.data};  // Z with the opposite sign; both divided by scale
  const float factor = kIsDk ? -1 / g.scale : 1;
  WarpgroupFragments y;  // Y or Z
  float sums[kDk / 2];   // the gradient, divided by scale
  {
    WarpgroupScores scores;
    float betas[2];
    if constexpr (kIsDk) load_betas(betas, g, b, h, t);
    barriers.rows_full.wait(0);
    wgmma_fence(scores);
    start_scores(scores, X, tiles.v_new);
    wgmma_commit();
    wgmma_wait<0>(scores);
    if constexpr (kIsDk) store_beta_gradient(g, b, h, t, scores, betas);
    if (barriers.alike) {
      wait_at_named_barrier(kWholeBlock, kBlockThreads);  // v_new is no longer needed
      if constexpr (!kIsDk) {
        if (threadIdx.x == 0) load_values(maps.v_errors, barriers.errors_full);
        barriers.errors_full.wait(0);
        wgmma_fence(scores);
        start_product_with_errors(scores, X, tiles.v_new);
        wgmma_commit();
        wgmma_wait<0>(scores);
        wait_at_named_barrier(kOwnGroup, kWarpgroup);
        if (threadIdx.x == 0) load_values(maps.v_new, barriers.rows_full);
      }
    }
#pragma unroll
    for (int i = 0; i < kChunk / 2; ++i) {
      const int row = wgmma_row(i), column = wgmma_column(i);
      scores[i] = (kIsDk ? column < row : column <= row) ? factor * scores[i] : 0;
    }
    round_columns(y, scores);
    if (!kIsDk && barriers.alike) {  // the sums begin with Y's errors times K
      WarpgroupFragments errors;
      keep_errors(scores);
      round_columns(errors, scores);
      barriers.keys_full.wait(0);
      wgmma_fence(sums, errors);
      start_product_of_errors<kDk>(sums, errors, tiles.K);
      wgmma_commit();
      wgmma_wait<0>(sums);
    }
  }
  barriers.state_full.wait(0);
  wgmma_fence(sums);
  start_product_with_state<kDk, kDv>(sums, k_along_rows(X), tiles.state, !kIsDk && barriers.alike);
  wgmma_commit();
  wgmma_wait<0>(sums);
#pragma unroll
  for (int i = 0; i < kDk / 2; ++i) sums[i] *= factor;
  wait_at_named_barrier(kOwnGroup + kIsDk, kWarpgroup);  // all warps have read X
  put_fragments(kIsDk ? Z : Y, y);
  fence_async_proxy();
  wait_at_named_barrier(kWholeBlock, kBlockThreads);  // Y and Z are there, and S is no longer needed
  if (!kIsDk && threadIdx.x == 0) load_state(maps.dS);
  barriers.keys_full.wait(0);
  wgmma_fence(sums);
  if constexpr (kIsDk) {
    start_product_with_scores(sums, k_along_rows(Z), tiles.K);       // -Z K
    start_product_with_scores(sums, k_from_row_to_row(Z), tiles.K);  // -Z^T K
    start_product_with_scores(sums, k_from_row_to_row(Y), tiles.Q);  // Y^T Q
    wgmma_commit();
    wgmma_wait<0>(sums);
    barriers.state_full.wait(1);
    if (barriers.alike) barriers.rows_full.wait(1);
    wgmma_fence(sums);
    start_product_with_state<kDk, kDv>(sums, k_along_rows(tiles.v_new), tiles.state, true);
  } else {
    start_product_with_scores(sums, k_along_rows(Y), tiles.K);  // Y K
  }
  wgmma_commit();
  wgmma_wait<0>(sums);
#pragma unroll
  for (int i = 0; i < kDk / 2; ++i) sums[i] *= g.scale;
  wait_at_named_barrier(kWholeBlock, kBlockThreads);  // Q and K are no longer needed
  const PanelTile<kDk> gradient = kIsDk ? tiles.K : tiles.Q;
  put_rows(gradient, sums);
  fence_async_proxy();
  wait_at_named_barrier(kOwnGroup + kIsDk, kWarpgroup);
  if (threadIdx.x % kWarpgroup == 0) {
    for (int panel = 0; panel < kDk / 64; ++panel) {
      store_tile(kIsDk ? maps.dk : maps.dq, gradient.data + panel * gradient.kPanelElements,
                 {.column = panel * 64, .position = t, .head = h, .batch = b});
    }
    commit_stores();
    wait_stores_read<0>();
  }
}

/// Grid (chunks, H, B). The first warpgroup computes dQ, the second one dK and dbeta. Starts early.
template <int kDk, int kDv>
__global__ void __launch_bounds__(kBlockThreads, 2)
    gradients_kernel(Bf16BackwardArguments g, const __grid_constant__ GradientMaps maps, PreparedTiles prepared) {
  using Tiles = GradientTiles<kDk, kDv>;
  __shared__ GradientBarriers barriers;
  const int n = int(blockIdx.x), h = int(blockIdx.y), b = int(blockIdx.z);
  const Tiles tiles(dynamic_shared<__nv_bfloat16, kTileAlignment>());
  const auto load_state = [&](const TensorMap& map) {
    barriers.state_full.arrive_expect(Tiles::kStateBytes);
    load_panels(tiles.state, map, barriers.state_full, {.position = n * kDv, .head = h, .batch = b});
  };
  const auto load_values = [&](const TensorMap& map, Barrier& full) {
    full.arrive_expect(Tiles::kRowsBytes);
    load_panels(tiles.v_new, map, full, {.position = n * kChunk, .head = h, .batch = b});
  };
  if (threadIdx.x == 0) {
    barriers.rows_full.init(1), barriers.errors_full.init(1);
    barriers.state_full.init(1), barriers.keys_full.init(1);
    fence_barrier_init();
    wait_for_previous_kernel();
    const std::uint32_t mark = load_mark(prepared, (std::int64_t(b) * g.H + h) * prepared.N + n);
    const TileOrigin chunk{.position = n * kChunk, .head = h, .batch = b};
    barriers.rows_full.arrive_expect(3 * Tiles::kRowsBytes);
    load_panels(tiles.dO, maps.d_o, barriers.rows_full, chunk);
    load_panels(tiles.v_new, maps.v_new, barriers.rows_full, chunk);
    load_panels(tiles.dV, maps.dv, barriers.rows_full, chunk);
    load_state(maps.S);
    barriers.keys_full.arrive_expect(2 * Tiles::kKeysBytes);
    load_panels(tiles.K, maps.k, barriers.keys_full, chunk);
    load_panels(tiles.Q, maps.q, barriers.keys_full, chunk);
    barriers.alike = is_marked(mark);
  }
  __syncthreads();
  if (threadIdx.x < kWarpgroup) {
    compute_gradient<kDk, kDv, false>(g, maps, tiles, barriers, load_state, load_values);
  } else {
    compute_gradient<kDk, kDv, true>(g, maps, tiles, barriers, load_state, load_values);
  }
}

}  // namespace

void warpgroups_backward(const Bf16BackwardArguments& g) {
  const PreparedTiles prepared = prepare_tiles(forward_of(g), kLeastBeta);
  end_part("prepare");
  const Workspace x = start_walks<1>(g, prepared, "delta_rule --backward: warpgroups");
  select_widths(g, [&]<int kDk, int kDv>() {
    LaunchConfig config(dim3(unsigned(ceil_div(g.L, kChunk)), unsigned(g.H), unsigned(g.B)), unsigned(kBlockThreads),
                        GradientTiles<kDk, kDv>::kBytes);
    config.starts_early = start_early(g);
    launch(gradients_kernel<kDk, kDv>, config, g, GradientMaps(g, x, kChunk, kDv), prepared);
  });
  end_part("gradients");
}

}  // namespace tutorial::delta_rule
