/// @file
/// `dispatch` of gla on packed sequences: what a user calls.
///
/// Idea: where `segments` can run, its kernels on the list of segments that chapter 02 makes of packed sequences
/// (hopper_walk.cu). Elsewhere what chapter 03 calls. A block of the kernels has a multiprocessor to itself, and tiles of 128
/// columns take 1.26 times as long for a chunk as those of 64. So the tiles are wide unless that leaves most multiprocessors
/// without a block.
/// Improves on: `segments` needs sequences of one length.
/// Unchanged: the kernels, shapes and bytes of what it chooses.
/// Fallback: as chapter 03's, which may compute one sequence after the other.
/// Weakness: unlike `dispatch` of sequences of one length, it does not ask how far back gates let a segment see.

#include "04_fused_chunk/gla_packed/dispatch/hopper_walk.hpp"
#include "04_fused_chunk/packed_gla.hpp"
#include "common/tile/block_columns.hpp"

namespace tutorial::fused_gla {
namespace {

constexpr int kShortest = 16 * 64;  // positions of a segment: a shorter walk ends before states were carried

tile::PackedPlan plan_of(const PackedBf16Arguments& p) {
  const tile::Extents extents = tile::extents_of(p.all);
  const tile::PackedPlan narrow = tile::packed_plan(extents, p.N, 64, kShortest);
  const int widest = tile::widest_tile(extents);
  // Narrow tiles leave a block no more than half of the shortest segment, or there are no wide ones.
  if (widest == 64 || tile::packed_plan(extents, p.N, 64, 1).length <= kShortest / 2) return narrow;
  return tile::packed_plan(extents, p.N, widest, kShortest);
}

bool is_by_warpgroups(const PackedBf16Arguments& p) {
  return score_levels_unsupported(p.all).empty();
}

}  // namespace

void dispatch_packed(const PackedBf16Arguments& p) {
  is_by_warpgroups(p) ? hopper_packed(p, plan_of(p)) : gla::dispatch_packed(p);
}

std::string dispatch_packed_unsupported(const PackedBf16Arguments& p) {
  if (!is_by_warpgroups(p)) return gla::dispatch_packed_unsupported(p);
  return tile::packed_plan_unsupported(tile::extents_of(p.all), plan_of(p));
}

std::string dispatch_packed_note(const PackedBf16Arguments& p) {
  if (!is_by_warpgroups(p)) return "chapter 03: " + gla::dispatch_packed_note(p);
  const tile::PackedPlan plan = plan_of(p);
  const std::string segments =
      plan.states > 0 ? "segments of " + std::to_string(plan.length) + " positions at most, " : "";
  return "warpgroups, " + segments + std::to_string(plan.columns) + " columns per block";
}

std::int64_t dispatch_packed_memory(const PackedBf16Arguments& p) {
  return is_by_warpgroups(p) ? hopper_packed_memory(p, plan_of(p)) : gla::dispatch_packed_memory(p);
}

}  // namespace tutorial::fused_gla
