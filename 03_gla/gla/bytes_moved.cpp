/// @file
/// The bytes that the kernels of a walk read from device memory or write to it.

#include "03_gla/gla/launch_plan.hpp"
#include "03_gla/gla/prepare.hpp"
#include "common/ceil_div.hpp"
#include "common/tile/carried_bytes.hpp"
#include "common/tile/sub_chunk.hpp"

namespace tutorial::gla {
namespace {

using tile::kSubChunk;
using tile::kSubChunks;

constexpr int kChunkLength = kSubChunk * kSubChunks;

/// Of prepare(), per head: lanes without elements of Dk load, too, and rows past the end; and it writes its workspace.
std::int64_t prepare_bytes(const Bf16Arguments& a) {
  const int slice = a.Dk <= 64 ? 64 : 128;
  const std::int64_t rows = std::int64_t(kChunkLength) * ceil_div(a.L, kChunkLength);
  return rows * ceil_div(a.Dk, slice) * slice * (2 + 2 + 4);
}

/// Of the kernels for the states of segments, per head.
std::int64_t segment_bytes(const Bf16Arguments& a, const LaunchPlan& plan) {
  const int count = plan.segments - 1;
  if (count == 0) return 0;
  const std::int64_t Dk = a.Dk, rows = std::int64_t(count) * plan.length, tiles = ceil_div(a.Dv, plan.columns);
  const std::int64_t keys_and_decays = tiles * rows * (2 * Dk + 4 * Dk / kSubChunk), values = rows * 2 * a.Dv;
  const std::int64_t states_and_decays = 4 * count * (Dk * a.Dv + Dk);
  return keys_and_decays + values + states_and_decays +
         tile::carried_bytes(a.Dk, a.Dv, count, a.initial_state.data != nullptr, 1);
}

/// Of the walk, per head.
std::int64_t outputs_bytes(const Bf16Arguments& a, const LaunchPlan& plan) {
  const std::int64_t Dk = a.Dk, Dv = a.Dv, chunks = ceil_div(a.L, kChunkLength), tiles = ceil_div(Dv, plan.columns);
  const std::int64_t of_a_chunk = kChunkLength * (2 * Dk + 2 * Dk + 2 * kSubChunk) + 4 * kSubChunks * Dk;
  const int states = (a.initial_state.data != nullptr) + plan.segments - 1 + (a.final_state.data != nullptr);
  return tiles * chunks * of_a_chunk + a.L * (2 + 2) * Dv + 4 * states * Dk * Dv;
}

}  // namespace

std::int64_t walk_bytes_moved(const Bf16Arguments& a, const LaunchPlan& plan) {
  const std::int64_t of_a_head = prepare_bytes(a) + segment_bytes(a, plan) + outputs_bytes(a, plan);
  return std::int64_t(a.B) * a.H * of_a_head + prepared_memory(a);
}

}  // namespace tutorial::gla
