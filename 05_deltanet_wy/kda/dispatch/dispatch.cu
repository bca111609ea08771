/// @file
/// `dispatch`: what a user calls.
///
/// Idea: choose a kernel that supports the problem, and the faster one of two. On Hopper that is `middle_anchor` for Dk
/// above 64, unless its segments would have a few chunks each. Otherwise it is `cluster` if there are enough heads for its clusters, and
/// `one_anchor` if not, or `two_products` if rows of g are not aligned; on other GPUs it is `specialized_warps`. With few
/// heads the sequence is cut into segments. Where the gates forget enough they start from zeros, which the GPU finds out:
/// without `middle_anchor`, those of `zero_starts` if they take long, else those of `segments`.
/// Where blocks have too little shared memory, `tensor_core` may still fit. Problems that the tensor cores do not
/// support are computed in fp32 by `recurrent_gpu`: widths that are no multiple of 16 or too large, and rows that are
/// not aligned. One kernel each copies q, k and v to fp32, and one copies the result back.
/// Improves on: `cluster` supports neither every width nor every alignment, and leaves multiprocessors idle where heads
/// are few.
/// Unchanged: the kernels, shapes and bytes of what it chooses.
/// Bound by: as what it chooses.
/// Requires: Dk <= 256.
/// Weakness: rows that are not aligned, and widths that are no multiple of 16, could be copied to aligned bf16 rows of
/// a suitable width. The number of segments does not look at the gates, nor does the choice between `cluster` and
/// `one_anchor`: where they are so strong that chunks take the long way (sub_chunk_anchors.cuh), both are slower than
/// the estimate.

#include <cuda_runtime.h>

#include <algorithm>
#include <functional>
#include <string>

#include "05_deltanet_wy/delta_rule/dispatch/requirements.hpp"
#include "05_deltanet_wy/delta_rule/dispatch/wide_keys.hpp"
#include "05_deltanet_wy/kda.hpp"
#include "05_deltanet_wy/kda/dispatch/middle_anchor.hpp"
#include "05_deltanet_wy/kda/dispatch/segments.hpp"
#include "05_deltanet_wy/kda/dispatch/specialized_warps.hpp"
#include "05_deltanet_wy/kda/dispatch/zero_starts.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/device/fp32_copies.cuh"
#include "common/device/workspace.hpp"
#include "common/estimate/card.hpp"

namespace tutorial::kda {
namespace {

/// The same problem in fp32.
FloatArguments in_fp32(const Bf16Arguments& a, const Fp32Copies& copies) {
  const auto read = [](const View<float>& x) { return View<const float>{x.data, x.stride_b, x.stride_h, x.stride_l}; };
  return {a.B,
          a.H,
          a.L,
          a.Dk,
          a.Dv,
          a.C,
          a.scale,
          a.normalize_keys,
          read(copies.q),
          read(copies.k),
          read(copies.v),
          a.g,
          a.beta,
          a.initial_state,
          copies.o,
          a.final_state};
}

// Clocks with Dk = Dv = 128: of `cluster` until the first chunk is prepared, and for a chunk; and of `one_anchor` for a
// chunk of the walk.
constexpr double kFirstClocks = 17820, kClusterClocks = 5640, kWalkClocks = 1880;
// Up to so many positions one launch is faster than two, if all clusters run at once: on an H100 `cluster` takes 0.0116 ms
// for 32 heads of 32 positions and 0.0131 for 128, and `one_anchor` 0.0123 and 0.0136.
constexpr int kFewPositions = 128;
// Segments of `middle_anchor` of a sequence of fewer positions are too short to forget with gates as usual: with 32 heads
// of 512 positions an H200 takes 0.0353 ms, where `one_anchor` takes 0.0222; of 1024 it takes 0.0458, and 0.0507.
// Gates of -5 sigmoid(x) forget soon enough, and lose: 0.0199 and 0.0253 for 512 positions.
constexpr int kFewToCut = 1024;
// Of `one_anchor`: microseconds of its two launches, and the speed of its bytes as a multiple of a copy's.
constexpr double kTwoLaunches = 9, kBytesSpeed = 0.95;
// Microseconds: of a kernel that finds that gates do not allow it to start from zeros, of two that find that they did,
// and of a thousand blocks of these.
constexpr double kRefusal = 15, kNothingToDo = 3, kThousandBlocks = 0.6;

/// Microseconds of `cluster` for so many clusters with so many chunks.
double cluster_time(std::int64_t clusters, double chunks) {
  const std::int64_t at_a_time = std::max(1, clusters_at_a_time(2));
  return estimate::card().microseconds(kFirstClocks + double(ceil_div(clusters, at_a_time)) * chunks * kClusterClocks);
}

std::int64_t clusters_of(const Bf16Arguments& a) {
  return std::int64_t(a.B) * a.H * ceil_div(a.Dv, 128);
}

/// Microseconds of the kernels of `one_anchor`.
/// @param chunks that the blocks of the walk have one after the other
double two_kernels_time(const Bf16Arguments& a, std::int64_t chunks) {
  const std::int64_t heads = std::int64_t(a.B) * a.H;
  const estimate::Card card = estimate::card();
  // The walk reads what the first kernel has written once per tile, all but once from the second-level cache.
  const double written = double(two_products_memory(a)), read = double(heads * a.L) * double(8 * a.Dk);
  const double walk = std::max(card.microseconds(double(chunks) * kWalkClocks),
                               card.transfer(written + double(heads * a.L) * double(4 * a.Dv), kBytesSpeed));
  return kTwoLaunches + card.transfer(read + written, kBytesSpeed) + walk;
}

/// Those of `one_anchor`.
double one_anchor_time(const Bf16Arguments& a) {
  return two_kernels_time(a, chunks_in_line(a, tile::make_launch_plan(a.L, 64, 1)));
}

/// The bounds are rough, but far from the point where they are equal the choice is clear, and near it either will do.
bool cluster_is_faster(const Bf16Arguments& a) {
  if (!one_anchor_unsupported(a).empty()) return false;
  if (a.L <= kFewPositions && clusters_of(a) <= clusters_at_a_time(2)) return true;
  return cluster_time(clusters_of(a), double(ceil_div(a.L, 64))) < one_anchor_time(a);
}

/// With up to 64 rows of the state, half of its products would be of zeros. A single chunk has no state to wait for, and
/// takes 0.0067 ms on an H200 where `cluster` takes 0.0111.
bool middle_anchor_is_faster(const Bf16Arguments& a) {
  if (a.Dk <= 64 || !one_anchor_unsupported(a).empty()) return false;
  return a.L >= kFewToCut || (one_wave_of_blocks(a).segments == 1 && (a.L <= 64 || a.L > kFewPositions));
}

/// The segments of `segments`. A single one where they gain little: with 32 heads of 16384 positions an H100 was slower.
/// Where gates are weak a short sequence may lose: with 12 heads of 2048 positions 15 %, where other gates gain 22 %.
tile::LaunchPlan worthwhile_segments(const Bf16Arguments& a) {
  const tile::LaunchPlan plan = shortest_segments(a);
  const bool is_faster = two_kernels_time(a, chunks_in_line(a, plan)) < 0.85 * one_anchor_time(a);
  return is_faster ? plan : tile::make_launch_plan(a.L, 64, 1);
}

/// The segments of `cluster` that are to be tried before `segments`: as many as run at once. A single one if that would
/// not be faster, or if the question whether the gates allow it would take more than 2 % of the time of gates that do
/// not.
tile::LaunchPlan segments_of_clusters(const Bf16Arguments& a, const tile::LaunchPlan& exact) {
  const tile::LaunchPlan one = tile::make_launch_plan(a.L, 64, 1), plan = one_wave_of_clusters(a);
  if (plan.segments == 1 || exact.segments == 1 || one_anchor_time(a) < kRefusal / 0.02) return one;
  const double blocks = double(a.B) * a.H * ceil_div(a.L, 64);
  const double time = cluster_time(clusters_of(a) * plan.segments, plan.length / 64 + 1) + kNothingToDo +
                      blocks / 1000 * kThousandBlocks;
  return time < two_kernels_time(a, chunks_in_line(a, exact)) ? plan : one;
}

/// A kernel, and what is to be said about it.
struct Choice {
  std::function<void()> run;
  std::string note;
  std::int64_t memory = 0, bytes_moved = -1;
  std::string unsupported = "";
};

/// @param why no kernel on bf16 supports the problem
Choice choose_in_fp32(const Bf16Arguments& a, const std::string& why) {
  if (a.Dk > delta_rule::kWidestInRegisters) {
    const delta_rule::Bf16Arguments rule{
        a.B, a.H,          a.L, a.Dk, a.Dv, a.C, a.scale, a.normalize_keys, a.q, a.k, a.v, a.beta, a.initial_state,
        a.o, a.final_state};
    return {[a, rule] { delta_rule::wide_keys(rule, a.Dk, a.g); }, "wide_keys in fp32: " + why, 0, -1,
            delta_rule::wide_keys_unsupported(rule)};
  }
  const auto run = [a] {
    const Fp32Copies copies(a, workspace<float>("kda: q, k, v, o in fp32", std::size_t(Fp32Copies::count(a))));
    copies.load(a);
    recurrent_gpu(in_fp32(a, copies));
    copies.store(a);
  };
  Choice choice{run, "recurrent_gpu in fp32: " + why, std::int64_t(sizeof(float)) * Fp32Copies::count(a)};
  choice.unsupported = convert_unsupported(a.B, a.H, a.L);
  if (choice.unsupported.empty()) choice.unsupported = recurrent_gpu_unsupported(in_fp32(a, Fp32Copies(a, nullptr)));
  return choice;
}

/// The kernel that supports the problem, and the faster one of two.
Choice choose(const Bf16Arguments& a) {
  if (middle_anchor_is_faster(a)) {
    const tile::LaunchPlan plan = one_wave_of_blocks(a);
    std::string note = "middle_anchor";
    if (plan.segments > 1) {
      note += ", " + std::to_string(plan.segments) + " segments, or " + std::to_string(plan_of_past(a).segments);
    }
    return {[a, plan] { middle_anchor(a, plan); }, note, middle_anchor_memory(a)};
  }
  if (cluster_is_faster(a)) return {[a] { cluster(a); }, "clusters of two blocks", 0, cluster_bytes_moved(a)};
  if (one_anchor_unsupported(a).empty()) {
    const tile::LaunchPlan plan = worthwhile_segments(a), of_clusters = segments_of_clusters(a, plan);
    if (of_clusters.segments > 1) {
      return {[a, plan, of_clusters] { zero_starts(a, of_clusters, plan); },
              std::to_string(of_clusters.segments) + " segments of clusters, or " + std::to_string(plan.segments) +
                  " segments",
              zero_starts_memory(a)};
    }
    if (plan.segments > 1) {
      return {[a, plan] { segments(a, plan); }, std::to_string(plan.segments) + " segments", segments_memory(a)};
    }
    return {[a] { one_anchor(a); }, "one_anchor", two_products_memory(a), one_anchor_bytes_moved(a)};
  }
  if (warpgroups_unsupported(a).empty()) {
    return {[a] { two_products(a); }, "two_products", two_products_memory(a), two_products_bytes_moved(a)};
  }
  const std::string no_specialized_warps = specialized_warps_unsupported(a);
  if (no_specialized_warps.empty()) {
    return {[a] { specialized_warps(a); },
            "specialized warps, " + std::to_string(specialized_warps_columns(a)) + " columns per block",
            tensor_core_memory(a), specialized_warps_bytes_moved(a)};
  }
  if (const std::string why = tensor_core_unsupported(a); !why.empty()) return choose_in_fp32(a, why);
  return {[a] { tensor_core(a); }, "tensor_core: " + no_specialized_warps, tensor_core_memory(a),
          tensor_core_bytes_moved(a)};
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

}  // namespace tutorial::kda
