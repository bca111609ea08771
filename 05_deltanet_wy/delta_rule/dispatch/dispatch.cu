/// @file
/// `dispatch`: what a user calls.
///
/// Idea: choose a kernel that supports the problem. On Hopper that is `one_block`, `three_blocks`, `cluster`,
/// `one_kernel`, or `scores_in_walk` with some number of segments, whichever takes the least estimated time
/// (segments.cpp). If they do not support the problem, and on other GPUs, the choice is between two walks on mma, again
/// by an estimate (dispatch/segmented_plan.cpp). Both support every width of the tensor cores and normalised keys. The
/// walk of dispatch/walk.cu is that of `specialized_warps` with 32 or 64 columns per block. At Dk = 128 it needs more
/// shared memory than a block has on an A100 or an RTX card. The walk of dispatch/segmented_walk.cuh is that of
/// `fused`. It runs on every GPU, and walks segments of the sequence at the same time if few heads would leave
/// multiprocessors idle. Problems that neither of them supports are computed in fp32: widths that are no multiple of 16
/// or too large, and rows that are not aligned. One kernel each copies q, k and v to fp32, and one copies the result
/// back. In fp32 the choice is between two stages. In `recurrent_gpu` a block walks position after position. In
/// `chunk_gpu` each chunk has its own block for most of the work, and only the states are walked, from chunk to chunk;
/// this costs two fifths more operations and four launches. `chunk_gpu` is faster if few heads leave multiprocessors
/// idle and there are many chunks. If the heads fill the GPU, the number of operations matters, and `recurrent_gpu` is
/// faster.
/// Improves on: `scores_in_walk` needs Hopper and supports only Dk <= 128 and keys that are already normalised. With many
/// heads, T in memory costs more than computing it beside the walk.
/// Unchanged: the kernels, shapes and bytes of what it chooses.
///
/// The estimate behind the choice in fp32: a step of a walk takes its latency, and the time of its work for each block
/// on the multiprocessor. The work of the kernels with one block per chunk is spread evenly over the multiprocessors.
///
/// Bound by, requires: as what it chooses; a chunk of `chunk_gpu` has 64 positions, whatever C is.
/// Weakness: the constants follow from counting instructions. Rows that are not aligned, and widths that are no
/// multiple of 16, could be copied to aligned bf16 rows of a suitable width.

#include <cuda_runtime.h>

#include "05_deltanet_wy/delta_rule.hpp"
#include "05_deltanet_wy/delta_rule/dispatch/segmented_plan.hpp"
#include "05_deltanet_wy/delta_rule/dispatch/segmented_walk.hpp"
#include "05_deltanet_wy/delta_rule/dispatch/walk.hpp"
#include "05_deltanet_wy/delta_rule/prepared.hpp"
#include "05_deltanet_wy/delta_rule/segments.hpp"
#include "common/ceil_div.hpp"
#include "common/device/convert.cuh"
#include "common/device/device.hpp"
#include "common/device/workspace.hpp"
#include "common/parts.hpp"
#include "common/tile/requirements.hpp"

namespace tutorial::delta_rule {
namespace {

constexpr int kChunk = 64, kWalkColumns = 32;  // of the blocks of both walks in fp32

// Microseconds at Dk = 128, of a block.
constexpr double kPosition = 0.15, kPositionWork = 0.08;  // recurrent_gpu: a step
constexpr double kChunkStep = 3, kChunkStepWork = 5;      // chunk_gpu: a step of its walk
constexpr double kChunkWork = 30;                         // chunk_gpu: T, W and U, outputs of 64 columns
constexpr double kLaunches = 10;                          // chunk_gpu has three more

double ceil_div(double count, int by) {
  return double((std::int64_t(count) - 1) / by + 1);
}

bool recurrent_is_faster(const FloatArguments& a) {
  const int multiprocessors = multiprocessor_count();
  const double heads = double(a.B) * a.H, N = ceil_div(a.L, kChunk), width = a.Dk / 128.0;
  const double walks = ceil_div(heads * ceil_div(a.Dv, kWalkColumns), multiprocessors);  // per multiprocessor
  const double chunks = ceil_div(heads * N * ceil_div(a.Dv, 64), multiprocessors);
  return a.L * (kPosition + walks * kPositionWork * width) <
         kLaunches + N * (kChunkStep + walks * kChunkStepWork * width) + chunks * kChunkWork * width;
}

bool picks_recurrent(const FloatArguments& a) {
  if (!recurrent_gpu_unsupported(a).empty()) return false;
  return !chunk_gpu_unsupported(a).empty() || recurrent_is_faster(a);
}

/// q, k, v and o in fp32.
struct Copies {
  View<float> q, k, v, o;

  static std::int64_t count(const Bf16Arguments& a) {
    return 2 * std::int64_t(a.B) * a.H * a.L * (std::int64_t(a.Dk) + a.Dv);
  }
  /// @param memory of count() elements
  Copies(const Bf16Arguments& a, float* memory) {
    const std::int64_t rows = std::int64_t(a.B) * a.H * a.L;
    q = packed(memory, a.H, a.L, a.Dk);
    k = packed(q.data + rows * a.Dk, a.H, a.L, a.Dk);
    v = packed(k.data + rows * a.Dk, a.H, a.L, a.Dv);
    o = packed(v.data + rows * a.Dv, a.H, a.L, a.Dv);
  }
  Copies() = default;  // if only sizes are needed
};

/// The same problem in fp32.
FloatArguments in_fp32(const Bf16Arguments& a, const Copies& copies) {
  const auto read = [](const View<float>& x) { return View<const float>{x.data, x.stride_b, x.stride_h, x.stride_l}; };
  return {a.B,
          a.H,
          a.L,
          a.Dk,
          a.Dv,
          kChunk,
          a.scale,
          a.normalize_keys,
          read(copies.q),
          read(copies.k),
          read(copies.v),
          a.beta,
          a.initial_state,
          copies.o,
          a.final_state};
}

void compute_in_fp32(const Bf16Arguments& a) {
  const Copies copies(a, workspace<float>("delta_rule: q, k, v, o in fp32", std::size_t(Copies::count(a))));
  convert(a.B, a.H, a.L, a.Dk, a.q, copies.q);
  convert(a.B, a.H, a.L, a.Dk, a.k, copies.k);
  convert(a.B, a.H, a.L, a.Dv, a.v, copies.v);
  const FloatArguments f = in_fp32(a, copies);
  picks_recurrent(f) ? recurrent_gpu(f) : chunk_gpu(f);
  convert(a.B, a.H, a.L, a.Dv, copies.o, a.o);
}

}  // namespace

bool runs_on_warpgroups(const Bf16Arguments& a) {
  return !a.normalize_keys && warpgroup_chain_unsupported(a).empty();
}

void dispatch(const Bf16Arguments& a) {
  if (runs_on_warpgroups(a)) {
    switch (fastest_walk(a)) {
      case Walk::segments:
        return scores_in_walk(a, fastest_segments(a));
      case Walk::one_kernel:
        return one_kernel(a);
      case Walk::cluster:
        return cluster(a);
      case Walk::three_blocks:
        return three_blocks(a);
      case Walk::one_block:
        return one_block(a);
    }
  }
  if (!tile::tensor_core_unsupported(a).empty()) return compute_in_fp32(a);
  const Prepared prepared = prepare(a);
  end_part("prepare");
  if (const auto plan = segmented_plan(a)) return segmented_walk(a, prepared, *plan);
  walk(a, prepared);
  end_part("walk");
}

std::string dispatch_unsupported(const Bf16Arguments& a) {
  if (tile::tensor_core_unsupported(a).empty()) return "";
  if (const std::string unsupported = convert_unsupported(a.B, a.H, a.L); !unsupported.empty()) return unsupported;
  const FloatArguments f = in_fp32(a, {});
  return picks_recurrent(f) ? "" : chunk_gpu_unsupported(f);
}

std::string dispatch_note(const Bf16Arguments& a) {
  if (runs_on_warpgroups(a)) {
    const std::string columns = "64 columns per block";
    switch (fastest_walk(a)) {
      case Walk::one_kernel:
        return "one kernel, " + columns;
      case Walk::cluster:
        return "clusters of two blocks, " + columns;
      case Walk::three_blocks:
        return "clusters of three blocks, " + columns;
      case Walk::one_block:
        return "one kernel, 128 columns per block";
      case Walk::segments:
        const int segments = fastest_segments(a).segments;
        return "warpgroups, " + (segments > 1 ? std::to_string(segments) + " segments, " : "") + columns;
    }
  }
  const std::string unsupported = tile::tensor_core_unsupported(a);
  if (unsupported.empty()) {
    const auto plan = segmented_plan(a);
    if (!plan) return "specialized warps, " + std::to_string(walk_columns(a)) + " columns per block";
    const std::string segments = plan->segments > 1 ? std::to_string(plan->segments) + " segments, " : "";
    return "fused, " + segments + "64 columns per block";
  }
  return (picks_recurrent(in_fp32(a, {})) ? "recurrent_gpu in fp32: " : "chunk_gpu in fp32: ") + unsupported;
}

std::int64_t dispatch_memory(const Bf16Arguments& a) {
  if (runs_on_warpgroups(a)) {
    return fastest_walk(a) == Walk::segments ? scores_in_walk_memory(a, fastest_segments(a)) : 0;
  }
  if (tile::tensor_core_unsupported(a).empty()) {
    const auto plan = segmented_plan(a);
    return prepared_memory(a) + (plan ? segmented_walk_memory(a, *plan) : 0);
  }
  const FloatArguments f = in_fp32(a, {});
  return std::int64_t(sizeof(float)) * Copies::count(a) +
         (picks_recurrent(f) ? recurrent_gpu_memory(f) : chunk_gpu_memory(f));
}

}  // namespace tutorial::delta_rule
