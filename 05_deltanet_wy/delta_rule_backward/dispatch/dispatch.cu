/// @file
/// `dispatch`: what a user calls. It adds no product of its own. It chooses between `longer_chunks`, `segments` where few
/// heads would leave multiprocessors idle, `warpgroups` and `both_ends`, and supports widths, rows and keys that none of
/// them does.
///
/// Idea: a column of zeros in q and k, or in v and do, changes no other column of a gradient. So copies of the tensors
/// with widths that are multiples of 16 turn every problem up to Dk = Dv = 256 into one that `both_ends` supports, and
/// up to 128, on Hopper, the others. The copy of k is also where keys are normalised, and the copy
/// back of dk is where the gradient goes through it. Both are a pass over rows, a warp per row, beside a copy that is
/// made anyway. Where the tiles of no kernel fit into a block's shared memory, dispatch/in_fp32.cu computes the
/// gradients.
/// Improves on: none of them normalises keys or supports widths that are no multiple of 16 or rows that are not
/// aligned, and all but `both_ends` need Hopper and widths up to 128. A block of `longer_chunks` gains from the tiles that it
/// loads ahead, so it loses to `warpgroups` where it has no second pair of chunks.
/// Unchanged: the products.
/// Equation: with `normalize_keys`, y_t = f_t k_t, f_t = (k_t . k_t + eps)^(-1/2), and dk_t = f_t (dy_t - (dy_t . y_t)
/// y_t). y and dy are rounded to bf16, sums over a row are in fp32.
/// Shapes: those of the kernels; copies [B, H, L, 16 ceil(D / 16)] bf16, and of states fp32. in_fp32.cu states its
/// own, and its thread mapping and bytes.
/// Thread mapping: in the copies block (4 rows, h, b), a warp per row.
/// Bytes: where copies are needed, each of q, k, v, do and the gradients is read and written once more.
/// Bound by: as the chosen kernel.
/// Requires: Dk up to 1024.
/// Fallback: fp32, position after position, for Dk or Dv above 256, and for widths above 128 on cards whose blocks have 99
/// KB of shared memory.
/// Weakness: a normalised key that is rounded to bf16 is not exactly of length 1: its length is off by up to 2^-8.

#include "05_deltanet_wy/delta_rule_backward.hpp"
#include "05_deltanet_wy/delta_rule_backward/dispatch/choice.hpp"
#include "05_deltanet_wy/delta_rule_backward/dispatch/requirements.hpp"
#include "05_deltanet_wy/delta_rule_backward/dispatch/segments.hpp"
#include "common/ceil_div.hpp"
#include "common/estimate/card.hpp"

namespace tutorial::delta_rule {
namespace {

// Up to so many positions the start of the kernels on warpgroups takes longer than what they save: on an H100 both_ends
// takes 0.88 of their time for 32 positions, and 0.97 for 128.
constexpr int kFewPositions = 128;
constexpr double kChunkClocks = 1950;  // of the walks, with 8 heads of 16384 positions on an H200
// Where all blocks of both walks run at once, `segments` walks both at once, in one segment each. On an H200, with 32 heads,
// it takes 0.0346 ms for 512 positions, where `warpgroups` takes 0.0429, and 0.1240 for 2048, where `longer_chunks` takes
// 0.1305. Each position costs 1.05 times what it costs in `longer_chunks`, so at about this length both are equal.
constexpr int kLongestAtOnce = 4096;
// A block of `longer_chunks` takes two chunks where one of `warpgroups` takes one, and its states are half as many bytes.
// Clocks of the second chunk, and the speed of the bytes as a multiple of a copy's, so that the faster one is chosen for
// 32 heads of 512 positions on an H200 (`warpgroups`: 0.0407 ms, `longer_chunks`: 0.0420) and on an H100 (0.0441, 0.0426).
constexpr double kSecondChunkClocks = 13900, kBytesSpeed = 0.6;

/// The fastest kernel for a problem that `both_ends` supports.
Kernel<Bf16BackwardArguments> fastest(const Bf16BackwardArguments& g) {
  if (g.L <= kFewPositions || !warpgroups_backward_unsupported(g).empty())
    return {"both_ends", both_ends_backward, both_ends_backward_memory};
  if (segments_are_faster(g, kChunkClocks, false)) return {"segments", segments_backward, segments_backward_memory};
  const std::int64_t heads = std::int64_t(g.B) * g.H, pairs = heads * ceil_div(g.L, 128);  // of chunks
  const double fewer_bytes = double(warpgroups_backward_bytes_moved(g) - longer_chunks_backward_bytes_moved(g));
  const estimate::Card card = estimate::card();
  if (g.L <= kLongestAtOnce && heads * 2 * ceil_div(g.Dv, 64) <= card.multiprocessors) {
    return {"segments", segments_backward, segments_backward_memory};
  }
  if (pairs <= card.multiprocessors &&
      card.transfer(fewer_bytes, kBytesSpeed) < card.microseconds(kSecondChunkClocks)) {
    return {"warpgroups", warpgroups_backward, warpgroups_backward_memory};
  }
  return {"longer_chunks", longer_chunks_backward, longer_chunks_backward_memory};
}

Choice choice_for(const Bf16BackwardArguments& g) {
  return choose(g, {}, "delta_rule --backward: copies", g.normalize_keys, both_ends_backward_unsupported, fastest);
}

}  // namespace

void dispatch_backward(const Bf16BackwardArguments& g) {
  choice_for(g).run();
}

std::string dispatch_backward_unsupported(const Bf16BackwardArguments& g) {
  return choice_for(g).unsupported;
}

std::string dispatch_backward_note(const Bf16BackwardArguments& g) {
  return choice_for(g).note;
}

std::int64_t dispatch_backward_memory(const Bf16BackwardArguments& g) {
  return choice_for(g).memory();
}

}  // namespace tutorial::delta_rule
