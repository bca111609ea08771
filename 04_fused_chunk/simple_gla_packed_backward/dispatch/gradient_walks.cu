/// @file
/// The kernels of `segments`, with the walk of `pipelined`, in the segments of packed sequences. A block takes its sequence
/// as a problem by itself. The row products q . dq and k . dk of all positions lie side by side, as the positions do.

#include <cuda_runtime.h>

#include "04_fused_chunk/simple_gla_backward/dispatch/pipelined_walk.cuh"
#include "04_fused_chunk/simple_gla_backward/segments.cuh"
#include "04_fused_chunk/simple_gla_packed_backward/dispatch/walks.hpp"
#include "common/device/launch.cuh"
#include "common/tile/carry_both_ways.cuh"
#include "common/tile/packed_gradient_part.cuh"
#include "common/tile/select_shape.cuh"
#include "common/tile/sequences_alone.cuh"

namespace tutorial::simple_gla {
namespace {

/// A block's segment, of a sequence that is a problem by itself.
struct Part {
  static constexpr int b = 0;
  int h, begin, end, first_column, columns;

  template <class Shape>
  __device__ __forceinline__ explicit Part(const PackedGradientPart<Shape>& part)
      : h(part.h),
        begin(part.begin - part.first),
        end(part.end - part.first),
        first_column(part.first_column),
        columns(part.columns) {}
};

/// What the kernels leave for each other.
struct Workspace {
  float *S, *dS;                   ///< [borders, H, Dk, Dv]: at the borders; dS / scale
  float *S_decays, *dS_decays;     ///< [borders, H]: of the segments before and behind the borders
  float *products, *end_products;  ///< RowProducts; [N, H, tiles, kWarps], the parts of <S_L, dfinal_state>

  static std::int64_t states(const PackedBf16BackwardArguments& p, const PackedPlan& plan) {
    return std::int64_t(plan.states) * p.all.H * p.all.Dk * p.all.Dv;
  }
  static std::int64_t elements(const PackedBf16BackwardArguments& p, const PackedPlan& plan) {
    const Bf16BackwardArguments& b = p.all;
    return 2 * states(p, plan) + 2 * std::int64_t(plan.states) * b.H + RowProducts::elements(b) +
           std::int64_t(p.N) * b.H * ceil_div(b.Dk, 64) * kWarps;
  }
  Workspace(const PackedBf16BackwardArguments& p, const PackedPlan& plan)
      : S(workspace<float>("simple_gla --backward: packed segments", std::size_t(elements(p, plan)))),
        dS(S + states(p, plan)),
        S_decays(dS + states(p, plan)),
        dS_decays(S_decays + std::int64_t(plan.states) * p.all.H),
        products(dS_decays + std::int64_t(plan.states) * p.all.H),
        end_products(products + RowProducts::elements(p.all)) {}
};

/// Kernel 1: at each border what the segment before it adds to S, or the one behind it to dS, and its decay. Grid
/// packed_grid() of the borders.
template <class Shape>
__global__ void __launch_bounds__(kThreads)
    packed_segment_states_kernel(Gradient all, PackedPlan plan, const std::int32_t* cu_seqlens, float* states,
                                 float* decays) {
  const PackedGradientPart<Shape> packed(extents_of(all.a), plan, cu_seqlens);
  if (packed.is_empty()) return;
  const Bf16Arguments a = packed.alone(all.a);
  const Part part(packed);
  const int begin = all.is_reversed ? part.end : part.begin;
  typename Shape::State S = {};
  const float decay =
      add_up_segment<Shape>(S, a, all.is_reversed, part, begin, (min(plan.length, a.L - begin) - 1) / kChunk + 1);
  store_state<Shape>(states + packed.state(extents_of(a), packed.entry), S, a.Dv, a.Dk, part.columns);
  if (threadIdx.x == 0 && part.first_column == 0) store_global(decays + packed.entry * a.H + part.h, decay);
}

/// Kernel 3: one gradient. Grid packed_grid() of all segments.
/// @param starts [borders, H, Dk, Dv], in the layout of the user's states
/// @param products the gradient's RowProducts, or null
/// @param end_state the factor of S at the end of the walk in `end_products`; its data is null if it is 0
template <class Shape>
__global__ void __launch_bounds__(kThreads, 2)
    packed_gradient_walk_kernel(Gradient all, PackedPlan plan, const std::int32_t* cu_seqlens, const float* starts,
                                float* products, View<const float> end_state, float* end_products) {
  const PackedGradientPart<Shape> packed(extents_of(all.a), plan, cu_seqlens);
  if (packed.is_empty()) return;
  Gradient g = all;
  g.a = packed.alone(all.a);
  if (g.partner.data) g.partner.data += packed.first * g.partner.stride_l;
  const Bf16Arguments& a = g.a;
  const Part part(packed);
  const int tile = part.first_column / Shape::kDv;
  if (products) products += (std::int64_t(tile) * a.H + part.h) * all.a.L + packed.first;
  typename Shape::State S;
  walk_pipelined<Shape>(S, g, part, products, [&](typename Shape::State& S) {
    const int border = packed.start_border(plan, g.is_reversed);
    const bool is_at_border = border >= 0;
    const StateStrides strides = g.strides(!is_at_border ? a.initial_state.stride_l : g.is_transposed ? a.Dk : a.Dv);
    const float* start = a.initial_state.data ? a.initial_state.row(0, part.h, 0) : nullptr;
    if (is_at_border) start = starts + (std::int64_t(border) * a.H + part.h) * a.Dk * a.Dv;
    load_state<Shape>(S, start ? start + part.first_column * strides.column : nullptr, strides, a.Dk, part.columns);
    scale_state<Shape>(S, is_at_border ? 1 : g.start_factor);
  });
  if (!packed.is_at_end(plan, g.is_reversed)) return;
  if (a.final_state.data) {
    scale_state<Shape>(S, a.scale);
    store_state<Shape>(a.final_state.row(0, part.h, 0) + part.first_column, S, a.final_state.stride_l, a.Dk,
                       part.columns);
  }
  if (end_state.data) {
    const float sum = multiply_by<Shape>(S, end_state.row(packed.sequence, part.h, 0), g.strides(end_state.stride_l),
                                         a.Dk, part.first_column, part.columns);
    const int tiles = (a.Dv - 1) / Shape::kDv + 1;
    const std::int64_t block = (std::int64_t(packed.sequence) * a.H + part.h) * tiles + tile;
    if (lane_index() == 0) store_global(end_products + block * kWarps + warp_index(), sum);
  }
}

/// Kernel 4: dg of a segment. Grid (entries, H).
__global__ void __launch_bounds__(32 * kGateWarps)
    packed_gate_gradient_kernel(Bf16BackwardArguments all, PackedPlan plan, const std::int32_t* cu_seqlens,
                                RowProducts products, Workspace x) {
  const int entry = int(blockIdx.x), h = int(blockIdx.y);
  const int4 segment = load_global(plan.segments + entry);
  if (segment.y == segment.z) return;
  const int first = load_global(cu_seqlens + segment.x), length = load_global(cu_seqlens + segment.x + 1) - first;
  const Bf16BackwardArguments a = sequence_of(all, segment.x, first, length);
  const std::int64_t before =
      first + std::int64_t(h) * (all.L - a.L);  // as head h of L positions is said to begin at h L
  products.read += before, products.written += before;
  const std::int64_t state = (std::int64_t(entry) * a.H + h) * a.Dk * a.Dv;
  const float* end_parts = x.end_products + (std::int64_t(segment.x) * a.H + h) * products.tiles * kWarps;
  compute_gate_gradient(a, products, 0, h, segment.y - first, segment.z - first,
                        entry < plan.states ? x.S + state : nullptr, x.dS + state,
                        a.dfinal_state.data ? end_parts : nullptr);
}

}  // namespace

void packed_gradient_walks(const PackedBf16BackwardArguments& p, PackedPlan plan) {
  const Bf16BackwardArguments& b = p.all;
  const std::array<Gradient, 3> gradients = gradients_of(b);
  const Workspace x(p, plan);
  const RowProducts products(b, x.products);
  plan.segments = list_segments(p.cu_seqlens, plan);
  if (plan.states > 0) {
    Gradient forwards = gradients[2];  // its k_t^T v_t, summed up, are S, those of gradients[2] dS / scale
    forwards.a.k = b.k, forwards.a.v = b.v, forwards.is_reversed = false;
    select_shape(b.Dk, [&]<class Shape>(Shape) {
      const LaunchConfig config{packed_grid<Shape>(extents_of(forwards.a), plan.states), kThreads,
                                2 * (StateTiles<Shape>::kBytes + SharedSums::kBytes)};
      launch(packed_segment_states_kernel<Shape>, config, forwards, plan, p.cu_seqlens, x.S, x.S_decays);
      launch(packed_segment_states_kernel<Shape>, config, gradients[2], plan, p.cu_seqlens, x.dS, x.dS_decays);
    });
    carry_both_ways(BorderStates<SegmentDecay>{b.initial_state, 1, x.S, {x.S_decays}},
                    BorderStates<SegmentDecay>{b.dfinal_state, 1 / b.scale, x.dS, {x.dS_decays}}, plan, b.H, b.Dk,
                    b.Dv);
  }
  for (int i = 0; i < 3; ++i) {
    const Gradient& gradient = gradients[i];
    const auto start = [&]<class Shape>(Shape) {
      launch(packed_gradient_walk_kernel<Shape>,
             {packed_grid<Shape>(extents_of(gradient.a), plan.entries()), kThreads, kSharedBytes<Shape>}, gradient,
             plan, p.cu_seqlens, i == 0 ? x.S : x.dS, products.of(i), i == 0 ? b.dfinal_state : View<const float>{},
             x.end_products);
    };
    gradient.a.Dk <= 64 ? start(ChunkShape<64, 64>()) : start(ChunkShape<128, 64>());
  }
  launch(packed_gate_gradient_kernel, {dim3(unsigned(plan.entries()), unsigned(b.H)), 32 * kGateWarps}, b, plan,
         p.cu_seqlens, products, x);
  hand_states_on(p);
}

std::int64_t packed_gradient_walks_memory(const PackedBf16BackwardArguments& p, const PackedPlan& plan) {
  return std::int64_t(sizeof(float)) * Workspace::elements(p, plan) + std::int64_t(sizeof(int4)) * plan.entries();
}

}  // namespace tutorial::simple_gla
