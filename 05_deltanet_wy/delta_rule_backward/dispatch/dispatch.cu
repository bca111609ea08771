/// @file
/// `dispatch`: what a user calls. It adds no product of its own. It chooses between `longer_chunks`,
/// `warpgroups` and `both_ends`, and supports widths, rows and keys that none of them does.
///
/// Idea: a column of zeros in q and k, or in v and do, changes no other column of a gradient. So copies of the tensors
/// with widths that are multiples of 16 turn every problem up to Dk = Dv = 256 into one that `both_ends` supports, and
/// up to 128, on Hopper, `longer_chunks` or `warpgroups`. The copy of k is also where keys are normalised, and the copy
/// back of dk is where the gradient goes through it. Both are a pass over rows, a warp per row, beside a copy that is
/// made anyway. Where the tiles of no stage fit into a block's shared memory, dispatch/in_fp32.cu computes the
/// gradients.
/// Improves on: none of the three normalises keys or supports widths that are no multiple of 16 or rows that are not
/// aligned, and two of them need Hopper and widths up to 128. A block of `longer_chunks` gains from the tiles that it
/// loads ahead, so it loses to `warpgroups` where it has no second pair of chunks.
/// Unchanged: the products.
/// Equation: with `normalize_keys`, y_t = f_t k_t, f_t = (k_t . k_t + eps)^(-1/2), and dk_t = f_t (dy_t - (dy_t . y_t)
/// y_t). y and dy are rounded to bf16, sums over a row are in fp32.
/// Shapes: those of the three stages; copies [B, H, L, 16 ceil(D / 16)] bf16, and of states fp32. in_fp32.cu states its
/// own, and its thread mapping and bytes.
/// Thread mapping: in the copies block (4 rows, h, b), a warp per row.
/// Bytes: where copies are needed, each of q, k, v, do and the gradients is read and written once more.
/// Bound by: as the chosen stage.
/// Requires: Dk up to 256.
/// Fallback: fp32, position after position, for Dv above 256, and for widths above 128 on cards whose blocks have 99 KB
/// of shared memory. A problem with a larger Dk is for `chunkwise`.
/// Weakness: a normalised key that is rounded to bf16 is not exactly of length 1: its length is off by up to 2^-9.

#include "05_deltanet_wy/delta_rule_backward.hpp"
#include "05_deltanet_wy/delta_rule_backward/dispatch/copies.hpp"
#include "05_deltanet_wy/delta_rule_backward/dispatch/in_fp32.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"

namespace tutorial::delta_rule {
namespace {

/// A stage that dispatch chooses.
struct Choice {
  const char* name;
  void (*run)(const Bf16BackwardArguments&);
  std::int64_t (*memory)(const Bf16BackwardArguments&);
};

/// The fastest stage for a problem that `both_ends` supports.
Choice fastest(const Bf16BackwardArguments& g) {
  if (!warpgroups_backward_unsupported(g).empty())
    return {"both_ends", both_ends_backward, tensor_core_backward_memory};
  const std::int64_t pairs = std::int64_t(g.B) * g.H * ceil_div(g.L, 128);  // of chunks
  if (pairs <= multiprocessor_count()) return {"warpgroups", warpgroups_backward, warpgroups_backward_memory};
  return {"longer_chunks", longer_chunks_backward, longer_chunks_backward_memory};
}

/// Why no stage supports copies of the tensors; empty if one does.
std::string copies_unsupported(const Bf16BackwardArguments& g) {
  return both_ends_backward_unsupported(sizes_of_copies(g, g.normalize_keys));
}

}  // namespace

void dispatch_backward(const Bf16BackwardArguments& g) {
  if (both_ends_backward_unsupported(g).empty()) return fastest(g).run(g);
  if (!copies_unsupported(g).empty()) return backward_in_fp32(g);
  on_copies("delta_rule --backward: copies", g, g.normalize_keys,
            [](const Bf16BackwardArguments& copies) { fastest(copies).run(copies); });
}

std::string dispatch_backward_unsupported(const Bf16BackwardArguments& g) {
  if (both_ends_backward_unsupported(g).empty() || copies_unsupported(g).empty()) return "";
  return backward_in_fp32_unsupported(g);
}

std::string dispatch_backward_note(const Bf16BackwardArguments& g) {
  const std::string reason = both_ends_backward_unsupported(g), of_copies = copies_unsupported(g);
  if (reason.empty()) return fastest(g).name;
  if (!of_copies.empty()) return "in fp32: " + of_copies;
  return fastest(sizes_of_copies(g, g.normalize_keys)).name + (" on copies: " + reason);
}

std::int64_t dispatch_backward_memory(const Bf16BackwardArguments& g) {
  // g may come without strides, from which no stage could be chosen; the copies have some.
  const Bf16BackwardArguments copies = sizes_of_copies(g, g.normalize_keys);
  const bool is_direct = both_ends_backward_unsupported(g).empty();
  if (!is_direct && !copies_unsupported(g).empty()) return backward_in_fp32_memory(g);
  return fastest(copies).memory(copies) + (is_direct ? 0 : memory_of_copies(g));
}

}  // namespace tutorial::delta_rule
