/// @file
/// `one_block`: a head in one block, with two chains.
///
/// Idea: with a head for every multiprocessor, nothing has to be shared between multiprocessors. A block walks with all
/// 128 columns of Dv, in two warpgroups of 64 columns. So Q, K, T and P are in shared memory once for both, and nothing
/// is pushed. A multiprocessor now has both halves of a head, so each half may take twice as long for a chunk. Its chain
/// waits for residual, Q S and v_new one after the other. While one chain waits, the tensor cores compute for the other.
///
/// Beside the chains there is room for two warpgroups. One loads and stores, and the other one computes T. Alone it is
/// too slow for that and for P, so other warps do part of the work (n is even):
///
///     two warps of warpgroup 0 | diagonal of n + 1          | diagonal of n + 2
///     warpgroup 1              | rows of T of n             | rows of T of n + 1
///     chain 0                  | n - 1             P of n   | n
///     chain 1                  | n - 1                      | n          P of n + 1
///
/// - Two warps invert the four blocks on the diagonal of I + A, two blocks each.
/// - The chains compute P: chain 0 for even chunks, chain 1 for odd ones.
///
/// Improves on: in `cluster` a head reads Q and K three times per 128 columns, and T and P of each chunk pass from one
/// multiprocessor to another. All of that takes power, which limits many heads on an H200.
/// Unchanged: what is rounded, and the order in which each sum is added up: the results are the same to the last bit.
///
/// Equation, shapes: those of `fused`, without T and P.
/// Thread mapping: block (x, h, b) walks over the chunks of a head with 128 columns of Dv. Warpgroups 2 and 3 are the
/// chains. Of warpgroup 0 one thread loads Q and K, one stores O and loads V, and warps 2 and 3 invert.
/// Synchronization: -A_cc, and later U_cc (warpgroup_inverse.cuh), lie in the place of block (c, c), in one of two sets of
/// blocks. Warpgroup 1 stores the four -A_cc (`diagonal_full`), and two warps replace them by U_cc (`diagonal_inverted`).
/// While they do, warpgroup 1 computes U of the chunk before, in the other set. K K^T of the next chunk runs between W
/// and U of this one: mma of W would otherwise wait for it. T (`T_full`) and P (`P_full`) lie in one of two slots, which
/// is free (`matrices_empty`) when both chains have read it. Outputs take the place of the values of their chunk: each
/// warp writes the columns that it has read. One thread stores a tile of outputs, and then loads the values of two
/// chunks later into it.
/// Resources: at Dk = 128 four pairs of Q and K, two of V and O, T and P of two chunks and two sets of blocks: 220 KB of
/// shared memory, one block per multiprocessor. Registers per thread: 64 for loads, stores and the diagonal, 96 for T,
/// and 176 for a chain. That is enough because residual and outputs share an array.
/// Work: 6 Dk Dv + 320 Dv operations per position on tensor cores, 256 Dk per 128 columns, and the inverse.
/// Bytes: v and o once; q and k once per 128 columns, beta twice.
/// Bound by: the steps of an inverse, and the power of an H200.
/// Requires: what `warpgroup_chain` requires.
/// Weakness: it needs a head for every multiprocessor. A chain takes longer for a chunk than in `cluster`. With Dv <= 64
/// the second chain does useless work.
/// Source: two warpgroups with half of the columns of a head each: FlashInfer's delta rule for Hopper.

#include <cuda_runtime.h>

#include "05_deltanet_wy/chunk/split_triangle.cuh"
#include "05_deltanet_wy/chunk/warpgroup_products.cuh"
#include "05_deltanet_wy/delta_rule.hpp"
#include "05_deltanet_wy/delta_rule/dispatch/one_block.cuh"
#include "common/device/launch.cuh"
#include "common/device/mbarrier.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/registers.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::delta_rule {
namespace {

using namespace tile;

constexpr int kBlockThreads = 4 * kWarpgroup;  // of a block

/// Grid (tiles of 128 columns of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kBlockThreads, 1)
    one_block_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps, const __grid_constant__ TensorMap o) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), first_column = int(blockIdx.x) * kChains * Shape::kDv;
  __shared__ OneBlockBarriers barriers;
  const OneBlockMemory<Shape> memory{dynamic_shared<unsigned char, kTileAlignment>()};

  if (threadIdx.x == 0) barriers.init();
  __syncthreads();

  const int group = int(threadIdx.x) / kWarpgroup;
  if (group == 0) {
    decrease_registers<64>();
    const int thread = int(threadIdx.x) % kWarpgroup;
    if (thread == 0) {
      load_pairs(a, maps, memory, barriers);
    } else if (thread == 32) {
      move_values(a, maps, o, memory, barriers);
    } else if (thread >= 64) {
      invert_diagonals(a, memory, barriers);
    }
  } else if (group == 1) {
    decrease_registers<96>();
    compute_inverses(a, memory, barriers);
  } else {
    increase_registers<176>();
    const int chain = __shfl_sync(kAllLanes, group - 2, 0);  // tells the compiler that it is the same in all lanes
    const int column = first_column + chain * Shape::kDv, columns = min(Shape::kDv, a.Dv - column);
    WarpgroupState<Shape::kDk> S;
    const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) + column : nullptr;
    load_group_state<Shape::kDk>(S, start, a.initial_state.stride_l, a.Dk, columns);
    auto ring = Ring<kPairs>::consumer();
    auto v_ring = Ring<kPlaces>::consumer();
    auto matrix_ring = Ring<kPlaces>::consumer();
    auto P_ring = Ring<kPlaces>::producer();    // one chunk ahead
    auto pair_ring = Ring<kPairs>::consumer();  // and so is this one
    const int unit = first_unit_of_columns();
    WarpgroupScores Q_K;
    // Q K^T of the chunk that pair_ring points to.
    const auto start_queries = [&] {
      pair_ring.wait(barriers.full);
      wgmma_fence(Q_K);
      start_scores(Q_K, memory.Q(pair_ring.stage()), memory.K(pair_ring.stage()));
      wgmma_commit();
    };
    const auto put_scores = [&] {
      P_ring.wait(barriers.matrices_empty);
      store_masked_scores(memory.matrices(P_ring.stage()).P, Q_K);
      fence_async_proxy();
      __syncwarp();
      if (lane_index() == 0) barriers.P_full[P_ring.stage()].arrive();
    };
    if (chain == 0) {
      start_queries();
      wgmma_wait<0>(Q_K);
      put_scores();
    }
    bool has_scores = chain == 1;  // this chain computes P of the next chunk
    for (int t = 0; t < a.L; t += kChunk) {
      pair_ring.advance();
      P_ring.advance();
      RoundedState<Shape::kDk> s;
      WarpgroupColumns sums;  // the residual, later the outputs: two arrays would take 32 more registers
      WarpgroupColumns v_new;
      WarpgroupFragments factor;
      round_state<Shape::kDk>(s, S);
      v_ring.wait(barriers.v_full);
      load_signed_values(sums, memory.V(v_ring.stage(), chain), unit, kMinus);
      ring.wait(barriers.full);
      wgmma_fence(sums, s);
      start_residual<Shape::kDk>(sums, s, memory.K(ring.stage()));
      wgmma_commit();
      wgmma_wait<0>(sums);
      round_columns(factor, sums);
      wgmma_fence(sums, s, factor);
      start_output_from_state<Shape::kDk>(sums, s, memory.Q(ring.stage()));
      wgmma_commit();
      wgmma_wait<0>(sums);
      const ChunkMatrices matrices = memory.matrices(matrix_ring.stage());
      matrix_ring.wait(barriers.T_full);
      wgmma_fence(v_new, factor);
      start_new_values(v_new, factor, matrices.T);
      wgmma_commit();
      wgmma_wait<0>(v_new);
      round_columns(factor, v_new);
      matrix_ring.wait(barriers.P_full);
      wgmma_fence(S, sums, factor);
      start_state_update<Shape::kDk>(S, factor, memory.K(ring.stage()));
      start_output_from_values(sums, factor, matrices.P);
      wgmma_commit();
      if (has_scores && t + kChunk < a.L) {
        start_queries();
        wgmma_wait<0>(S, sums, Q_K);
        put_scores();
      } else {
        wgmma_wait<0>(S, sums);
      }
      has_scores = !has_scores;
      if (lane_index() == 0) {
        barriers.empty[ring.stage()].arrive();
        barriers.matrices_empty[matrix_ring.stage()].arrive();
      }
      ring.advance();
      matrix_ring.advance();
      __syncwarp();  // all lanes have read their part of V
      put_output(memory.V(v_ring.stage(), chain), sums, a.scale, unit);
      fence_async_proxy();
      __syncwarp();
      if (lane_index() == 0) barriers.output_full[v_ring.stage()].arrive();
      v_ring.advance();
    }
    if (a.final_state.data) {
      store_group_state<Shape::kDk>(a.final_state.row(b, h, 0) + column, S, a.final_state.stride_l, a.Dk, columns);
    }
  }
}

}  // namespace

void one_block(const Bf16Arguments& a) {
  const auto start = [&]<class Shape>(Shape) {
    const dim3 grid((unsigned(a.Dv) - 1) / (kChains * Shape::kDv) + 1, unsigned(a.H), unsigned(a.B));
    launch(one_block_kernel<Shape>, {grid, kBlockThreads, std::size_t(OneBlockMemory<Shape>::kBytes)}, a, chunk_maps(a),
           output_map(a));
  };
  a.Dk <= 64 ? start(PanelShape<64, 64>()) : start(PanelShape<128, 64>());
}

}  // namespace tutorial::delta_rule
