/// @file
/// `cluster`: rows, J and R are computed beside the walk, by two blocks for each other.
///
/// Idea: q, k and g of a chunk become its rows Q+, K+ and K- where they lie in shared memory, and these become the
/// walk's Q+, K+, -J and -R in the same place. Nothing but inputs and outputs goes through memory. A cluster of two
/// blocks has 128 columns of Dv of a head, each block 64 of them, as in delta_rule's `cluster`. What a chunk needs
/// before its step of the walk is the same for all columns. So each block prepares every second chunk and pushes it to
/// the other:
///
///     warpgroup | block 0, while it walks its own chunk n     | block 1
///     rows      | waits for the slot of chunk n               | q, k, g of chunk n + 3 -> Q+, K+, K-, P
///     inverse   | A of chunk n + 2 -> U = -T -> J, R          | is done with chunk n + 1, which has been pushed
///     chain     | step n with columns 0 .. 63                 | step n with columns 64 .. 127
///
/// Improves on: `one_anchor` takes Q+, K+, J and R through memory, and with many heads that is what it waits for.
/// Unchanged: the short and the long way of `one_anchor`; the products of a chunk, and their order in the chain. The
/// outputs now leave by bulk copies, and the chain waits for R Res and S together, because it has fewer registers. All
/// results have the bits of those of `one_anchor`.
///
/// **Segments.** Where few heads leave multiprocessors idle, the kernel may cut sequences into segments, whose clusters
/// begin with zeros a few chunks earlier (chunk/zero_starts.cuh, zero_starts.cuh). Each cluster decides for its segment
/// whether gates and keys allow that. If not, it has nothing to do, and the kernels that follow walk the whole head
/// (common/device/walked_heads.hpp).
///
/// Equation: that of `two_products`. What is rounded: as in `one_anchor`.
///
/// Shapes: those of `tensor_core`; g [B, H, L, Dk] fp32 in device memory.
/// Thread mapping: four warpgroups. In the first, one thread each loads V, loads q, k and g, sends chunks to the other
/// block, and stores O. The others are those of the picture. With an odd number of tiles of 64 columns the last block
/// has no columns, but prepares chunks.
/// Synchronization: a block has two slots for chunks that it prepares, and a third for those of the other block. `raw`:
/// q, k and g are there. `full`: the chunk is prepared, or has come from the other block. A block loads an own slot
/// again when its chain (`empty`) and that of the other block (`place_free`) have read the chunk. `place_free` also
/// allows the next push. The two warpgroups that prepare meet at named barriers (cluster.cuh).
/// Resources: three slots of 64 KB, a tile each of V, O and P, and the blocks of the inverse: 226 KB of shared memory.
/// 32, 144, 112 and 224 registers per thread of the warpgroups.
/// Work: that of `one_anchor`, but chunks are prepared once per 128 columns of Dv, not once per head.
/// Bytes: q, k, g, beta once per 128 columns of Dv; v and o once.
/// Bound by: how long a chunk occupies its slot. The two blocks have four slots for the chunks that they prepare, and a
/// chunk occupies one for longer than four steps of a walk alone take. So the chain waits for chunks.
/// Requires: what `one_anchor` requires.
/// Weakness: with few heads most multiprocessors are idle, and a step takes longer than in a walk alone.
/// Sources: those of `one_anchor`; delta_rule's `cluster`.

#include <cuda_runtime.h>

#include <type_traits>

#include "05_deltanet_wy/chunk/decay_columns.cuh"
#include "05_deltanet_wy/chunk/packed_heads.cuh"
#include "05_deltanet_wy/chunk/warpgroup_products.cuh"
#include "05_deltanet_wy/kda/dispatch/cluster.cuh"
#include "05_deltanet_wy/kda/dispatch/zero_starts.cuh"
#include "05_deltanet_wy/kda/dispatch/zero_starts.hpp"
#include "common/device/bulk_copy.cuh"
#include "common/device/cluster.cuh"
#include "common/device/early_start.cuh"
#include "common/device/launch.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/push_shared.cuh"
#include "common/device/registers.cuh"
#include "common/device/walked_heads.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::kda {
namespace {

using namespace tile;
using namespace delta_rule;  // products of a chunk

constexpr int kBlockThreads = 4 * kWarpgroup;  // of a block

/// Grid (tiles of 64 columns of Dv, rounded up to an even number, of all segments; H; B), in clusters of two along x.
/// @tparam kFromZeros whether there may be several segments, of `length` positions
/// @param heads which segments have been walked: the kernel says so if it is `kFromZeros`, else one before it
/// @param sequences with HeadsLeft those of packed sequences, which are not `kFromZeros`
template <class Shape, bool kNormalize, bool kFromZeros, class Heads>
__global__ void __launch_bounds__(kBlockThreads, 1)
    cluster_kernel(Bf16Arguments all, const __grid_constant__ RawMaps maps, WalkedHeads heads, int length,
                   Heads sequences) {
  const int b = Heads::batch(all.B), h = int(blockIdx.y);
  const ClusterMemory<Shape> memory{dynamic_shared<unsigned char, kTileAlignment>()};
  ClusterBarriers& barriers = memory.barriers();
  int tile = int(blockIdx.x), first = 0, begin = 0;  // where the walk starts, and its outputs
  [[maybe_unused]] Bf16Arguments part;
  if constexpr (kFromZeros) {
    let_next_kernel_start();
    const int tiles = int(gridDim.x) / heads.segments, segment = tile / tiles;
    tile %= tiles;
    begin = segment * length;
    // The first segment asks for the second one: where that may not start, the head is another kernel's.
    const int start = heads.segments == 1
                          ? 0
                          : zero_start<kBlockThreads, kNormalize>(all, b, h, max(begin, length), barriers.factors);
    if (threadIdx.x == 0 && tile == 0) {
      store_global(heads.walked + (std::int64_t(b) * all.H + h) * heads.segments + segment, int(start != kNoWarmUp));
    }
    if (start == kNoWarmUp) return;
    if (segment > 0) first = start;
    part = part_of(all, first, min(begin + length, all.L));
  } else if constexpr (Heads::kArePacked) {
    if (!sequences.begin(all, Shape::kDv)) return;
    first = begin = sequences.first_position();
  } else if (heads.walked && has_been_walked(heads, b * all.H + h)) {
    return;
  }
  const Bf16Arguments& a = *(kFromZeros ? &part : &all);  // what is walked
  const int first_column = tile * Shape::kDv, columns = min(Shape::kDv, a.Dv - first_column);
  const int rank = int(cluster_rank());
  auto &full = barriers.full, &empty = barriers.empty;
  Barrier &output_full = barriers.output_full, &output_empty = barriers.output_empty;
  const auto tiles_of = [&](int slot) { return WalkTiles<Shape::kDk>(memory.slot(slot)); };
  const ValuePanel output = memory.O();
  const auto decays_of = [&](int slot) { return memory.slot(slot).chunk_decays(); };

  if (threadIdx.x == 0) barriers.init();
  cluster_sync();

  const int group = int(threadIdx.x) / kWarpgroup;
  if (group == 0) {
    decrease_registers<32>();
    move_tiles<Heads>(a, maps, memory, rank, {first, begin, first_column});
  } else if (group == 1) {
    increase_registers<144>();
    prepare_rows<kNormalize, Heads>(a, memory, rank);
  } else if (group == 2) {
    decrease_registers<112>();
    prepare_inverse<Heads>(a, memory, rank);
  } else {
    increase_registers<224>();
    WarpgroupState<Shape::kDk> S;
    const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) + first_column : nullptr;
    load_group_state<Shape::kDk>(S, start, a.initial_state.stride_l, a.Dk, columns);
    SlotRing ring(rank);
    SlotRing next_ring(rank);  // one chunk ahead of `ring`
    auto v_ring = Ring<1>::consumer();
    auto output_ring = Ring<1>::producer();

    RoundedState<Shape::kDk> s;
    WarpgroupColumns residual, O;
    WarpgroupFragments factor;
    const int unit = first_unit_of_columns();
    [[maybe_unused]] int rows = a.L;  // that are left of packed sequences
    // residual = -V of the next chunk.
    const auto load_values = [&] {
      v_ring.wait(&barriers.v_full);
      load_signed_values(residual, memory.V(), unit, kMinus);
      if constexpr (Heads::kArePacked) {
#pragma unroll
        for (int i = 0; i < kChunk / 2; ++i) {
          if (wgmma_column(i) >= rows) residual[i] = 0;
        }
        rows -= kChunk;
      }
      __syncwarp();  // all lanes have read their part of V
      if (lane_index() == 0) barriers.v_empty.arrive();
      v_ring.advance();
    };
    // residual += K+ S of that chunk, and S decays as that chunk says.
    const auto add_state_product = [&] {
      round_state<Shape::kDk>(s, S);
      next_ring.wait(full);
      wgmma_fence(residual, s);
      start_residual<Shape::kDk>(residual, s, tiles_of(next_ring.stage()).K);
      wgmma_commit();
      decay_columns(S, decays_of(next_ring.stage()));
    };
    // O = Q+ S of that chunk.
    const auto start_output = [&] {
      wgmma_fence(O, s);
      start_output_from_state<Shape::kDk>(O, s, tiles_of(next_ring.stage()).Q);
      wgmma_commit();
      wgmma_wait<1>(residual);
      next_ring.advance();
    };
    // Starts from the residual of a chunk: updates S, computes its outputs and the residual of the next chunk.
    const auto walk = [&]<class HasNext>(HasNext) {
      const auto tiles = tiles_of(ring.stage());
      round_columns(factor, residual);
      wgmma_fence(S, factor);
      start_state_update<Shape::kDk>(S, factor, tiles.J);
      start_output_from_values(O, factor, tiles.R);
      wgmma_commit();
      if constexpr (HasNext::value) load_values();
      wgmma_wait<0>(S, O);
      __syncwarp();  // all lanes have read the decays
      if (lane_index() == 0) empty[ring.stage()].arrive();
      ring.advance();
      output_ring.wait(&output_empty);
      put_output(output, O, a.scale);
      fence_async_proxy();
      __syncwarp();
      if (lane_index() == 0) output_full.arrive();
      output_ring.advance();
      if constexpr (HasNext::value) {
        add_state_product();
        start_output();
      }
    };

    load_values();
    add_state_product();
    start_output();
    for (int t = 0; t + kChunk < a.L; t += kChunk) walk(std::true_type());
    walk(std::false_type());
    if (a.final_state.data) {
      store_group_state<Shape::kDk>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk,
                                    columns);
    }
  }
  cluster_sync();
}

}  // namespace

namespace {

/// Calls start with a shape and std::true_type where keys are to be normalised, or std::false_type.
template <class Start>
void select(const Bf16Arguments& a, Start start) {
  const auto start_shape = [&](auto shape) {
    a.normalize_keys ? start(shape, std::true_type()) : start(shape, std::false_type());
  };
  a.Dk <= 64 ? start_shape(PanelShape<64, 64>()) : start_shape(PanelShape<128, 64>());
}

void start_clusters(const Bf16Arguments& a, const LaunchPlan& plan, const WalkedHeads& heads, bool from_zeros) {
  select(a, [&]<class Shape, bool kNormalize>(Shape, std::bool_constant<kNormalize>) {
    LaunchConfig config =
        launch_in_pairs<Shape>(extents_of(a), kBlockThreads, std::size_t(ClusterMemory<Shape>::kBytes));
    config.grid.x *= unsigned(plan.segments);
    config.starts_early = heads.walked && !from_zeros;
    launch(from_zeros ? cluster_kernel<Shape, kNormalize, true, delta_rule::BatchHeads>
                      : cluster_kernel<Shape, kNormalize, false, delta_rule::BatchHeads>,
           config, a, raw_maps(a), heads, plan.length, delta_rule::BatchHeads());
  });
}

}  // namespace

void cluster(const Bf16Arguments& a, const LaunchPlan& plan, const WalkedHeads& heads) {
  start_clusters(a, plan, heads, true);
}

void cluster_behind(const Bf16Arguments& a, const WalkedHeads& heads) {
  start_clusters(a, make_launch_plan(a.L, kWarpgroupColumns, 1), heads, false);
}

void cluster_behind(const PackedBf16Arguments& p, const int* left) {
  const Bf16Arguments& a = p.all;
  select(a, [&]<class Shape, bool kNormalize>(Shape, std::bool_constant<kNormalize>) {
    LaunchConfig config =
        launch_in_pairs<Shape>(extents_of(a), kBlockThreads, std::size_t(ClusterMemory<Shape>::kBytes));
    config.grid.z *= unsigned(p.N);
    launch(cluster_kernel<Shape, kNormalize, false, HeadsLeft>, config, a, raw_maps(a), WalkedHeads(), 0,
           HeadsLeft(p.cu_seqlens, left));
  });
}

void cluster(const Bf16Arguments& a) {
  cluster_behind(a, {});
}

}  // namespace tutorial::kda
