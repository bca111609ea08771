/// @file
/// `dispatch`: what a user calls. It adds no product of its own. It chooses a kernel and the number of
/// segments, and it supports what the earlier stages do not.
///
/// Idea: each gradient is the operator on other inputs, so the operator's fastest kernels compute it once they know a
/// direction (linear_attention/dispatch/direction.cuh). On Hopper the three walks are one launch. It has three times as
/// many blocks as the operator, so a third of the heads fills the GPU, and two of the walks read the same chunks at the
/// same time. If even these blocks are too few, the sequence is cut into segments, for S from the beginning and for dS
/// from the end. One more kernel then computes the sums that S and dS consist of. On other GPUs the walks are those of
/// `pipelined`.
/// Improves on: `walks` waits for every chunk, computes with warps, and leaves multiprocessors idle when there are few
/// heads.
/// Unchanged: the products, their precision, and that nothing is stored between the walks.
/// Fallback: if the tensor-core kernels do not support a width, or rows are not aligned, the operator's `fused`
/// computes in fp32, on copies of the tensors. For dk and dv it gets these in reversed order. Where it has no room for a
/// state's columns, which is from 385 rows on, `materialized` computes that gradient.
///
/// Bytes: k, v and do for dq; q, k, v and do for dk and dv, which share them through the second-level cache; each
/// gradient once. With segments most of q, k, v and do are read once more.
/// Bound by, Requires: as the kernels that it chooses.
/// Weakness: the walks of dk and dv both compute dS, one of them transposed. The times of a chunk were measured on an
/// H200.

#include <cuda_runtime.h>

#include <algorithm>

#include "02_chunkwise/linear_attention/requirements.hpp"
#include "02_chunkwise/linear_attention_backward.hpp"
#include "02_chunkwise/linear_attention_backward/dispatch/walks.hpp"
#include "02_chunkwise/linear_attention_backward/gradients.hpp"
#include "02_chunkwise/linear_attention_backward/requirements.hpp"
#include "common/ceil_div.hpp"
#include "common/device/convert.cuh"
#include "common/device/device.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/workspace.hpp"
#include "common/estimate/card.hpp"
#include "common/estimate/walk_times.hpp"

namespace tutorial::linear_attention {
namespace {

using namespace tile;

constexpr estimate::WalkClocks kWarpClocks{.narrow = {.walk = {3960, 7130}, .states = {1390, 2380}},
                                           .wide = {.walk = {5740, 10500}, .states = {1780, 3560}}};

// On warpgroups: the clocks of a chunk in a walk, of a chunk in the sums for the segments, and of a block's start; and the
// microseconds that segments cost in addition.
constexpr double kChunkClocks = 1680, kSumClocks = 790, kStartClocks = 5940, kSegments = 8;
constexpr int kChunkLength = 64;

/// The time of a plan on warpgroups, in microseconds.
double estimated_time(const Bf16BackwardArguments& b, const LaunchPlan& plan) {
  const estimate::Card card = estimate::card();
  const std::int64_t heads = std::int64_t(b.B) * b.H;
  const int key_tiles = ceil_div(b.Dk, 64), value_tiles = ceil_div(b.Dv, 64);
  const double chunks = plan.length / kChunkLength;
  const double rounds = double(card.rounds(heads * (2 * key_tiles + value_tiles) * plan.segments));
  const double walk = card.microseconds(rounds * (chunks * kChunkClocks + kStartClocks));
  if (plan.segments == 1) return walk;
  const double sums = double(card.rounds(heads * 2 * value_tiles * (plan.segments - 1), 2)) * chunks * kSumClocks;
  return walk + kSegments + card.microseconds(sums);
}

/// The problem in fp32.
struct InFp32 {
  Bf16BackwardArguments b;
  float* memory;

  /// The number of elements that the copies take.
  static std::int64_t elements(const Bf16BackwardArguments& b) {
    const std::int64_t heads = std::int64_t(b.B) * b.H;
    return heads * (b.L * (4 * std::int64_t(b.Dk) + 3 * std::int64_t(b.Dv)) + 3 * std::int64_t(b.Dk) * b.Dv);
  }

  /// A [B, H, L, D] tensor in the memory that is left.
  View<float> tensor(int L, int D) {
    const View<float> view = packed(memory, b.H, L, D);
    if (memory) memory += std::int64_t(b.B) * b.H * L * D;
    return view;
  }
  /// The tensor from its last position to its first.
  template <class T>
  View<T> reversed(const View<T>& x) const {
    return {x.data ? x.row(0, 0, b.L - 1) : nullptr, x.stride_b, x.stride_h, -x.stride_l};
  }
};

/// to = factor from, or factor from^T, for states of `rows` rows in `from`. Grid (B H, up to 64).
__global__ void scale_state_kernel(int H, View<const float> from, View<float> to, int rows, int columns, bool transpose,
                                   float factor) {
  const int b = int(blockIdx.x) / H, h = int(blockIdx.x) % H;
  for (int d = int(blockIdx.y); d < rows; d += int(gridDim.y)) {
    for (int j = int(threadIdx.x); j < columns; j += int(blockDim.x)) {
      store_global(transpose ? to.row(b, h, j) + d : to.row(b, h, d) + j, factor * from.row(b, h, d)[j]);
    }
  }
}

/// The operator's arguments for each gradient, in fp32. Positions are reversed for dk and dv.
/// @param start whether to start the kernels that fill in the inputs
std::array<FloatArguments, 3> in_fp32(const Bf16BackwardArguments& b, float* memory, bool start) {
  InFp32 copies{b, memory};
  const auto copied = [&](const View<const __nv_bfloat16>& from, int D) {
    const View<float> to = copies.tensor(b.L, D);
    if (start) convert(b.B, b.H, b.L, D, from, to);
    return read_only(to);
  };
  const auto state = [&](const View<const float>& from, bool transpose, float factor) {
    if (!from.data) return View<const float>{};
    const View<float> to = transpose ? copies.tensor(b.Dv, b.Dk) : copies.tensor(b.Dk, b.Dv);
    if (start) {
      launch(scale_state_kernel, {dim3(unsigned(b.B * b.H), unsigned(std::min(b.Dk, 64))), 128}, b.H, from, to, b.Dk,
             b.Dv, transpose, factor);
    }
    return read_only(to);
  };
  const auto q = copied(b.q, b.Dk), k = copied(b.k, b.Dk), v = copied(b.v, b.Dv), d_o = copied(b.d_o, b.Dv);
  const auto from_the_end = [&](const auto& x) { return copies.reversed(x); };
  const auto arguments = [&](int keys, int values, const auto& x, const auto& y, const auto& z, const auto& S,
                             const View<float>& gradient) {
    return FloatArguments{b.B, b.H, b.L, keys, values, b.C, b.scale, x, y, z, S, gradient, {}};
  };
  std::array<FloatArguments, 3> all{
      arguments(b.Dv, b.Dk, d_o, v, k, state(b.initial_state, true, 1), copies.tensor(b.L, b.Dk)),
      arguments(b.Dv, b.Dk, from_the_end(v), from_the_end(d_o), from_the_end(q),
                state(b.dfinal_state, true, 1 / b.scale), from_the_end(copies.tensor(b.L, b.Dk))),
      arguments(b.Dk, b.Dv, from_the_end(k), from_the_end(q), from_the_end(d_o),
                state(b.dfinal_state, false, 1 / b.scale), from_the_end(copies.tensor(b.L, b.Dv)))};
  all[2].final_state = b.dinitial_state;
  return all;
}

/// Whether `fused` computes a gradient, or else `materialized`.
bool is_fused(const FloatArguments& a) {
  return fused_unsupported(a).empty();
}

/// Bytes beside inputs and outputs.
std::int64_t memory_in_fp32(const Bf16BackwardArguments& b) {
  std::int64_t states = 0;
  for (const FloatArguments& a : in_fp32(b, nullptr, false)) {
    if (!is_fused(a)) states = std::max(states, materialized_memory(a));
  }
  return states + std::int64_t(sizeof(float)) * InFp32::elements(b);
}

enum class Kernel { kWarpgroups, kWarps, kInFp32 };

/// What dispatch does with a problem.
struct Choice {
  Kernel kernel;
  LaunchPlan plan;      ///< of the walks; kInFp32 has none
  std::string note;     ///< the choice in words
  std::int64_t memory;  ///< bytes beside inputs and outputs
};

Choice choose(const Bf16BackwardArguments& b) {
  if (const std::string reason = gradients_unsupported(b); !reason.empty()) {
    const std::array<FloatArguments, 3> gradients = in_fp32(b, nullptr, false);
    const bool all_fused = std::all_of(gradients.begin(), gradients.end(), is_fused);
    return {
        Kernel::kInFp32, {}, (all_fused ? "fused in fp32: " : "materialized in fp32: ") + reason, memory_in_fp32(b)};
  }
  const auto walks = [&](Kernel kernel, const char* name, const LaunchPlan& plan) {
    const std::string segments = plan.segments > 1 ? std::to_string(plan.segments) + " segments, " : "";
    return Choice{kernel, plan,
                  std::string(name) + ", " + segments + std::to_string(plan.columns) + " columns per block",
                  2 * std::int64_t(sizeof(float)) * b.B * b.H * (plan.segments - 1) * b.Dk * b.Dv};
  };
  const std::array<Gradient, 3> gradients = gradients_of(b);
  if (std::any_of(gradients.begin(), gradients.end(),
                  [](const Gradient& g) { return !warpgroup_mma_unsupported(g.a).empty(); })) {
    const Extents extents{b.B, b.H, b.L, std::max(b.Dk, b.Dv), b.Dv};
    return walks(Kernel::kWarps, "mma by warps", estimate::fastest_plan(extents, kWarpClocks));
  }
  LaunchPlan best = make_launch_plan(b.L, 64, 1);
  for (int segments = 2; segments <= std::min(ceil_div(b.L, kChunkLength), multiprocessor_count()); ++segments) {
    const LaunchPlan plan = make_launch_plan(b.L, 64, segments);
    if (estimated_time(b, plan) < estimated_time(b, best)) best = plan;
  }
  return walks(Kernel::kWarpgroups, "warpgroups", best);
}

void backward_in_fp32(const Bf16BackwardArguments& b) {
  auto* memory = workspace<float>("linear_attention --backward: fp32", std::size_t(InFp32::elements(b)));
  const std::array<FloatArguments, 3> all = in_fp32(b, memory, true);
  for (const FloatArguments& a : all) is_fused(a) ? fused(a) : materialized(a);
  const InFp32 copies{b, nullptr};
  convert(b.B, b.H, b.L, b.Dk, all[0].o, b.dq);
  convert(b.B, b.H, b.L, b.Dk, copies.reversed(all[1].o), b.dk);
  convert(b.B, b.H, b.L, b.Dv, copies.reversed(all[2].o), b.dv);
  if (!b.dinitial_state.data) return;
  launch(scale_state_kernel, {dim3(unsigned(b.B * b.H), unsigned(std::min(b.Dk, 64))), 128}, b.H,
         read_only(b.dinitial_state), b.dinitial_state, b.Dk, b.Dv, false, b.scale);
}

}  // namespace

void dispatch_backward(const Bf16BackwardArguments& b) {
  const Choice choice = choose(b);
  switch (choice.kernel) {
    case Kernel::kWarpgroups:
      return hopper_gradient_walks(b, choice.plan);
    case Kernel::kWarps:
      return gradient_walks(b, choice.plan);
    case Kernel::kInFp32:
      return backward_in_fp32(b);
  }
}

std::string dispatch_backward_unsupported(const Bf16BackwardArguments& b) {
  if (gradients_unsupported(b).empty()) return "";
  if (const std::string reason = convert_unsupported(b.B, b.H, b.L); !reason.empty()) return reason;
  for (const FloatArguments& a : in_fp32(b, nullptr, false)) {
    if (is_fused(a)) continue;
    if (const std::string reason = materialized_unsupported(a); !reason.empty()) return reason;
  }
  return "";
}

std::string dispatch_backward_note(const Bf16BackwardArguments& b) {
  return choose(b).note;
}

std::int64_t dispatch_backward_memory(const Bf16BackwardArguments& b) {
  return choose(b).memory;
}

}  // namespace tutorial::linear_attention
