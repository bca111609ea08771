/// @file
/// `one_kernel`: T and P of a chunk are computed beside the chain, in the same block.
///
/// Idea: T and P depend on a single chunk, so they may be computed at any time before the chain needs them. Two more
/// warpgroups do that, one or two chunks ahead of the chain, from the tiles of K and Q that the chain reads, too
/// (matrices.cuh). They put T and P where bulk copies put them before, into shared memory. Nothing but q, k, v,
/// beta, o and states is in device memory. The work for T and P, which mma.sync and many short steps make long, fills
/// the time in which the chain waits for its products.
///
///     loads            | Q, K of n + 4     | V of n + 3
///     warpgroup 1      | T, P of n + 1 ................................. | T, P of n + 3
///     warpgroup 2             ... | T, P of n + 2 .................................... | T, P of n + 4
///     the chain        | n               | n + 1               | n + 2
///     stores           | O of n - 1      | O of n
///
/// Improves on: in `warpgroup_chain` T and P go through memory, and q and k are read twice. With many heads that takes
/// longer than the walk.
/// Unchanged: the chain, 64 columns per block, and what is rounded.
///
/// Equation, shapes: those of `fused`, without T and P.
/// Thread mapping: block (tile, h, b) walks over the chunks of a head with 64 columns of Dv. Warpgroup 0 loads and
/// stores as before, warpgroups 1 and 2 compute T and P of every second chunk each, and warpgroup 3 has the state. Each
/// tile of columns computes T and P again.
/// Synchronization: tiles of Q and K are free (`empty`) when four warps of the chain and four of the matrices have waited
/// for their products with them, and a tile of V (`v_empty`) when the chain has read it. T and P of a chunk are there
/// (`matrices_full`) when four warps have stored them, and free (`matrices_empty`) after the chain's last product with P.
/// The two warpgroups that compute matrices do not wait for each other.
/// Resources: at Dk = 128 four tiles of Q and K, two of V, T and P of two chunks, a tile of outputs, and 10 KB per
/// warpgroup for the inverse: 212 KB of shared memory, one block per multiprocessor. Registers per thread: 64 for loads
/// and stores, 120 for matrices, 208 for the chain.
/// Work: 6 Dk Dv + 320 Dv operations per position on tensor cores, 256 Dk per tile of 64 columns, and the inverse.
/// Bytes: v and o once; q, k and beta once per tile of 64 columns, from the second-level cache if tiles run at the same
/// time.
/// Bound by: the steps of an inverse, which wait for each other: two warpgroups finish a chunk every 1.8 us.
/// Requires: what `warpgroup_chain` requires.
/// Weakness: each tile of columns computes T and P of its head. With few heads most multiprocessors are idle.
/// Source: matrices of a chunk in warps of their own: FlashInfer's delta rule for Hopper.

#include <cuda_runtime.h>

#include <type_traits>

#include "05_deltanet_wy/chunk/split_triangle.cuh"
#include "05_deltanet_wy/chunk/warpgroup_products.cuh"
#include "05_deltanet_wy/delta_rule.hpp"
#include "05_deltanet_wy/delta_rule/dispatch/one_kernel.cuh"
#include "common/device/launch.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/registers.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/store_tile.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::delta_rule {
namespace {

using namespace tile;

constexpr int kBlockThreads = 4 * kWarpgroup;   // of a block
constexpr int kStoreThreads = kWarpgroup - 32;  // of them

/// Grid (tiles of 64 columns of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kBlockThreads, 1)
    one_kernel_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), first_column = int(blockIdx.x) * Shape::kDv;
  const int columns = min(Shape::kDv, a.Dv - first_column);
  __shared__ Barrier full[kPipelineDepth], empty[kPipelineDepth], output_full[1], output_empty[1];
  __shared__ Barrier v_full[kStages], v_empty[kStages], matrices_full[kStages], matrices_empty[kStages];
  const BlockMemory<Shape> memory{dynamic_shared<unsigned char, kTileAlignment>()};

  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(1);
    for (Barrier& barrier : empty) barrier.init(4 + 4);  // the warps of the chunk's matrices, and those of the state
    for (Barrier& barrier : output_full) barrier.init(4);
    for (Barrier& barrier : output_empty) barrier.init(3);
    for (int i = 0; i < kStages; ++i) v_full[i].init(1), v_empty[i].init(4);
    for (int i = 0; i < kStages; ++i) matrices_full[i].init(4), matrices_empty[i].init(4);
    fence_barrier_init();
  }
  __syncthreads();

  const int group = int(threadIdx.x) / kWarpgroup;
  if (group == 0) {
    decrease_registers<64>();
    const int thread = int(threadIdx.x) % kWarpgroup;
    if (thread == 0) {
      auto ring = Ring<kPipelineDepth>::producer();
      auto v_ring = Ring<kStages>::producer();
      for (int t = 0; t < a.L; t += kChunk) {
        ring.wait(empty);
        full[ring.stage()].arrive_expect(2 * BlockMemory<Shape>::kKeyBytes);
        load_panels(memory.K(ring.stage()), maps.k, full[ring.stage()], {.position = t, .head = h, .batch = b});
        load_panels(memory.Q(ring.stage()), maps.q, full[ring.stage()], {.position = t, .head = h, .batch = b});
        ring.advance();
        v_ring.wait(v_empty);
        fence_async_proxy();  // V has been read by ldmatrix
        v_full[v_ring.stage()].arrive_expect(BlockMemory<Shape>::kValueBytes);
        load_panels(memory.V(v_ring.stage()), maps.v, v_full[v_ring.stage()],
                    {.column = first_column, .position = t, .head = h, .batch = b});
        v_ring.advance();
      }
    } else if (thread >= 32) {
      auto output_ring = Ring<1>::consumer();
      for (int t = 0; t < a.L; t += kChunk) {
        output_ring.wait(output_full);
        store_tile_by<kStoreThreads>(thread - 32, a.o.row(b, h, t) + first_column, a.o.stride_l, a.L - t, columns,
                                     memory.O(), [&] {
                                       __syncwarp();
                                       if (lane_index() == 0) output_empty[output_ring.stage()].arrive();
                                     });
        output_ring.advance();
      }
    }
  } else if (group < 3) {
    decrease_registers<120>();
    compute_matrices(a, memory, group - 1, full, empty, matrices_full, matrices_empty);
  } else {
    increase_registers<208>();
    WarpgroupState<Shape::kDk> S;
    const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) + first_column : nullptr;
    load_group_state<Shape::kDk>(S, start, a.initial_state.stride_l, a.Dk, columns);
    auto ring = Ring<kPipelineDepth>::consumer();
    auto v_ring = Ring<kStages>::consumer();  // one chunk ahead of the others
    auto matrix_ring = Ring<kStages>::consumer();
    auto output_ring = Ring<1>::producer();

    RoundedState<Shape::kDk> s;
    WarpgroupColumns residual, v_new, O;
    WarpgroupFragments factor;
    const int unit = first_unit_of_columns();
    // residual = -V of the next chunk.
    const auto load_values = [&] {
      v_ring.wait(v_full);
      load_signed_values(residual, memory.V(v_ring.stage()), unit, kMinus);
      __syncwarp();  // all lanes have read their part of V
      if (lane_index() == 0) v_empty[v_ring.stage()].arrive();
      v_ring.advance();
    };
    // residual += K S of the chunk of ring.
    const auto start_state_product = [&] {
      round_state<Shape::kDk>(s, S);
      ring.wait(full);
      wgmma_fence(residual, s);
      start_residual<Shape::kDk>(residual, s, memory.K(ring.stage()));
      wgmma_commit();
    };
    // Starts from the residual of a chunk: computes its v_new, updates S, computes its outputs and the residual of the
    // next chunk.
    const auto walk = [&]<class HasNext>(HasNext) {
      const ChunkMatrices matrices = memory.matrices(matrix_ring.stage());
      round_columns(factor, residual);
      matrix_ring.wait(matrices_full);
      wgmma_fence(v_new, factor);
      start_new_values(v_new, factor, matrices.T);
      wgmma_commit();
      wgmma_fence(O, s);
      start_output_from_state<Shape::kDk>(O, s, memory.Q(ring.stage()));
      wgmma_commit();
      if constexpr (HasNext::value) load_values();
      wgmma_wait<1>(v_new);
      round_columns(factor, v_new);
      wgmma_fence(S, factor, residual);
      start_state_update<Shape::kDk>(S, factor, memory.K(ring.stage()));
      wgmma_commit();
      start_output_from_values(O, factor, matrices.P);
      wgmma_commit();
      wgmma_wait<1>(S);
      if (lane_index() == 0) empty[ring.stage()].arrive();
      ring.advance();
      if constexpr (HasNext::value) {
        start_state_product();
        wgmma_wait<1>(O);
      } else {
        wgmma_wait<0>(S, O);
      }
      if (lane_index() == 0) matrices_empty[matrix_ring.stage()].arrive();
      matrix_ring.advance();
      output_ring.wait(output_empty);
      put_output(memory.O(), O, a.scale);
      __syncwarp();
      if (lane_index() == 0) output_full[output_ring.stage()].arrive();
      output_ring.advance();
      if constexpr (HasNext::value) wgmma_wait<0>(residual);
    };

    load_values();
    start_state_product();
    wgmma_wait<0>(residual);
    for (int t = 0; t + kChunk < a.L; t += kChunk) walk(std::true_type());
    walk(std::false_type());
    if (a.final_state.data) {
      store_group_state<Shape::kDk>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk,
                                    columns);
    }
  }
}

}  // namespace

void one_kernel(const Bf16Arguments& a) {
  const auto start = [&]<class Shape>(Shape) {
    launch(one_kernel_kernel<Shape>,
           {grid_of<Shape>(extents_of(a), 1), kBlockThreads, std::size_t(BlockMemory<Shape>::kBytes)}, a,
           chunk_maps(a));
  };
  a.Dk <= 64 ? start(PanelShape<64, 64>()) : start(PanelShape<128, 64>());
}

}  // namespace tutorial::delta_rule
