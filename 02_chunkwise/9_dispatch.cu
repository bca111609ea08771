/// @file
/// Stage 9, `dispatch`: what a user calls. No new kernel for the products, a choice: how many segments, how wide a
/// tile.
///
/// Mends: stage 7 leaves multiprocessors idle when there are few heads; stage 8 reads K and V twice and starts three
/// kernels where one could do; and neither takes every width. Same: their kernels, shapes and bytes.
/// The choice is made by estimating the time of each spread. A walk takes as long as the chunks that one block has to
/// do one after the other; a chunk takes longer when a multiprocessor has two blocks, but not twice as long. Segments
/// divide the walk and add a first kernel's walk over K and V, two more launches, and the states' way through memory.
/// Half-width tiles double the blocks without any of that, and read Q and K twice from the second-level cache. The
/// times of a chunk are an H200's (README.md has what the choice makes of them); on another GPU it is their ratios
/// that matter. Widths that the tensor-core stages do not take, and rows that are not aligned, go to stage 5.
///
/// The normaliser, o_t = scale q_t S_t / (scale q_t . z_t + eps): inside the walk of stage 7 (normalizer.cuh says
/// how), so that its bytes are those of q, k, v and o, as without it. Where stage 5 has to do, it runs a second time
/// with a column of ones for V.
/// Limit and needs: those of the kernels that it picks.
/// Weakness: the constants were measured at Dk = Dv = 128; between the widths they are guessed.

#include <cuda_runtime.h>

#include "02_chunkwise/linear_attention.hpp"
#include "02_chunkwise/normalized.hpp"
#include "02_chunkwise/spread.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::linear_attention {
namespace {

constexpr WalkTimes kTimes{.narrow = {.walk = {2.0, 3.6}, .states = {0.7, 1.2}},
                           .wide = {.walk = {2.9, 5.3}, .states = {0.9, 1.8}}};

Spread choose(const HalfArguments& a) {
  return fastest_spread(a, kTimes);
}

std::string describe(const HalfArguments& a) {
  if (!tensor_core_limits(a).empty()) return "fused: " + tensor_core_limits(a);
  const Spread spread = choose(a);
  const std::string tile = std::to_string(spread.columns) + " columns a block";
  if (spread.segments == 1) return "pipelined, " + tile;
  return "sequence_parallel, " + std::to_string(spread.segments) + " segments, " + tile;
}

__global__ void one_kernel(__nv_bfloat16* one) {
  store_global(one, __float2bfloat16(1.0f));
}

/// o[t] /= denominator[t] + eps, a warp a row.
__global__ void divide_kernel(HalfArguments a, const __nv_bfloat16* denominators, float eps) {
  const std::int64_t row = std::int64_t(blockIdx.x) * blockDim.y + threadIdx.y, head = row / a.L, t = row % a.L;
  if (head >= std::int64_t(a.B) * a.H) return;
  const float factor = 1.0f / (__bfloat162float(load_global(denominators + row)) + eps);
  __nv_bfloat16* o = a.o.row(head / a.H, head % a.H, t);
  for (int j = int(threadIdx.x); j < a.Dv; j += 32)
    store_global(o + j, __float2bfloat16(factor * __bfloat162float(o[j])));
}

}  // namespace

void dispatch(const HalfArguments& a) {
  if (!tensor_core_limits(a).empty()) return fused(a);
  sequence_parallel(a, choose(a));
}

void dispatch_normalized(const NormalizedArguments& n) {
  const HalfArguments& a = n.attention;
  if (tensor_core_limits(a).empty()) return sequence_parallel(a, choose(a), &n.normalizer);
  fused(a);
  // The denominators: V is one column of ones, the same element wherever one looks. (Both are rounded to bf16 before
  // they are divided: three roundings where the tensor-core stages have one.)
  auto* one = workspace<__nv_bfloat16>("linear_attention: one", 1);
  auto* denominators = workspace<__nv_bfloat16>("linear_attention: denominators",
                                                std::size_t(a.B) * std::size_t(a.H) * std::size_t(a.L));
  launch(one_kernel, {1, 1}, one);
  HalfArguments d = a;
  d.Dv = 1;
  d.v = {one, 0, 0, 0};
  d.o = packed(denominators, a.H, a.L, 1);
  d.initial_state = packed(n.normalizer.initial_z, a.H, a.Dk, 1);
  d.final_state = packed(n.normalizer.final_z, a.H, a.Dk, 1);
  fused(d);
  constexpr unsigned kRows = 8;  // of a block
  const std::int64_t rows = std::int64_t(a.B) * a.H * a.L;
  launch(divide_kernel, {unsigned((rows - 1) / kRows + 1), dim3(32, kRows)}, a, denominators, n.normalizer.eps);
}

std::string dispatch_normalized_limits(const NormalizedArguments& n) {
  return dispatch_limits(n.attention);
}

std::string dispatch_normalized_note(const NormalizedArguments& n) {
  return describe(n.attention);
}

std::int64_t dispatch_normalized_memory(const NormalizedArguments& n) {
  const HalfArguments& a = n.attention;
  if (!tensor_core_limits(a).empty()) return std::int64_t(sizeof(__nv_bfloat16)) * a.B * a.H * a.L;
  const Spread spread = choose(a);
  return spread_memory(a, spread) + std::int64_t(sizeof(float)) * a.B * a.H * (spread.segments - 1) * a.Dk;
}

std::string dispatch_limits(const HalfArguments& a) {
  return tensor_core_limits(a).empty() ? "" : fused_limits(a);
}

std::string dispatch_note(const HalfArguments& a) {
  return describe(a);
}

std::int64_t dispatch_memory(const HalfArguments& a) {
  return tensor_core_limits(a).empty() ? spread_memory(a, choose(a)) : fused_memory(a);
}

}  // namespace tutorial::linear_attention
