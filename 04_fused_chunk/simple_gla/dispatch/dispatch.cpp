/// @file
/// `dispatch`: what a user calls. It adds no kernel but chooses one.
///
/// Idea: estimate the time of each way to compute the problem on this GPU, and take the shortest. For the walk this is
/// chapter 02's estimate with the times of a chunk with scalar gates. It chooses the number of segments and the width
/// of a tile; one segment is `fused`. Cards without products of warpgroups have a second walk for Dk <= 128
/// (dispatch/roles_walk.cuh). Its tiles of 128 columns fit into 99 KB, and it has one block per multiprocessor. It takes
/// about as long for a chunk as the first walk does with a block of the same columns alone on its multiprocessor. The time of `two_kernels` is the sum of three: its launches, the longer of its walk
/// and the bytes of its first kernel, and the bytes of its second kernel. On Hopper the walk is that of
/// `bounded_start`, or of `register_scores` if there is one segment; only the number of segments has to be chosen.
/// Improves on: `bounded_start` walks from position 0 in each block if gates forget nothing. `dispatch` has another exact
/// way for that (dispatch/hopper_walk.cu). `bounded_start` and `segments` always take as many segments as fill the GPU
/// once, even if another number would be faster. For short sequences `two_kernels` is faster. None of them supports every
/// width.
/// Unchanged: the kernels, shapes and bytes of the stage that it chooses.
/// Bound by, Requires: as the stage that it chooses. If Dk > 128 and the tiles of the walk do not fit into the shared
/// memory of this GPU, it chooses `two_kernels`. Widths that are no multiple of 16, widths too large for the registers,
/// and unaligned rows go to chapter 03's dispatch (dispatch/as_gla.hpp).
/// Weakness: it relies on estimates. If two ways take about as long, it may choose the slower one. The times were
/// measured on an H200 at Dk = Dv = 128; that of the walk with roles was not measured with tiles of 64 columns.

#include <algorithm>

#include "04_fused_chunk/simple_gla/dispatch/as_gla.hpp"
#include "04_fused_chunk/simple_gla/dispatch/roles_walk.hpp"
#include "04_fused_chunk/simple_gla/dispatch/walks.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/estimate/card.hpp"
#include "common/estimate/walk_times.hpp"

namespace tutorial::simple_gla {
namespace {

// Measured on an H200.
constexpr estimate::WalkClocks kWarpClocks{.narrow = {.walk = {4950, 8120}, .states = {1780, 2570}},
                                           .wide = {.walk = {6930, 11900}, .states = {2570, 4750}}};
// Those of roles_walk(), whose block has its multiprocessor for itself. Those of 128 columns were measured; 64 columns are
// taken to be as fast as above.
constexpr estimate::WalkClocks kRolesClocks{
    .narrow = {.walk = {4950}, .states = {1780}}, .wide = {.walk = {7330}, .states = {1980}}, .resident = 1};
// Of `two_kernels`: microseconds, clocks for the state of a chunk, and the speed of its bytes as a multiple of a copy's.
constexpr double kTwoLaunches = 5, kStateClocks = 1780, kBytesSpeed = 0.88;

/// A way to compute a problem, and what is to be said of it.
struct Kernels {
  void (*run)(const Bf16Arguments&, const LaunchPlan&);
  std::string (*note)(const Bf16Arguments&, const LaunchPlan&);
  std::int64_t (*memory)(const Bf16Arguments&, const LaunchPlan&);
  std::int64_t (*bytes_moved)(const Bf16Arguments&, const LaunchPlan&);
};

/// The plan as text, without what there is only one of.
std::string text_of(const LaunchPlan& plan) {
  return (plan.segments > 1 ? std::to_string(plan.segments) + " segments, " : "") + std::to_string(plan.columns) +
         " columns per block";
}

constexpr Kernels kAsGla{
    .run = [](const Bf16Arguments& a, const LaunchPlan&) { dispatch_as_gla(a); },
    .note = [](const Bf16Arguments& a, const LaunchPlan&) { return "gla's dispatch, " + as_gla_note(a); },
    .memory = [](const Bf16Arguments& a, const LaunchPlan&) { return as_gla_memory(a); },
    .bytes_moved = [](const Bf16Arguments&, const LaunchPlan&) { return std::int64_t(-1); }};

constexpr Kernels kTwoKernels{
    .run = [](const Bf16Arguments& a, const LaunchPlan&) { two_kernels(a); },
    .note = [](const Bf16Arguments&, const LaunchPlan&) { return std::string("two_kernels"); },
    .memory = [](const Bf16Arguments& a, const LaunchPlan&) { return two_kernels_memory(a); },
    .bytes_moved = [](const Bf16Arguments& a, const LaunchPlan&) { return two_kernels_bytes_moved(a); }};

constexpr Kernels kWalk{
    .run = [](const Bf16Arguments& a, const LaunchPlan& plan) { walk(a, plan); },
    .note = [](const Bf16Arguments&,
               const LaunchPlan& plan) { return (plan.segments > 1 ? "segments, " : "fused, ") + text_of(plan); },
    .memory = walk_memory,
    .bytes_moved = walk_bytes_moved};

constexpr Kernels kRolesWalk{
    .run = [](const Bf16Arguments& a, const LaunchPlan& plan) { roles_walk(a, plan, roles_loader(a)); },
    .note =
        [](const Bf16Arguments& a, const LaunchPlan& plan) {
          const bool by_bulk_copies = roles_loader(a) == RolesLoader::kBulkCopies;
          return (by_bulk_copies ? "roles, bulk copies, " : "roles, cp.async, ") + text_of(plan);
        },
    .memory = walk_memory,
    .bytes_moved = roles_walk_bytes_moved};

constexpr Kernels kHopperWalk{
    .run = [](const Bf16Arguments& a, const LaunchPlan& plan) { hopper_walk(a, plan, warm_up_reach(plan)); },
    .note =
        [](const Bf16Arguments&, const LaunchPlan& plan) {
          return (plan.segments > 1 ? "bounded_start, " : "register_scores, ") + text_of(plan);
        },
    .memory = hopper_walk_memory,
    .bytes_moved = hopper_walk_bytes_moved};

/// What dispatch chooses for a problem.
struct Choice {
  const Kernels* kernels;
  LaunchPlan plan;  ///< of a walk
};

/// The estimated time of `two_kernels` in microseconds. Each of the two kernels moves about half of its bytes. The
/// bytes of the initial and final state are left out, as in the estimates of the walk.
double two_kernels_time(Bf16Arguments a) {
  a.initial_state.data = nullptr;
  a.final_state.data = nullptr;
  const estimate::Card card = estimate::card();
  const double half = card.transfer(double(two_kernels_bytes_moved(a)) / 2, kBytesSpeed);
  return kTwoLaunches + std::max(card.microseconds(kStateClocks * ceil_div(a.L, 64)), half) + half;
}

/// If there are only sizes and no tensors: as if the tensors were packed.
Bf16Arguments with_tensors(Bf16Arguments a) {
  if (a.q.data) return a;
  a.q = a.k = packed<const __nv_bfloat16>(nullptr, a.H, a.L, a.Dk);
  a.v = packed<const __nv_bfloat16>(nullptr, a.H, a.L, a.Dv);
  a.o = packed<__nv_bfloat16>(nullptr, a.H, a.L, a.Dv);
  return a;
}

Choice choose(const Bf16Arguments& a) {
  const tile::Extents extents = tile::extents_of(a);
  if (!two_kernels_unsupported(a).empty()) return {&kAsGla, {}};
  if (specialized_unsupported(a).empty()) return {&kHopperWalk, hopper_plan(extents)};
  Choice walks{&kWalk, estimate::fastest_plan(extents, kWarpClocks)};
  if (!fused_unsupported(a).empty()) return {&kTwoKernels, walks.plan};
  double time = estimate::walk_time(extents, kWarpClocks, walks.plan);
  if (!warpgroup_products_missing().empty() && a.Dk <= 128) {
    const LaunchPlan plan = estimate::fastest_plan(extents, kRolesClocks, a.Dv > 64 ? 128 : 64);
    const double roles_time = estimate::walk_time(extents, kRolesClocks, plan);
    if (roles_time <= time) walks = {&kRolesWalk, plan}, time = roles_time;
  }
  return time <= two_kernels_time(a) ? walks : Choice{&kTwoKernels, walks.plan};
}

}  // namespace

void dispatch(const Bf16Arguments& a) {
  const Choice choice = choose(a);
  choice.kernels->run(a, choice.plan);
}

std::string dispatch_unsupported(const Bf16Arguments& a) {
  return two_kernels_unsupported(a).empty() ? "" : as_gla_unsupported(a);
}

std::string dispatch_note(const Bf16Arguments& a) {
  const Choice choice = choose(a);
  return choice.kernels->note(a, choice.plan);
}

std::int64_t dispatch_memory(const Bf16Arguments& a) {
  if (!two_kernels_unsupported(a).empty()) return as_gla_memory(a);  // before there are tensors, too
  const Choice choice = choose(with_tensors(a));
  return choice.kernels->memory(a, choice.plan);
}

std::int64_t dispatch_bytes_moved(const Bf16Arguments& a) {
  const Choice choice = choose(a);
  return choice.kernels->bytes_moved(a, choice.plan);
}

}  // namespace tutorial::simple_gla
