/// @file
/// `dispatch`: what a user calls. It adds no product of its own. It chooses a kernel, the number of segments
/// and the width of a tile, and it supports what the earlier stages do not.
///
/// Idea: estimate the time of each launch plan and choose the fastest. The time of a walk is that of the chunks which
/// one block computes one after the other. Segments shorten the walk, but they add a first walk over K and V, two more
/// launches, and states that pass through memory. On Hopper the kernel is `queued_products`, or `warpgroup_mma` for a single
/// chunk, which has nothing to hand from role to role. With segments or a normaliser it is that of dispatch/hopper_walk.cuh,
/// which does the same. A multiprocessor has one block of it, and a chunk takes longer when all blocks together request
/// more bytes than the memory delivers. Cards without products of warpgroups have two kernels. The tiles of 128 columns of dispatch/roles_walk.cuh fit into 99 KB, and it has one block per
/// multiprocessor. It takes about as long for a chunk as dispatch/walk.cuh does with a block of the same columns alone on
/// its multiprocessor. That of dispatch/walk.cuh also supports the normaliser and Dk > 128,
/// and on Hopper tensors that bulk copies do not support. There a chunk takes longer when a multiprocessor has two
/// blocks, but not twice as long. Tiles of half the width double the number of blocks, but Q and K are then read twice
/// from the second-level cache.
/// Improves on: `queued_products` and `pipelined` leave multiprocessors idle when there are few heads;
/// `segments` reads K and V twice and starts three kernels where one could do. None of them supports every
/// width.
/// Unchanged: the kernels' products, shapes and bytes.
/// Fallback: if the tensor-core kernels do not support a width, or rows are not aligned, `fused` computes in fp32, on
/// copies of q, k, v and o.
///
/// Normaliser: o_t = scale q_t S_t / (scale q_t . z_t + eps) is computed inside the walk, as dispatch/normalizer.cuh
/// and dispatch/hopper_walk.cuh explain. So its bytes are those of q, k, v and o, as without the normaliser. In fp32
/// `fused` runs a second time, with a column of ones for V, and a third kernel divides.
/// Bound by, Requires: as the kernels that it chooses.
/// Weakness: the times of a chunk were measured on an H200 (docs/notebook shows the choices that result). On another
/// GPU only their ratios matter. They were measured at Dk = Dv = 128, and other widths are interpolated.

#include <cuda_runtime.h>

#include "02_chunkwise/linear_attention.hpp"
#include "02_chunkwise/linear_attention/dispatch/walk.hpp"
#include "02_chunkwise/linear_attention/requirements.hpp"
#include "02_chunkwise/normalized.hpp"
#include "common/device/device.hpp"
#include "common/device/fp32_copies.cuh"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/workspace.hpp"
#include "common/estimate/walk_times.hpp"
#include "common/tile/bulk_requirements.hpp"

namespace tutorial::linear_attention {
namespace {

using namespace tile;
using namespace estimate;

constexpr WalkClocks kWarpClocks{.narrow = {.walk = {3960, 7130}, .states = {1390, 2380}},
                                 .wide = {.walk = {5740, 10500}, .states = {1780, 3560}}};

// Those of roles_walk(), whose block has its multiprocessor for itself. Those of 128 columns were measured; 64 columns are
// taken to be as fast as above.
constexpr WalkClocks kRolesClocks{
    .narrow = {.walk = {3960}, .states = {1390}}, .wide = {.walk = {5940}, .states = {1780}}, .resident = 1};

// Those on warpgroups. With the normaliser, the warps that add up keys compete with all other roles for shared memory.
constexpr ExclusiveWalkClocks kWarpgroupClocks{.walk = 1490, .states = 790, .bytes_speed = 1.09};
constexpr ExclusiveWalkClocks kNormalizedClocks{.walk = 1660, .states = 790, .bytes_speed = 1.05};

constexpr int kChunkLength = 64;

/// What computes the chunks.
enum class Kernel {
  kWarpgroupMma,
  kQueuedProducts,
  kWarpgroups,
  kRolesByBulkCopies,
  kRolesByCpAsync,
  kWarps,
  kFusedInFp32
};

/// What dispatch does with a problem.
struct Choice {
  Kernel kernel;
  LaunchPlan plan;      ///< of the walks; kFusedInFp32 has none
  std::string note;     ///< the choice in words
  std::int64_t memory;  ///< bytes beside inputs and outputs
};

Choice choose(const Bf16Arguments& a, bool is_normalized) {
  const std::int64_t heads = std::int64_t(a.B) * a.H;
  if (const std::string reason = tensor_core_unsupported(a); !reason.empty()) {
    const std::int64_t denominators = is_normalized ? heads * a.L + 1 : 0;
    return {Kernel::kFusedInFp32,
            {},
            "fused in fp32: " + reason,
            std::int64_t(sizeof(float)) * (Fp32Copies::count(a) + denominators)};
  }
  const Extents extents = extents_of(a);
  const auto walk = [&](Kernel kernel, const char* name, const LaunchPlan& plan) {
    const std::string segments = plan.segments > 1 ? std::to_string(plan.segments) + " segments, " : "";
    const std::int64_t starts_of_z = is_normalized ? heads * (plan.segments - 1) * a.Dk : 0;
    return Choice{kernel, plan,
                  std::string(name) + ", " + segments + std::to_string(plan.columns) + " columns per block",
                  launch_plan_memory(extents, plan) + std::int64_t(sizeof(float)) * starts_of_z};
  };
  if (warpgroup_mma_unsupported(a).empty()) {
    const LaunchPlan plan = fastest_plan(extents, is_normalized ? kNormalizedClocks : kWarpgroupClocks);
    if (is_normalized || plan.segments > 1) return walk(Kernel::kWarpgroups, "warpgroups", plan);
    // A single chunk has nothing to hand from role to role.
    return a.L <= kChunkLength ? walk(Kernel::kWarpgroupMma, "warpgroup_mma", plan)
                               : walk(Kernel::kQueuedProducts, "queued_products", plan);
  }
  const LaunchPlan warps = fastest_plan(extents, kWarpClocks);
  // Roles are for cards without products of warpgroups, for Dk <= 128, and without the normaliser.
  if (!warpgroup_products_missing().empty() && a.Dk <= 128 && !is_normalized) {
    const LaunchPlan roles = fastest_plan(extents, kRolesClocks, a.Dv > 64 ? 128 : 64);
    if (walk_time(extents, kRolesClocks, roles) <= walk_time(extents, kWarpClocks, warps)) {
      return tile::bulk_copies_unsupported(a).empty() ? walk(Kernel::kRolesByBulkCopies, "roles, bulk copies", roles)
                                                      : walk(Kernel::kRolesByCpAsync, "roles, cp.async", roles);
    }
  }
  return walk(Kernel::kWarps, "mma by warps", warps);
}

FloatArguments in_fp32(const Bf16Arguments& a, const Fp32Copies& copies) {
  return {a.B,
          a.H,
          a.L,
          a.Dk,
          a.Dv,
          a.C,
          a.scale,
          read_only(copies.q),
          read_only(copies.k),
          read_only(copies.v),
          a.initial_state,
          copies.o,
          a.final_state};
}

/// Runs `fused` on copies in fp32, where it leaves o. Returns the arguments of `fused`.
FloatArguments fused_in_fp32(const Bf16Arguments& a) {
  const Fp32Copies copies(a,
                          workspace<float>("linear_attention: q, k, v, o in fp32", std::size_t(Fp32Copies::count(a))));
  copies.load(a);
  const FloatArguments f = in_fp32(a, copies);
  fused(f);
  return f;
}

__global__ void one_kernel(float* one) {
  store_global(one, 1.0f);
}

/// o[t] = numerators[t] / (denominators[t] + eps), with one warp per row. Grid ceil(B H L / rows per block).
__global__ void divide_kernel(Bf16Arguments a, View<float> numerators, View<float> denominators, float eps) {
  const std::int64_t row = std::int64_t(blockIdx.x) * blockDim.y + threadIdx.y, head = row / a.L, t = row % a.L;
  if (head >= std::int64_t(a.B) * a.H) return;
  const std::int64_t b = head / a.H, h = head % a.H;
  const float factor = 1.0f / (load_global(denominators.row(b, h, t)) + eps);
  for (int j = int(threadIdx.x); j < a.Dv; j += 32) {
    store_global(a.o.row(b, h, t) + j, __float2bfloat16(factor * load_global(numerators.row(b, h, t) + j)));
  }
}

/// o = numerators / (denominators + eps), both by `fused`.
void normalized_in_fp32(const NormalizedBf16Arguments& n) {
  const Bf16Arguments& a = n.attention;
  const FloatArguments f = fused_in_fp32(a);
  // The denominators: V is one column of ones, a single element that all rows are views of.
  const std::int64_t rows = std::int64_t(a.B) * a.H * a.L;
  auto* memory = workspace<float>("linear_attention: denominators", std::size_t(rows) + 1);
  launch(one_kernel, {1, 1}, memory);
  FloatArguments d = f;
  d.Dv = 1;
  d.v = {memory, 0, 0, 0};
  d.o = packed(memory + 1, a.H, a.L, 1);
  d.initial_state = packed(n.normalizer.initial_z, a.H, a.Dk, 1);
  d.final_state = packed(n.normalizer.final_z, a.H, a.Dk, 1);
  fused(d);
  constexpr unsigned kRows = 8;  // per block
  launch(divide_kernel, {unsigned((rows - 1) / kRows + 1), dim3(32, kRows)}, a, f.o, d.o, n.normalizer.eps);
}

}  // namespace

void dispatch(const Bf16Arguments& a) {
  const Choice choice = choose(a, false);
  switch (choice.kernel) {
    case Kernel::kWarpgroupMma:
      return warpgroup_mma(a);
    case Kernel::kQueuedProducts:
      return queued_products(a);
    case Kernel::kWarpgroups:
      return hopper_walk(a, choice.plan);
    case Kernel::kRolesByBulkCopies:
      return roles_walk(a, choice.plan, RolesLoader::kBulkCopies);
    case Kernel::kRolesByCpAsync:
      return roles_walk(a, choice.plan, RolesLoader::kCpAsync);
    case Kernel::kWarps:
      return walk(a, choice.plan);
    case Kernel::kFusedInFp32:
      return convert(a.B, a.H, a.L, a.Dv, fused_in_fp32(a).o, a.o);
  }
}

void dispatch_normalized(const NormalizedBf16Arguments& n) {
  const Choice choice = choose(n.attention, true);
  if (choice.kernel == Kernel::kFusedInFp32) return normalized_in_fp32(n);
  (choice.kernel == Kernel::kWarpgroups ? hopper_walk : walk)(n.attention, choice.plan, &n.normalizer);
}

std::string dispatch_unsupported(const Bf16Arguments& a) {
  if (tensor_core_unsupported(a).empty()) return "";
  if (const std::string reason = convert_unsupported(a.B, a.H, a.L); !reason.empty()) return reason;
  return fused_unsupported(in_fp32(a, Fp32Copies(a, nullptr)));
}

std::string dispatch_note(const Bf16Arguments& a) {
  return choose(a, false).note;
}

std::int64_t dispatch_memory(const Bf16Arguments& a) {
  return choose(a, false).memory;
}

std::string dispatch_normalized_unsupported(const NormalizedBf16Arguments& n) {
  return dispatch_unsupported(n.attention);
}

std::string dispatch_normalized_note(const NormalizedBf16Arguments& n) {
  return choose(n.attention, true).note;
}

std::int64_t dispatch_normalized_memory(const NormalizedBf16Arguments& n) {
  return choose(n.attention, true).memory;
}

}  // namespace tutorial::linear_attention
