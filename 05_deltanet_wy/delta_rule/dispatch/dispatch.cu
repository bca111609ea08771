/// @file
/// `dispatch`: what a user calls.
///
/// Idea: choose a kernel that supports the problem. On Hopper that is `one_block`, `three_blocks`, `cluster`,
/// `one_kernel`, or `segments` with some number of segments, whichever takes the least estimated time
/// (plan.cpp). If they do not support the problem, and on other GPUs, the choice is between two walks on mma, again
/// by an estimate (dispatch/segmented_plan.cpp). Both support every width of the tensor cores and normalised keys. One
/// is `specialized_warps`, which at Dk = 128 needs more shared memory than a block has on an A100 or an RTX card. The
/// other one is that of `fused` (dispatch/segmented_walk.cuh). It runs on every GPU, and walks segments of the sequence at the same time if few heads would leave
/// multiprocessors idle. Problems that neither of them supports are computed in fp32: widths that are no multiple of 16
/// or too large, and rows that are not aligned. One kernel each copies q, k and v to fp32, and one copies the result
/// back. In fp32 the choice is between two stages, and a third one (wide_keys.cu) for Dk > 256. In `recurrent_gpu` a block walks position after position. In
/// `chunk_gpu` each chunk has its own block for most of the work, and only the states are walked, from chunk to chunk;
/// this costs two fifths more operations and four launches. `chunk_gpu` is faster if few heads leave multiprocessors
/// idle and there are many chunks. If the heads fill the GPU, the number of operations matters, and `recurrent_gpu` is
/// faster.
/// Improves on: the kernels of warpgroups need Hopper and support only Dk <= 128 and keys that are already normalised.
/// Unchanged: the kernels, shapes and bytes of what it chooses.
///
/// The estimate behind the choice in fp32: a step of a walk takes its latency, and the time of its work for each block
/// on the multiprocessor. The work of the kernels with one block per chunk is spread evenly over the multiprocessors.
///
/// Bound by, requires: as what it chooses; a chunk of `chunk_gpu` has 64 positions, whatever C is.
/// Weakness: the constants follow from counting instructions. Rows that are not aligned, and widths that are no
/// multiple of 16, could be copied to aligned bf16 rows of a suitable width.

#include <cuda_runtime.h>

#include <functional>
#include <optional>
#include <string>

#include "05_deltanet_wy/chunk/prepare.hpp"
#include "05_deltanet_wy/delta_rule.hpp"
#include "05_deltanet_wy/delta_rule/dispatch/plan.hpp"
#include "05_deltanet_wy/delta_rule/dispatch/requirements.hpp"
#include "05_deltanet_wy/delta_rule/dispatch/segmented_plan.hpp"
#include "05_deltanet_wy/delta_rule/dispatch/segmented_walk.hpp"
#include "05_deltanet_wy/delta_rule/dispatch/specialized_warps.hpp"
#include "05_deltanet_wy/delta_rule/dispatch/wide_keys.hpp"
#include "05_deltanet_wy/delta_rule/segments.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/device/fp32_copies.cuh"
#include "common/device/workspace.hpp"
#include "common/estimate/card.hpp"
#include "common/parts.hpp"
#include "common/tile/requirements.hpp"

namespace tutorial::delta_rule {
namespace {

constexpr int kChunk = 64, kWalkColumns = 32;  // of the blocks of both walks in fp32

// Clocks at Dk = 128, of a block.
constexpr double kPosition = 300, kPositionWork = 160;      // recurrent_gpu: a step
constexpr double kChunkStep = 5900, kChunkStepWork = 9900;  // chunk_gpu: a step of its walk
constexpr double kChunkWork = 59400;                        // chunk_gpu: T, W and U, outputs of 64 columns
constexpr double kLaunches = 10;                            // microseconds: chunk_gpu has three more

double ceil_div(double count, int by) {
  return double((std::int64_t(count) - 1) / by + 1);
}

bool recurrent_is_faster(const FloatArguments& a) {
  const estimate::Card card = estimate::card();
  const int multiprocessors = card.multiprocessors;
  const double heads = double(a.B) * a.H, N = ceil_div(a.L, kChunk), width = a.Dk / 128.0;
  const double walks = ceil_div(heads * ceil_div(a.Dv, kWalkColumns), multiprocessors);  // per multiprocessor
  const double chunks = ceil_div(heads * N * ceil_div(a.Dv, 64), multiprocessors);
  const double steps = a.L * (kPosition + walks * kPositionWork * width);
  const double walk = N * (kChunkStep + walks * kChunkStepWork * width);
  return card.microseconds(steps) < kLaunches + card.microseconds(walk + chunks * kChunkWork * width);
}

/// The same problem in fp32.
FloatArguments in_fp32(const Bf16Arguments& a, const Fp32Copies& copies) {
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

/// A kernel, and what is to be said about it.
struct Choice {
  std::function<void()> run;
  std::string note;
  std::int64_t memory = 0, bytes_moved = -1;
  std::string unsupported = "";
};

/// What runs on warpgroups.
Choice fastest_on_warpgroups(const Bf16Arguments& a) {
  const std::string columns = ", 64 columns per block";
  switch (fastest_walk(a)) {
    case Walk::one_kernel:
      return {[a] { one_kernel(a); }, "one kernel" + columns, 0, one_kernel_bytes_moved(a)};
    case Walk::cluster:
      return {[a] { cluster(a); }, "clusters of two blocks" + columns, 0, cluster_bytes_moved(a)};
    case Walk::three_blocks:
      return {[a] { three_blocks(a); }, "clusters of three blocks" + columns, 0, cluster_bytes_moved(a)};
    case Walk::one_block:
      return {[a] { one_block(a); }, "one kernel, 128 columns per block", 0, one_block_bytes_moved(a)};
    case Walk::segments:
      break;
  }
  const tile::LaunchPlan plan = fastest_segments(a);
  const std::string count = plan.segments > 1 ? ", " + std::to_string(plan.segments) + " segments" : "";
  return {[a, plan] { segments(a, plan); }, "warpgroups" + count + columns, segments_memory(a, plan),
          segments_bytes_moved(a, plan)};
}

/// The walk of `fused`, with some number of segments.
Choice walk_of_warps(const Bf16Arguments& a, const tile::LaunchPlan& plan) {
  const auto run = [a, plan] {
    const Prepared prepared = prepare(a);
    end_part("prepare");
    segmented_walk(a, prepared, plan);
  };
  const std::string count = plan.segments > 1 ? std::to_string(plan.segments) + " segments, " : "";
  return {run, "fused, " + count + "64 columns per block", prepared_memory(a) + segmented_walk_memory(a, plan),
          segmented_walk_bytes_moved(a, plan)};
}

/// A kernel in fp32, on copies; or `wide_keys`, which takes bf16, where registers have no room for the keys.
/// @param why no kernel on bf16 supports the problem
Choice choose_in_fp32(const Bf16Arguments& a, const std::string& why) {
  if (a.Dk > kWidestInRegisters) {
    return {[a] { wide_keys(a); }, "wide_keys in fp32: " + why, 0, -1, wide_keys_unsupported(a)};
  }
  const FloatArguments sizes = in_fp32(a, Fp32Copies(a, nullptr));
  const std::string recurrent_missing = recurrent_gpu_unsupported(sizes), chunks_missing = chunk_gpu_unsupported(sizes);
  const bool is_recurrent = recurrent_missing.empty() && (!chunks_missing.empty() || recurrent_is_faster(sizes));
  const auto run = [a, is_recurrent] {
    const Fp32Copies copies(a, workspace<float>("delta_rule: q, k, v, o in fp32", std::size_t(Fp32Copies::count(a))));
    copies.load(a);
    is_recurrent ? recurrent_gpu(in_fp32(a, copies)) : chunk_gpu(in_fp32(a, copies));
    copies.store(a);
  };
  Choice choice{run, (is_recurrent ? "recurrent_gpu in fp32: " : "chunk_gpu in fp32: ") + why,
                std::int64_t(sizeof(float)) * Fp32Copies::count(a) + (is_recurrent ? 0 : chunk_gpu_memory(sizes))};
  choice.unsupported = convert_unsupported(a.B, a.H, a.L);
  if (choice.unsupported.empty() && !is_recurrent) choice.unsupported = chunks_missing;
  return choice;
}

/// The kernel that supports the problem and takes the least estimated time.
Choice choose(const Bf16Arguments& a) {
  if (warpgroup_chain_unsupported(a).empty()) return fastest_on_warpgroups(a);
  if (const std::string why = tile::tensor_core_unsupported(a); !why.empty()) return choose_in_fp32(a, why);
  if (const auto plan = segmented_plan(a)) return walk_of_warps(a, *plan);
  return {[a] { specialized_warps(a); },
          "specialized warps, " + std::to_string(specialized_warps_columns(a)) + " columns per block", fused_memory(a),
          specialized_warps_bytes_moved(a)};
}

}  // namespace

void dispatch(const Bf16Arguments& a) {
  choose(a).run();
}

std::string dispatch_unsupported(const Bf16Arguments& a) {
  return choose(a).unsupported;
}

std::string dispatch_note(const Bf16Arguments& a) {
  return choose(a).note;
}

std::int64_t dispatch_memory(const Bf16Arguments& a) {
  return choose(a).memory;
}

std::int64_t dispatch_bytes_moved(const Bf16Arguments& a) {
  return choose(a).bytes_moved;
}

}  // namespace tutorial::delta_rule
