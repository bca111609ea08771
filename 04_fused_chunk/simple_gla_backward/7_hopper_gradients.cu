/// @file
/// Stage 7, `hopper_gradients`: the three walks by warpgroups, in one launch.

#include <cuda_runtime.h>

#include <string>

#include "04_fused_chunk/simple_gla/launch_plan.hpp"
#include "04_fused_chunk/simple_gla/warpgroup_gate.cuh"
#include "04_fused_chunk/simple_gla_backward.hpp"
#include "04_fused_chunk/simple_gla_backward/chained_runs.cuh"
#include "04_fused_chunk/simple_gla_backward/cut.hpp"
#include "04_fused_chunk/simple_gla_backward/gradients.hpp"
#include "04_fused_chunk/simple_gla_backward/segments.cuh"
#include "common/device/error.hpp"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/launch.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/registers.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::simple_gla {
namespace {

using namespace tile;

constexpr int kPipelineDepth = 4;       // chunks in shared memory
constexpr int kDepth = 2;               // outputs with their partners, and Q S in fp32, in shared memory
constexpr int kBlock = 4 * kWarpgroup;  // threads
constexpr int kMostHeads = 1 << 20;     // of at most six walks, in fewer than 300 runs

template <class Shape>
constexpr std::size_t kSharedBytes =
    kPipelineDepth*(ChunkTiles<Shape>::kBytes + ChunkDecays::kBytes) + kDepth*(PanelTile<64>::kPanelBytes +
                                                                               TransposedSums::kBytes);

/// A gradient with its tensor maps.
struct MappedGradient {
  Gradient gradient;
  ChunkMaps maps;
  TensorMap output, partner;
};

struct GradientWalks {
  MappedGradient of[3];
  Runs runs;
  float* products[3];           ///< the gradients' RowProducts, or null
  View<const float> end_state;  ///< what S is multiplied with at the end of the walk of dq; its data is null if it is 0
  float* end_products;          ///< a part of this product per warp: [B, H, tiles, kWarps]
};

/// Grid: all blocks; RunPart says which gradient, columns, head and run a block has.
template <class Shape>
__global__ void __launch_bounds__(kBlock, 1) gradient_walks_kernel(const __grid_constant__ GradientWalks walks) {
  __shared__ Barrier full[kPipelineDepth], empty[kPipelineDepth];
  __shared__ Barrier state_full[kDepth], state_empty[kDepth], output_full[kDepth], partner_full[kDepth];
  __shared__ int number;
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
    fence_barrier_init();
    number = walks.runs.take();
  }
  __syncthreads();
  const Runs& runs = walks.runs;
  const RunPart part(runs, number, walks.of);
  const MappedGradient& mapped = walks.of[part.which];
  const Gradient& gradient = mapped.gradient;
  const Bf16Arguments& a = gradient.a;
  const bool is_reversed = gradient.is_reversed;
  const int b = part.b, h = part.h, first_column = part.first_column, columns = part.columns, N = part.chunks;
  const int step = is_reversed ? -kChunk : kChunk, start = part.begin + (is_reversed ? (N - 1) * kChunk : 0);

  const int group = int(threadIdx.x) / kWarpgroup;
  if (group < 2) {
    decrease_registers<120>();
    float* products = walks.products[part.which];
    if (products) products += (std::int64_t(part.tile) * a.B * a.H + part.head) * a.L;
    auto ring = Ring<kPipelineDepth>::consumer();
    auto output_ring = Ring<kDepth>::consumer();  // of partners, whose places the outputs take
    auto state_ring = Ring<kDepth>::consumer();
    for (int n = 0; n < N; ++n) {
      if (n % 2 == group) {
        const int t = start + n * step;
        const ChunkTiles<Shape> tiles = tiles_of(ring.stage());
        const ChunkDecays decays = decays_of(ring.stage());
        WarpgroupScores scores;
        ring.wait(full);
        wgmma_fence(scores);
        start_scores(scores, tiles.Q, tiles.K);
        wgmma_commit();
        wgmma_wait<0>(scores);
        ScoreFragments p;
        is_reversed ? decay_transposed_scores(p, scores, decays, a.scale) : decay_scores(p, scores, decays, a.scale);
        WarpgroupOutput O;
        wgmma_fence(O, p);
        start_output_from_scores(O, p, tiles.V);
        wgmma_commit();
        state_ring.wait(state_full);
        wgmma_wait<0>(O, p);
        from_state_of(state_ring.stage()).add_to(O, decays.from_start_of_rows());
        __syncwarp();
        if (lane_index() == 0) empty[ring.stage()].arrive();
        if (lane_index() == 0) state_empty[state_ring.stage()].arrive();
        const PanelTile<64> output = panel(output_ring.stage());
        output_ring.wait(partner_full);
        if (products) store_row_products(products + t, a.L - t, output, O);
        put_rows(output, O);
        fence_async_proxy();
        __syncwarp();
        if (lane_index() == 0) output_full[output_ring.stage()].arrive();
      }
      ring.advance();
      output_ring.advance();
      state_ring.advance();
    }
  } else if (group == 2) {
    decrease_registers<40>();
    const int thread = int(threadIdx.x) % kWarpgroup;
    if (thread < 32) {
      auto ring = Ring<kPipelineDepth>::producer();
      for_each_chunk_with_g(a, b, h, start, step, N, a.L, [&](int t, float2 g) {
        ring.wait(empty);
        if (thread == 0) {
          full[ring.stage()].arrive_expect(ChunkTiles<Shape>::kBytes);
          load_chunk(tiles_of(ring.stage()), mapped.maps, full[ring.stage()], b, h, t, first_column);
        }
        decays_of(ring.stage()).store(ChunkSums(g), a.scale, is_reversed);
        __syncwarp();
        if (thread == 0) full[ring.stage()].arrive();
        ring.advance();
      });
    } else if (thread == 32) {
      const auto load_partner = [&](int n) {
        Barrier& barrier = partner_full[n % kDepth];
        if (!gradient.partner.data) return barrier.arrive();
        barrier.arrive_expect(PanelTile<64>::kPanelBytes);
        load_tile(mapped.partner, panel(n % kDepth).data, barrier,
                  {.column = first_column, .position = start + n * step, .head = h, .batch = b});
      };
      for (int n = 0; n < min(N, kDepth); ++n) load_partner(n);
      auto output_ring = Ring<kDepth>::consumer();
      for (int n = 0; n < N; ++n) {
        output_ring.wait(output_full);
        store_tile(mapped.output, panel(output_ring.stage()).data,
                   {.column = first_column, .position = start + n * step, .head = h, .batch = b});
        commit_stores();
        wait_stores_read<0>();
        if (n + kDepth < N) load_partner(n + kDepth);
        output_ring.advance();
      }
    }
  } else {
    increase_registers<224>();
    const int heads = a.B * a.H, size = a.Dk * a.Dv;
    const std::int64_t place = std::int64_t(part.head) * (runs.cut.plan.segments - 1);  // of the head's first border
    const bool is_S = part.which == 0;
    // Hidden, so that the addresses of all elements are not kept in registers during the walk.
    const auto carried_strides = [&] {
      return gradient.strides(hide_from_compiler(gradient.is_transposed ? a.Dk : a.Dv));
    };
    WarpgroupState<Shape::kDk> S;
    if (part.first == 0) {
      const StateStrides strides = gradient.strides(a.initial_state.stride_l);
      const float* from = a.initial_state.data ? a.initial_state.row(b, h, 0) + first_column * strides.column : nullptr;
      load_group_state<Shape::kDk>(S, from, strides, a.Dk, columns);
#pragma unroll
      for (float& element : S) element *= gradient.start_factor;
    } else {
      const StateStrides carried = carried_strides();
      const std::int64_t before = place + part.first - 1;
      const int writers = ((is_S ? a.Dv : walks.of[2].gradient.a.Dv) - 1) / 64 * 4 + 4;
      if (!runs.cut.are_given) wait_for_state(runs.flags(is_S, heads, before), writers);
      load_written_state<Shape::kDk>(S, runs.state(is_S, before, size) + first_column * carried.column, carried, a.Dk,
                                     columns);
    }
    auto ring = Ring<kPipelineDepth>::consumer();
    auto state_ring = Ring<kDepth>::producer();
    RoundedState<Shape::kDk> s;
    for (int order = part.first; order <= part.last; ++order) {
      for (int n = part.chunks_of(runs, a.L, order, is_reversed); n > 0; --n) {
        const ChunkTiles<Shape> tiles = tiles_of(ring.stage());
        const ChunkDecays decays = decays_of(ring.stage());
        ring.wait(full);
        WarpgroupOutput from_state;
        round_state<Shape::kDk>(s, S);
        wgmma_fence(from_state, s);
        start_output_from_state<Shape::kDk>(from_state, s, tiles.Q);
        wgmma_commit();
        wgmma_wait<1>(S);  // done already; without it the compiler would wait for S^T Q^T before it touches S
        decay_state(S, decays.whole());
        ValueFragments v;
        load_decayed_values(v, tiles.V, decays);
        wgmma_fence(S, v);
        start_state_update<Shape::kDk>(S, v, tiles.K);
        wgmma_commit();
        state_ring.wait(state_empty);
        wgmma_wait<1>(from_state, s);
        from_state_of(state_ring.stage()).put(from_state);
        __syncwarp();
        if (lane_index() == 0) state_full[state_ring.stage()].arrive();
        state_ring.advance();
        wgmma_wait<0>(S, v);
        if (lane_index() == 0) empty[ring.stage()].arrive();
        ring.advance();
      }
      if (runs.cut.are_given || part.which == 1 || order == runs.cut.plan.segments - 1) continue;
      const StateStrides carried = carried_strides();
      float* to = runs.state(is_S, place + order, size) + first_column * carried.column;
      store_group_state<Shape::kDk>(to, S, carried, hide_from_compiler(a.Dk), hide_from_compiler(columns));
      if (order < part.last) continue;
      __syncwarp();
      unsigned* flags = runs.flags(is_S, heads, place + order);
      if (lane_index() == 0) store_release(flags + part.tile * 4 + warp_in_group(), 1u);
    }
    if (part.last < runs.cut.plan.segments - 1) return;
    if (is_S && walks.end_state.data) {
      const StateStrides end = gradient.strides(walks.end_state.stride_l);
      float sum = 0;
      for_each_state_element<Shape::kDk>(
          S, walks.end_state.row(b, h, 0) + first_column * end.column, end, a.Dk, columns,
          [&](float& element, const float* address) { sum += element * load_global(address); });
      sum = warp_sum(sum);
      const std::int64_t block = std::int64_t(part.head) * ((a.Dv - 1) / 64 + 1) + part.tile;
      if (lane_index() == 0) store_global(walks.end_products + block * 4 + warp_in_group(), sum);
    }
    if (a.final_state.data) {
#pragma unroll
      for (float& element : S) element *= a.scale;
      store_group_state<Shape::kDk>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk,
                                    columns);
    }
  }
}

}  // namespace

void walk_in_runs(const Bf16BackwardArguments& b, const Cut& cut) {
  const Segments segments(b, cut.plan);
  if (cut.are_given) segments.compute_states();
  Runs runs{cut, segments.S, segments.dS};
  const int heads = b.B * b.H;
  if (const std::int64_t words = runs.words(heads); words > 0) {
    runs.counter = workspace<unsigned>("simple_gla --backward: runs", std::size_t(words));
    check(cudaMemsetAsync(runs.counter, 0, sizeof(unsigned) * std::size_t(words), current_stream()));
  }
  const auto mapped = [&](int i) {
    const Gradient& g = segments.gradients[i];
    const View<const __nv_bfloat16> partner = g.partner.data ? g.partner : g.a.v;
    return MappedGradient{g, chunk_maps(g.a), output_map(g.a), tile_map(partner, tensor_sizes(g.a, g.a.Dv), kChunk)};
  };
  const GradientWalks walks{{mapped(0), mapped(1), mapped(2)},
                            runs,
                            {segments.products.of(0), segments.products.of(1), segments.products.of(2)},
                            b.dfinal_state,
                            segments.end_products};
  const int blocks = heads * (2 * ceil_div(b.Dk, 64) + ceil_div(b.Dv, 64)) * cut.runs();
  const auto start = [&]<class Shape>(Shape) {
    launch(gradient_walks_kernel<Shape>, {unsigned(blocks), kBlock, kSharedBytes<Shape>}, walks);
  };
  b.Dk <= 64 && b.Dv <= 64 ? start(PanelShape<64, 64>()) : start(PanelShape<128, 64>());
  segments.compute_gate_gradient();
}

void hopper_gradients_backward(const Bf16BackwardArguments& b) {
  walk_in_runs(b, fastest_cut(b));
}

std::string hopper_gradients_backward_unsupported(const Bf16BackwardArguments& b) {
  if (const std::string reason = gradients_unsupported(b); !reason.empty()) return reason;
  for (const Gradient& gradient : gradients_of(b)) {
    if (const std::string reason = specialized_unsupported(gradient.a); !reason.empty()) return reason;
  }
  if (std::int64_t(b.B) * b.H > kMostHeads) return "B H > 2^20: blocks are counted in int";
  return "";
}

std::string hopper_gradients_backward_note(const Bf16BackwardArguments& b) {
  const Cut cut = fastest_cut(b);
  return std::to_string(cut.plan.segments) + " segments in " + std::to_string(cut.runs()) + " runs" +
         (cut.are_given ? ", states first" : "");
}

std::int64_t hopper_gradients_backward_memory(const Bf16BackwardArguments& b) {
  const Cut cut = fastest_cut(b);
  const std::int64_t words = Runs{cut}.words(std::int64_t(b.B) * b.H);
  return segments_memory(b, cut.plan) + std::int64_t(sizeof(unsigned)) * words;
}

}  // namespace tutorial::simple_gla
