/// @file
/// Stage 5, `hopper_gradients`: the three walks by warpgroups, in one launch.
///
/// Idea: each gradient is the operator on other inputs, so the kernel is `register_scores` of the operator with a
/// direction. One launch has all three walks. A segment does not need states computed before: the walk is cut into runs
/// of segments, and each run begins with the state that the run before it has left. Each multiprocessor has one block,
/// which takes runs until there are none (chained_runs.cuh). It loads the first chunks of a run while it computes the
/// last of the run before. Where there are few heads, a launch before computes the states, of both directions at once,
/// as `dispatch` of the operator does (border_states.cuh).
///
///     scores   | n: Q K^T | P or P^T in registers | P V | += Q S | O to shared memory | rows times q or k: dg |
///     state    | n: V to registers, S^T Q^T | under it S = 2^b_end S, V~ | V~^T K | under it Q S to shared memory |
///     copies   | q or k for n + 2 into the tile that O of n has left | O from there to memory ................ |
///
/// Grows out of: 04_fused_chunk/simple_gla/5_register_scores.cu; large step: stages in between would launch the walks one
/// by one, on states from a kernel before, then all at once, then in runs; only the last is fast, and each needs the
/// direction, dg and the borders of segments
/// Improves on: `pipelined` computes with warps that wait for their operands, in three launches. Its segments need all
/// of q, k, v and do once more, for the states at their borders.
/// Unchanged: the roles and the products of `register_scores`; segments and the sum for dg of `segments`. The walks of
/// dq and dk compute the same R and round it to the same bits, although one computes R and the other R^T.
/// Equation: that of `walks`. From the end, P^T_it = scale (q_t . k_i) 2^(b_t - b_i) for t >= i. The decays from the
/// state and into the state change places.
/// Shapes: as `segments`. The row products with q or k are those of O in fp32. A tile of q or k arrives in the place
/// that O takes afterwards, so it costs no shared memory.
/// Thread mapping: as `register_scores`. A run is about 64 columns of one gradient of one head. The runs of a head are
/// neighbours, so their blocks read the same chunks at about the same time: the two of dq, and the four of dk and dv.
/// In the loading warpgroup one warp adds up gates. A thread of another warp loads q and k for the row products and
/// stores O by bulk copies, and one of a third warp takes runs and loads tiles.
/// Synchronization: as `register_scores`. `partner_full` says that the tile of q or k has come, which also says that O
/// of two chunks before has left. `taken` hands the numbers of runs to all warps; barriers and their phases go on from
/// run to run. A run waits for flags of the warps that wrote its first state.
/// Registers: 128 per thread of the scores, 208 per thread of the state, 48 in the loading warpgroup.
/// Resources: 214 KB of shared memory at Dk = Dv = 128, one block per multiprocessor.
/// Work: as `walks`. The walk of dv computes row products, too, which are not used: without them it would be faster than
/// that of dk, and the two would soon read different chunks, each from memory.
/// Bytes: q, k, v and do once for dq, and once for dk and dv together, if the blocks of a head share what they read;
/// each gradient once. That is 2816 bytes per position at Dk = Dv = 128, and 8 Dk Dv bytes for each border of segments.
/// If states are computed first, most of q, k, v and do are read a third time.
/// Bound by: what a multiprocessor does for a chunk, some 2100 clocks, and with 32 heads of L = 16384 a clock that falls
/// to 1.7 GHz.
/// Requires: compute capability 9.0, Dk and Dv up to 128 and multiples of 16, tensors that a tensor map can describe.
/// Weakness: dk and dv compute dS twice, and dq reads what dk and dv read at another time.
/// Sources: as `segments`; 06_scan/scan/7_single_pass.cu for blocks that wait for their predecessors.

#include <cuda_runtime.h>

#include <algorithm>

#include "04_fused_chunk/simple_gla/chunk_decays.cuh"
#include "04_fused_chunk/simple_gla/decayed_values.cuh"
#include "04_fused_chunk/simple_gla_backward.hpp"
#include "04_fused_chunk/simple_gla_backward/border_states.cuh"
#include "04_fused_chunk/simple_gla_backward/chained_runs.cuh"
#include "04_fused_chunk/simple_gla_backward/cut.hpp"
#include "04_fused_chunk/simple_gla_backward/gradients.hpp"
#include "04_fused_chunk/simple_gla_backward/segments.cuh"
#include "04_fused_chunk/simple_gla_backward/warpgroup_gradient.cuh"
#include "common/device/device.hpp"
#include "common/device/launch.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/registers.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::simple_gla {
namespace {

using namespace tile;

constexpr int kPipelineDepth = 4;       // chunks in shared memory
constexpr int kDepth = 2;               // outputs with their partners, and Q S in fp32, in shared memory
constexpr int kBlock = 4 * kWarpgroup;  // threads

template <class Shape>
constexpr std::size_t kSharedBytes = kPipelineDepth*(ChunkTiles<Shape>::kBytes + ChunkDecays::kBytes) +
                                     (PanelTile<64>::kPanelBytes + TransposedSums::kBytes) * kDepth;

/// Grid: at most as many blocks as multiprocessors. They take the runs in order; RunPart says which gradient, columns
/// and head a run has.
template <class Shape>
__global__ void __launch_bounds__(kBlock, 1) gradient_walks_kernel(const __grid_constant__ GradientWalks walks) {
  __shared__ Barrier full[kPipelineDepth], empty[kPipelineDepth];
  __shared__ Barrier state_full[kDepth], state_empty[kDepth], output_full[kDepth], partner_full[kDepth];
  __shared__ TakenRuns taken;
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int stage) { return ChunkTiles<Shape>(memory + stage * ChunkTiles<Shape>::kBytes); };
  const auto panel = [&](int number) {
    return PanelTile<64>{reinterpret_cast<__nv_bfloat16*>(memory + kPipelineDepth * ChunkTiles<Shape>::kBytes +
                                                          number * int(PanelTile<64>::kPanelBytes))};
  };
  const auto from_state_of = [&](int stage) { return TransposedSums(panel(kDepth).data, stage); };
  const auto decays_of = [&](int stage) { return ChunkDecays(from_state_of(kDepth).data, stage); };

  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(2);       // one for the bytes, one for the decays
    for (Barrier& barrier : empty) barrier.init(4 + 4);  // the warps of the chunk's scores, and those of the state
    for (int i = 0; i < kDepth; ++i) state_full[i].init(4), state_empty[i].init(4);
    for (Barrier& barrier : output_full) barrier.init(4);
    for (Barrier& barrier : partner_full) barrier.init(1);
    taken.init(4 + 4 + 2 + 4);  // warps of scores, decays, outputs, the state
    fence_barrier_init();
  }
  __syncthreads();

  const int group = uniform(int(threadIdx.x) / kWarpgroup);
  if (group < 2) {
    decrease_registers<128>();
    const PanelTile<64> output = panel(group);  // the group's place in all runs
    const TransposedSums from_state = from_state_of(group);
    int before = 0;  // chunks of the runs before
    for_each_run(walks, taken, [&](const RunPart& part) {
      const Bf16Arguments& a = walks.of[part.which].gradient.a;
      float* products = walks.products[part.which] + (std::int64_t(part.tile) * a.B * a.H + part.head) * a.L;
      const int stored = walks.of[part.which].gradient.partner.data ? a.L : 0;  // dv has none that anybody needs
      for (int n = (before + group) % kDepth; n < part.chunks; n += kDepth) {
        const auto ring = Ring<kPipelineDepth>::consumer(before + n);
        const auto own_ring = Ring<kDepth>::consumer(before + n);  // its stage is the group
        const int t = part.start + n * part.step;
        const ChunkTiles<Shape> tiles = tiles_of(ring.stage());
        const ChunkDecays decays = decays_of(ring.stage());
        WarpgroupScores scores;
        ring.wait(full);
        wgmma_fence(scores);
        start_scores(scores, tiles.Q, tiles.K);
        wgmma_commit();
        wgmma_wait<0>(scores);
        ScoreFragments p;
        part.is_reversed() ? decay_transposed_scores(p, scores, decays, a.scale)
                           : decay_scores(p, scores, decays, a.scale);
        const float2 own = take_own_scores(p, scores);
        WarpgroupOutput O;
        wgmma_fence(O, p);
        start_output_from_scores(O, p, tiles.V);
        wgmma_commit();
        own_ring.wait(state_full);
        wgmma_wait<0>(O, p);
        from_state.add_to(O, decays.from_start_of_rows());
        RowFragments values, rows;  // rows: of q or k, and in the walk of dv whatever is there
        const int unit = first_unit_of_rows(fresh_lane());
        load_rows(values, tiles.V, unit);
        __syncwarp();
        if (lane_index() == 0) empty[ring.stage()].arrive(), state_empty[group].arrive();
        own_ring.wait(partner_full);
        load_rows(rows, output, unit);
        __syncwarp();
        // Before the products: the next q or k waits until O has left this place.
        put_rows_with(output, O, own, values, unit);
        fence_async_proxy();
        __syncwarp();
        if (lane_index() == 0) output_full[group].arrive();
        store_row_products(products + t, stored - t, rows, O);
      }
      before += part.chunks;
    });
  } else if (group == 2) {
    decrease_registers<48>();
    const int warp = warp_in_group(), lane = int(lane_index());
    if (warp == 0) {
      auto ring = Ring<kPipelineDepth>::producer();
      for_each_run(walks, taken, [&](const RunPart& part) {
        const Bf16Arguments& a = walks.of[part.which].gradient.a;
        for_each_chunk_with_g(a, part.b, part.h, part.start, part.step, part.chunks, a.L, [&](int t, float2 g) {
          ring.wait(empty);
          const ChunkDecays decays = decays_of(ring.stage());
          decays.store(ChunkSums(g), a.scale, part.is_reversed());
          if (part.which == 0 && a.L - t <= kChunk) leave_out_of_state(decays, a.L - 1 - t);  // S_L is for dg alone
          __syncwarp();
          if (lane == 0) full[ring.stage()].arrive();
          ring.advance();
        });
      });
    } else if (warp == 1 && lane == 0) {
      auto output_ring = Ring<kDepth>::consumer();
      auto partner_ring = output_ring;
      for_each_run<false>(walks, taken, [&](const RunPart& part) {
        const MappedGradient& mapped = walks.of[part.which];
        const auto origin = [&](int n) {
          return TileOrigin{
              .column = part.first_column, .position = part.start + n * part.step, .head = part.h, .batch = part.b};
        };
        const auto load_partner = [&](int n) {
          Barrier& barrier = partner_full[partner_ring.stage()];
          if (mapped.gradient.partner.data) {
            barrier.arrive_expect(PanelTile<64>::kPanelBytes);
            load_tile(mapped.partner, panel(partner_ring.stage()).data, barrier, origin(n));
          } else {
            barrier.arrive();
          }
          partner_ring.advance();
        };
        for (int n = 0; n < min(part.chunks, kDepth); ++n) load_partner(n);
        for (int n = 0; n < part.chunks; ++n) {
          output_ring.wait(output_full);
          store_tile(mapped.output, panel(output_ring.stage()).data, origin(n));
          commit_stores();
          wait_stores_read<0>();
          if (n + kDepth < part.chunks) load_partner(n + kDepth);
          output_ring.advance();
        }
      });
    } else if (warp == 2 && lane == 0) {
      auto ring = Ring<kPipelineDepth>::producer();
      take_runs(walks, taken, [&](const RunPart& part) {
        for (int n = 0; n < part.chunks; ++n) {
          ring.wait(empty);
          fence_async_proxy();  // V has been read by ldmatrix
          full[ring.stage()].arrive_expect(ChunkTiles<Shape>::kBytes);
          load_chunk(tiles_of(ring.stage()), walks.of[part.which].maps, full[ring.stage()], part.b, part.h,
                     part.start + n * part.step, part.first_column);
          ring.advance();
        }
      });
    }
  } else {
    increase_registers<208>();
    WarpgroupState<Shape::kDk> S;
    RoundedState<Shape::kDk> s;
    const int values_unit = hide_from_compiler(first_unit_of_columns());
    int chunk = 0;  // of those of all runs
    for_each_run(walks, taken, [&](const RunPart& part) {
      load_start<Shape::kDk>(S, walks, part);
      for (int order = part.first; order <= part.last; ++order) {
        // Where the compiler knows that all lanes take the same steps, it computes addresses once for a warp.
        for (int n = uniform(part.chunks_of(walks, order)); n > 0; --n, ++chunk) {
          const auto ring = Ring<kPipelineDepth>::consumer(chunk);
          const auto state_ring = Ring<kDepth>::producer(chunk);
          const ChunkTiles<Shape> tiles = tiles_of(ring.stage());
          const ChunkDecays decays = decays_of(ring.stage());
          ring.wait(full);
          ValueFragments v;
          load_values(v, tiles.V, values_unit);
          ValueFactors into_state;
          load_factors(into_state, decays);
          const float whole = decays.whole();
          WarpgroupOutput from_state;
          round_state<Shape::kDk>(s, S);
          wgmma_fence(from_state, s);
          start_output_from_state<Shape::kDk>(from_state, s, tiles.Q);
          wgmma_commit();
          wgmma_wait<1>(S);  // done already; without it the compiler would wait for S^T Q^T before it touches S
          decay_values(v, into_state);
          decay_state(S, whole);
          wgmma_fence(S, v);
          start_state_update<Shape::kDk>(S, v, tiles.K);
          wgmma_commit();
          state_ring.wait(state_empty);
          wgmma_wait<1>(from_state, s);
          from_state_of(state_ring.stage()).put(from_state);
          __syncwarp();
          if (lane_index() == 0) state_full[state_ring.stage()].arrive();
          wgmma_wait<0>(S, v);
          if (lane_index() == 0) empty[ring.stage()].arrive();
        }
        pass_on_state<Shape::kDk>(S, walks, part, order);
      }
      if (part.last == walks.runs.cut.plan.segments - 1) finish_walk<Shape::kDk>(S, walks, part);
    });
    prefetch_states(walks);
  }
}

}  // namespace

void walk_in_runs(const Bf16BackwardArguments& b, const Cut& cut) {
  const Segments segments(b, cut.plan);
  const GradientWalks walks = make_walks(segments, cut);
  if (cut.are_given) {
    b.Dk <= 64 ? compute_states<PanelShape<64, 64>>(segments) : compute_states<PanelShape<128, 64>>(segments);
  }
  const auto start = [&]<class Shape>(Shape) {
    const auto blocks = unsigned(std::min(walks.count, multiprocessor_count()));
    launch(gradient_walks_kernel<Shape>, {blocks, kBlock, kSharedBytes<Shape>}, walks);
  };
  b.Dk <= 64 && b.Dv <= 64 ? start(PanelShape<64, 64>()) : start(PanelShape<128, 64>());
  segments.compute_gate_gradient(walks.runs.counter, walks.words());
}

void hopper_gradients_backward(const Bf16BackwardArguments& b) {
  walk_in_runs(b, fastest_cut(b));
}

}  // namespace tutorial::simple_gla
