#pragma once
/// @file
/// What the walks in segments need besides the walks: the states at the borders of segments, and dg of each segment.

#include <cuda_runtime.h>

#include <cstdint>

#include "04_fused_chunk/simple_gla_backward/gate_gradient.cuh"
#include "04_fused_chunk/simple_gla_backward/gradients.hpp"
#include "04_fused_chunk/simple_gla_backward/segment_plan.hpp"
#include "common/ceil_div.hpp"
#include "common/device/launch.cuh"
#include "common/device/workspace.hpp"
#include "common/tile/block_part.cuh"
#include "common/tile/carry.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/load_tile.cuh"
#include "common/tile/select_shape.cuh"
#include "common/tile/state.cuh"

namespace tutorial::simple_gla {
namespace {

using namespace tile;

/// Adds up what a segment adds to S or S'. Returns its decay.
/// @param g,part,columns of the walk, see the kernels @param begin,N the segment's first position and its chunks
template <class Shape, class Part>
__device__ __forceinline__ float add_up_segment(typename Shape::State& S, const Bf16Arguments& a, bool is_reversed,
                                                const Part& part, int begin, int N) {
  float decay = 1;
  for (int i = 0; i < N; ++i) {
    const int t = begin + (is_reversed ? N - 1 - i : i) * kChunk;
    auto* memory = dynamic_shared<__nv_bfloat16>() + i % 2 * (StateTiles<Shape>::kElements + 2 * kChunk);
    const StateTiles<Shape> tiles(memory);  // two sets: a warp may load the next while another computes on this one
    const SharedSums sums{reinterpret_cast<float*>(memory + StateTiles<Shape>::kElements)};
    load_tile(tiles.K, a.k.row(part.b, part.h, t), a.k.stride_l, a.L - t, a.Dk);
    load_tile(tiles.V, a.v.row(part.b, part.h, t) + part.first_column, a.v.stride_l, a.L - t, part.columns);
    if (threadIdx.x < 32) sums.store(ChunkSums(load_g(a, part.b, part.h, t, a.L)));
    __syncthreads();
    const DirectedDecays directed(sums, is_reversed, a.L - 1 - t);
    update_state<Shape>(S, tiles.K, tiles.V, directed);
    decay *= directed.whole;
  }
  return decay;
}

/// What a segment adds to S or S', for all segments but the last of the walk. Grid (tiles of Dv of these segments, H,
/// B).
/// @param g k and v in the places of q and do for S, dv for S'
/// @param states,decays in the order of the walk: [B, H, segments - 1, Dk, Dv], [B, H, segments - 1]
template <class Shape>
__global__ void __launch_bounds__(kThreads)
    segment_states_kernel(Gradient g, LaunchPlan plan, float* states, float* decays) {
  const Bf16Arguments& a = g.a;
  const BlockPart<Shape> part(extents_of(a), plan.length, int(blockIdx.x));
  const int segment = part.segment + (g.is_reversed ? 1 : 0), begin = segment * plan.length;
  const int N = (min(plan.length, a.L - begin) - 1) / kChunk + 1;
  typename Shape::State S = {};
  const float decay = add_up_segment<Shape>(S, a, g.is_reversed, part, begin, N);
  const int order = g.is_reversed ? plan.segments - 1 - segment : segment;
  const std::int64_t place = std::int64_t(part.head) * (plan.segments - 1) + order;
  store_state<Shape>(states + place * a.Dk * a.Dv + part.first_column, S, a.Dv, a.Dk, part.columns);
  if (threadIdx.x == 0 && part.first_column == 0) store_global(decays + place, decay);
}

/// <S, dS> in a part per warp, by all kBlock threads of the block, four elements at a time. A barrier must follow.
/// @param S,dS packed, of `size` elements, a multiple of 256; aligned to 16 bytes
/// @param parts [kBlock / 32] in shared memory
template <int kBlock>
__device__ __forceinline__ void multiply_states(const float* S, const float* dS, int size, float* parts) {
  const auto four = [](const float* from) { return load_for_update(reinterpret_cast<const float4*>(from)); };
  float sum = 0;
#pragma unroll 4
  for (int i = 4 * int(threadIdx.x); i < size; i += 4 * kBlock) {
    const float4 x = four(S + i), y = four(dS + i);
    sum += x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w;
  }
  sum = warp_sum(sum);
  if (lane_index() == 0) parts[warp_index()] = sum;
}

constexpr int kGateWarps = kLongest / kChunk;  // of a block that computes dg: one for each chunk of a segment

/// dg of a segment. Each warp adds up a chunk, and then the sums of the chunks behind its own.
/// @param begin,end of the segment
/// @param S,dS the states at its end, whose product dg behind it is; null: it is the last one
/// @param end_parts then the parts of <S_L, dfinal_state>; null: it is 0
__device__ __forceinline__ void compute_gate_gradient(const Bf16BackwardArguments& a, const RowProducts& products,
                                                      int b, int h, int begin, int end, const float* S, const float* dS,
                                                      const float* end_parts) {
  __shared__ float parts[kGateWarps], chunks[kGateWarps];
  const int warp = warp_index(), count = (end - begin - 1) / kChunk + 1;
  const SumsFromEnd sums(a, products, b, h, begin + min(warp, count - 1) * kChunk);
  const float whole = sums.whole();
  if (lane_index() == 0) chunks[warp] = whole;
  if (S) multiply_states<32 * kGateWarps>(S, dS, a.Dk * a.Dv, parts);
  __syncthreads();
  if (warp >= count) return;
  float dg = 0;
  if (S) {
    dg = a.scale * warp_sum(parts[lane_index()]);
  } else if (end_parts) {
    for (int i = 0; i < products.tiles * kWarps; ++i) dg += load_global(end_parts + i);
  }
  for (int chunk = count - 1; chunk > warp; --chunk) dg += chunks[chunk];
  sums.store(a, b, h, dg);
}
static_assert(kGateWarps == 32);  // a lane for each part of a product of states

/// dg of all segments. Grid (segments, H, B).
/// @param S,dS the carried states, those of dS / scale in the order of its walk
/// @param end_products as above
/// @param words of zeros that the walks have changed, `word_count` of them: zeros again for the next call
__global__ void __launch_bounds__(32 * kGateWarps)
    gate_gradient_kernel(Bf16BackwardArguments a, LaunchPlan plan, const float* S, const float* dS,
                         RowProducts products, const float* end_products, unsigned* words, std::int64_t word_count) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), segment = int(blockIdx.x), size = a.Dk * a.Dv;
  const std::int64_t head = std::int64_t(b) * a.H + h, borders = plan.segments - 1;
  const std::int64_t word = (head * plan.segments + segment) * 32 * kGateWarps + threadIdx.x;
  if (word < word_count) store_global(words + word, 0u);
  const int begin = segment * plan.length;
  compute_gate_gradient(a, products, b, h, begin, begin + min(plan.length, a.L - begin),
                        segment < borders ? S + (head * borders + segment) * size : nullptr,
                        dS + (head * borders + borders - 1 - segment) * size,
                        a.dfinal_state.data ? end_products + head * products.tiles * kWarps : nullptr);
}

/// A problem in segments, on the host.
struct Segments {
  Bf16BackwardArguments b;
  std::array<Gradient, 3> gradients;
  LaunchPlan plan;
  float *S, *dS;  ///< the carried states, [B, H, segments - 1, Dk, Dv]; dS / scale in the order of its walk
  RowProducts products;
  float* end_products;  ///< [B, H, tiles, kWarps]: the parts of <S_L, dfinal_state>

  Segments(const Bf16BackwardArguments& b, const LaunchPlan& plan)
      : b(b),
        gradients(gradients_of(b)),
        plan(plan),
        S(workspace<float>("simple_gla --backward: segments", std::size_t(segments_memory(b, plan)) / 4)),
        dS(S + launch_plan_memory(extents_of(b), plan) / 4),
        products(b, dS + launch_plan_memory(extents_of(b), plan) / 4),
        end_products(products.read + RowProducts::elements(b)) {}

  /// The arguments of the walk that makes S of k and v, as gradients[2] makes dS of q and do.
  Gradient forward() const {
    Gradient forward = gradients[2];
    forward.a.k = b.k, forward.a.v = b.v, forward.is_reversed = false;
    return forward;
  }
  /// The decays of the segments in the order of the walk: [B, H, segments - 1]. @param is_S of S or of dS
  float* decays(bool is_S) const {
    return end_products + std::int64_t(b.B) * b.H * products.tiles * kWarps +
           (is_S ? 0 : std::int64_t(b.B) * b.H * (plan.segments - 1));
  }
  /// Starts the kernels that compute the carried states.
  void compute_states() const {
    const int borders = plan.segments - 1;
    if (borders == 0) return;
    select_shape(b.Dk, [&]<class Shape>(Shape) {
      const LaunchConfig states{grid_of<Shape>(extents_of(gradients[2].a), borders), kThreads,
                                2 * (StateTiles<Shape>::kBytes + SharedSums::kBytes)};
      launch(segment_states_kernel<Shape>, states, forward(), plan, S, decays(true));
      launch(segment_states_kernel<Shape>, states, gradients[2], plan, dS, decays(false));
    });
    carry();
  }
  /// Starts the kernels that carry what each segment makes of a state of zeros from segment to segment.
  void carry() const {
    const int borders = plan.segments - 1;
    carry_states(b.B, b.H, b.Dk, borders, CarriedStates<SegmentDecay>{b.initial_state, b.Dv, S, {decays(true)}});
    carry_states(b.B, b.H, b.Dk, borders,
                 CarriedStates<SegmentDecay>{b.dfinal_state, b.Dv, dS, {decays(false)}, 1 / b.scale});
  }
  /// The plan of gradient number i, with its `starts`.
  LaunchPlan plan_for(int i) const {
    LaunchPlan with_starts = plan;
    with_starts.starts = i == 0 ? S : dS;
    return with_starts;
  }
  /// What the walk of gradient number i multiplies its last state with.
  View<const float> end_state(int i) const { return i == 0 ? b.dfinal_state : View<const float>{}; }
  /// Starts the kernel that computes dg, after the walks.
  /// @param words,word_count what the kernel sets back to zeros
  void compute_gate_gradient(unsigned* words = nullptr, std::int64_t word_count = 0) const {
    const dim3 grid(unsigned(plan.segments), unsigned(b.H), unsigned(b.B));
    launch(gate_gradient_kernel, {grid, 32 * kGateWarps}, b, plan, S, dS, products, end_products, words, word_count);
  }
};

}  // namespace
}  // namespace tutorial::simple_gla
