/// @file
/// What the stages and the walks of dispatch require of a problem, the memory that they take, and the bytes that their
/// kernels read from device memory or write to it.

#include "common/tile/requirements.hpp"

#include <algorithm>

#include "04_fused_chunk/simple_gla/bounded_start.hpp"
#include "04_fused_chunk/simple_gla/dispatch/roles_walk.hpp"
#include "04_fused_chunk/simple_gla/dispatch/walks.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/parallel.hpp"
#include "common/tile/bulk_requirements.hpp"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/carried_bytes.hpp"

namespace tutorial::simple_gla {
namespace {

constexpr int kChunkLength = 64, kWarps = 4;

std::int64_t heads(const Bf16Arguments& a) {
  return std::int64_t(a.B) * a.H;
}

/// How many of the initial and the final state there are.
int outer_states(const Bf16Arguments& a) {
  return (a.initial_state.data != nullptr) + (a.final_state.data != nullptr);
}

/// Of the kernels for the states of segments, per head.
std::int64_t segment_bytes(const Bf16Arguments& a, const LaunchPlan& plan) {
  const int count = plan.segments - 1;
  if (count == 0) return 0;
  const std::int64_t rows = std::int64_t(count) * plan.length, tiles = ceil_div(a.Dv, plan.columns);
  const std::int64_t first_gates = count * (kWarps - 1) * 4 * kChunkLength;  // every warp reads a segment's first
  const std::int64_t keys_and_gates = tiles * (rows * (2 * a.Dk + 4) + first_gates), values = rows * 2 * a.Dv;
  const std::int64_t states_and_decays = 4 * count * (std::int64_t(a.Dk) * a.Dv + 1);
  return keys_and_gates + values + states_and_decays +
         tile::carried_bytes(a.Dk, a.Dv, count, a.initial_state.data != nullptr, 1);
}

/// Of a walk that reads every gate once, per head.
std::int64_t single_read_bytes(const Bf16Arguments& a, const LaunchPlan& plan) {
  const std::int64_t tiles = ceil_div(a.Dv, plan.columns), L = a.L;
  const int states = outer_states(a) + plan.segments - 1;
  return tiles * L * (2 * 2 * a.Dk + 4) + L * 2 * 2 * a.Dv + 4 * states * std::int64_t(a.Dk) * a.Dv;
}

/// Of the walk, per head.
std::int64_t outputs_bytes(const Bf16Arguments& a, const LaunchPlan& plan) {
  std::int64_t first_gates = 0;  // every warp reads those of a segment's first chunk
  for (int segment = 0; segment < plan.segments; ++segment) {
    first_gates += (kWarps - 1) * 4 * std::min(kChunkLength, a.L - segment * plan.length);
  }
  return single_read_bytes(a, plan) + ceil_div(a.Dv, plan.columns) * first_gates;
}

}  // namespace

std::string fused_unsupported(const Bf16Arguments& a) {
  return tile::tensor_core_unsupported(a);
}

std::string two_kernels_unsupported(const Bf16Arguments& a) {
  return tile::one_set_unsupported(a);
}

std::string specialized_unsupported(const Bf16Arguments& a) {
  if (const std::string reason = warpgroup_products_missing(); !reason.empty()) return reason;
  if (a.Dk > 128) return "Dk > 128: the state and its copy would not fit into a warpgroup's registers";
  const std::string reason = tile::tensor_core_unsupported(a);
  return reason.empty() ? tile::bulk_copies_unsupported(a) : reason;
}

LaunchPlan bounded_start_plan(const Bf16Arguments& a) {
  const std::int64_t blocks = heads(a) * ceil_div(a.Dv, 64);
  return tile::make_launch_plan(a.L, 64, int(std::max<std::int64_t>(multiprocessor_count() / blocks, 1)));
}

std::string bounded_start_note(const Bf16Arguments& a) {
  const int segments = bounded_start_plan(a).segments;
  return std::to_string(segments) + (segments == 1 ? " segment" : " segments");
}

std::int64_t chunkwise_memory(const FloatArguments& a) {
  const std::int64_t C = std::min(a.C, a.L);
  return (4 * (std::int64_t(a.Dk) * a.Dv + C * C + C * a.Dk) + 8 * C) * processor_count();
}

std::int64_t two_kernels_memory(const Bf16Arguments& a) {
  return 2 * std::int64_t(a.B) * a.H * ceil_div(a.L, 64) * a.Dk * a.Dv;
}

std::int64_t walk_memory(const Bf16Arguments& a, const LaunchPlan& plan) {
  return tile::launch_plan_memory(tile::extents_of(a), plan) +
         std::int64_t(sizeof(float)) * a.B * a.H * (plan.segments - 1);
}

std::int64_t segments_memory(const Bf16Arguments& a) {
  return walk_memory(a, tile::one_wave(tile::extents_of(a)));
}

std::int64_t hopper_walk_memory(const Bf16Arguments& a, const LaunchPlan& plan) {
  return plan.segments - 1 > warm_up_reach(plan) ? walk_memory(a, plan) : 0;
}

std::int64_t hopper_walk_bytes_moved(const Bf16Arguments& a, const LaunchPlan& plan) {
  return plan.segments == 1 ? heads(a) * single_read_bytes(a, plan) : -1;
}

std::int64_t specialized_bytes_moved(const Bf16Arguments& a) {
  return hopper_walk_bytes_moved(a, tile::make_launch_plan(a.L, 64, 1));
}

std::int64_t walk_bytes_moved(const Bf16Arguments& a, const LaunchPlan& plan) {
  return heads(a) * (segment_bytes(a, plan) + outputs_bytes(a, plan));
}

std::int64_t roles_walk_bytes_moved(const Bf16Arguments& a, const LaunchPlan& plan) {
  return heads(a) * (segment_bytes(a, plan) + single_read_bytes(a, plan));
}

std::int64_t fused_bytes_moved(const Bf16Arguments& a) {
  return walk_bytes_moved(a, tile::make_launch_plan(a.L, tile::block_columns(tile::extents_of(a)), 1));
}

std::int64_t two_kernels_bytes_moved(const Bf16Arguments& a) {
  constexpr int kTile = 64;  // rows and columns of a state in a block of the first kernel
  const std::int64_t row_tiles = ceil_div(a.Dk, kTile), column_tiles = ceil_div(a.Dv, kTile);
  const std::int64_t blocks = ceil_div(a.Dv, tile::widest_tile(tile::extents_of(a)));  // of the second, for a chunk
  const std::int64_t positions = heads(a) * a.L;
  const std::int64_t in = positions * (2 * a.Dk * column_tiles + 2 * a.Dv * row_tiles + 4 * row_tiles * column_tiles);
  const std::int64_t out = positions * ((2 + 2) * a.Dk * blocks + (2 + 2) * a.Dv + 4 * blocks);
  return in + out + 2 * two_kernels_memory(a) + 4 * outer_states(a) * heads(a) * a.Dk * a.Dv;
}

std::int64_t segments_bytes_moved(const Bf16Arguments& a) {
  return walk_bytes_moved(a, tile::one_wave(tile::extents_of(a)));
}

}  // namespace tutorial::simple_gla
