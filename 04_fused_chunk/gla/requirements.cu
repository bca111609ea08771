/// @file
/// What the stages require of a problem, the memory that they take, what they choose, and the bytes that their kernels
/// read from device memory or write to it.

#include "common/tile/requirements.hpp"

#include "04_fused_chunk/gla/intermediates.hpp"
#include "04_fused_chunk/gla/launch_plan.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/tile/bulk_requirements.hpp"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/carried_bytes.hpp"
#include "common/tile/float_panels.cuh"

namespace tutorial::fused_gla {
namespace {

constexpr int kChunkLength = kSubChunk * tile::kSubChunks;

/// Positions of all heads.
std::int64_t positions(const Bf16Arguments& a) {
  return std::int64_t(a.B) * a.H * a.L;
}

/// Of reading the initial state and writing the final state.
std::int64_t state_bytes(const Bf16Arguments& a) {
  const int states = (a.initial_state.data != nullptr) + (a.final_state.data != nullptr);
  return std::int64_t(4) * states * a.B * a.H * a.Dk * a.Dv;
}

std::int64_t decay_cumsum_bytes(const Bf16Arguments& a) {
  return (4 + 4) * positions(a) * a.Dk;  // g; sums
}

std::int64_t prepare_qg_kg_bytes(const Bf16Arguments& a) {
  return (4 + 2 + 2 + 2 + 2) * positions(a) * a.Dk;  // sums, q, k; q_g, k_g
}

std::int64_t prepare_bytes(const Bf16Arguments& a) {
  return (4 + 2 + 2 + 4 + 2 + 2) * positions(a) * a.Dk;  // g, q, k; sums, q_g, k_g
}

/// What a walk reads of q_g, k_g and the last rows of sums, once for each slice of Dv.
std::int64_t prepared_key_bytes(const Bf16Arguments& a) {
  const std::int64_t last_rows = std::int64_t(a.B) * a.H * sub_chunks(a.L);
  return ((2 + 2) * positions(a) + 4 * last_rows) * a.Dk * slices(a.Dv);
}

std::int64_t fused_chunk_bytes(const Bf16Arguments& a) {
  const std::int64_t values = 2 * positions(a) * a.Dv * slices(a.Dk);
  return prepared_key_bytes(a) + values + partial_bytes(a) + state_bytes(a);
}

std::int64_t inner_chunk_bytes(const Bf16Arguments& a) {
  return (2 + 2 + 4) * positions(a) * a.Dk + score_bytes(a);  // q, k, sums; scores
}

std::int64_t combine_bytes(const Bf16Arguments& a) {
  return score_bytes(a) * slices(a.Dv) + partial_bytes(a) + (2 + 2) * positions(a) * a.Dv;  // v; o
}

/// Of kernels whose preparing warps read whole chunks and all columns of their shape, and at the end kAhead rows too
/// many, once for each tile of Dv.
std::int64_t prepared_beside_bytes(const Bf16Arguments& a, std::int64_t key_columns, int value_columns) {
  const std::int64_t rows = std::int64_t(kChunkLength) * ceil_div(a.L, kChunkLength) + tile::kSubChunks * kAhead;
  const std::int64_t keys = rows * key_columns * (2 + 2 + 4) * ceil_div(a.Dv, value_columns);
  return std::int64_t(a.B) * a.H * (keys + (2 + 2) * std::int64_t(a.L) * a.Dv) + state_bytes(a);  // v; o
}

/// Why the state of a warpgroup cannot be in its registers.
std::string warpgroups_unsupported(const Bf16Arguments& a) {
  if (const std::string reason = warpgroup_products_missing(); !reason.empty()) return reason;
  if (const std::string reason = one_kernel_unsupported(a); !reason.empty()) return reason;
  return a.Dk > 128 ? "Dk > 128: the state and its copies would not fit into a warpgroup's registers" : "";
}

}  // namespace

std::int64_t prepared_bytes(const Bf16Arguments& a) {
  return (4 + 2 + 2) * std::int64_t(a.B) * a.H * a.L * a.Dk;
}

std::int64_t score_bytes(const Bf16Arguments& a) {
  return 2 * std::int64_t(a.B) * a.H * sub_chunks(a.L) * kSubChunk * kSubChunk * slices(a.Dk);
}

std::int64_t partial_bytes(const Bf16Arguments& a) {
  return 4 * std::int64_t(a.B) * a.H * a.L * a.Dv * slices(a.Dk);
}

std::string five_steps_unsupported(const Bf16Arguments& a) {
  constexpr int kLongestGrid = 65535;
  if (std::int64_t(a.B) * a.H > kLongestGrid) return "B H > 65535: the grids' third dimension";
  if (sub_chunks(a.L) > kLongestGrid) return "L > 1048560: the grids' second dimension has one block per sub-chunk";
  return tile::one_set_unsupported(a);
}

std::string one_kernel_unsupported(const Bf16Arguments& a) {
  return gla::subchunk_walk_unsupported(a);
}

std::string specialized_unsupported(const Bf16Arguments& a) {
  const std::string reason = warpgroups_unsupported(a);
  return reason.empty() ? why_not_mapped(a.v, tile::tensor_sizes(a, a.Dv), 64) : reason;
}

std::string score_levels_unsupported(const Bf16Arguments& a) {
  if (const std::string reason = warpgroups_unsupported(a); !reason.empty()) return reason;
  if (const std::string reason = tile::bulk_copies_unsupported(a); !reason.empty()) return reason;
  return tile::why_floats_are_not_mapped(a.g, tile::tensor_sizes(a, a.Dk), kSubChunk);
}

std::int64_t five_steps_memory(const Bf16Arguments& a) {
  return prepared_bytes(a) + score_bytes(a) + partial_bytes(a);
}

std::int64_t intra_fused_memory(const Bf16Arguments& a) {
  return prepared_bytes(a);
}

int one_kernel_columns(const Bf16Arguments& a) {
  const std::int64_t narrow_blocks = std::int64_t(a.B) * a.H * ceil_div(a.Dv, 64);
  return narrow_blocks <= multiprocessor_count() ? 64 : tile::widest_tile(tile::extents_of(a));
}

std::int64_t five_steps_bytes_moved(const Bf16Arguments& a) {
  return decay_cumsum_bytes(a) + prepare_qg_kg_bytes(a) + fused_chunk_bytes(a) + inner_chunk_bytes(a) +
         combine_bytes(a);
}

std::int64_t intra_fused_bytes_moved(const Bf16Arguments& a) {
  const std::int64_t keys = (2 + 2 + 2 + 2 + 4) * positions(a) * a.Dk * slices(a.Dv);  // q, k, q_g, k_g, sums
  return prepare_bytes(a) + keys + (2 + 2) * positions(a) * a.Dv + state_bytes(a);     // v; o
}

std::int64_t one_kernel_bytes_moved(const Bf16Arguments& a) {
  const std::int64_t columns = a.Dk <= 64 ? 64 : a.Dk <= 128 ? 128 : 256;
  return prepared_beside_bytes(a, columns, one_kernel_columns(a));
}

std::int64_t specialized_bytes_moved(const Bf16Arguments& a) {
  return prepared_beside_bytes(a, 128, 64);
}

std::int64_t score_levels_bytes_moved(const Bf16Arguments& a) {
  // Bulk copies move what exists.
  const std::int64_t keys = (2 + 2 + 4) * positions(a) * a.Dk * ceil_div(a.Dv, one_kernel_columns(a));
  return keys + (2 + 2) * positions(a) * a.Dv + state_bytes(a);  // v; o
}

std::string segments_note(const Bf16Arguments& a) {
  const LaunchPlan plan = segments_plan(a);
  return std::to_string(plan.segments) + (plan.segments == 1 ? " segment, " : " segments, ") +
         std::to_string(plan.columns) + " columns per block";
}

std::int64_t segments_memory(const Bf16Arguments& a) {
  const LaunchPlan plan = segments_plan(a);
  const std::int64_t decays = std::int64_t(a.B) * a.H * (plan.segments - 1) * tile::kSubChunks * a.Dk;
  return tile::launch_plan_memory(tile::extents_of(a), plan) + std::int64_t(sizeof(float)) * decays;
}

std::int64_t segments_bytes_moved(const Bf16Arguments& a) {
  const LaunchPlan plan = segments_plan(a);
  const std::int64_t Dk = a.Dk, Dv = a.Dv, tiles = ceil_div(a.Dv, plan.columns), count = plan.segments - 1;
  // Bulk copies move what exists.
  const int states = (a.initial_state.data != nullptr) + (a.final_state.data != nullptr);
  std::int64_t of_head = a.L * (tiles * (2 + 2 + 4) * Dk + (2 + 2) * Dv) + 4 * (states + count) * Dk * Dv;
  if (count > 0) {
    of_head += count * plan.length * (tiles * (2 + 4) * Dk + 2 * Dv) + 4 * count * (Dk * Dv + tile::kSubChunks * Dk) +
               tile::carried_bytes(a.Dk, a.Dv, int(count), a.initial_state.data != nullptr, tile::kSubChunks);
  }
  return std::int64_t(a.B) * a.H * of_head;
}

}  // namespace tutorial::fused_gla
