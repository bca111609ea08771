/// @file
/// `dispatch`: what a user calls.
///
/// Idea: the loop of `sequential_gpu` where a sequence has a few steps, else all tiles at once, by the kernels in
/// dispatch/ that take every layout. Few are 15 steps where D > 1: at 16 steps both take the same time (H200, 8 x 1536
/// channels). They are 8 where D = 1: the loop then waits for memory once, and no number of sequences makes it slower
/// than the tiles.
/// Grows out of: 9_wide_tiles.cu; dispatch: a choice, and kernels that put `wide_tiles` and `channel_lanes` together
/// Improves on: tiles are mostly empty where a sequence has a few steps; and each of the stages before is made for one
/// layout, width or alignment.
/// Unchanged: what the tiles publish.
/// Equation: y_t = exp(g_t) y_{t-1} + x_t. With `--backward`, dx is a scan of dy from the end. It goes through the same
/// kernels by negative strides (backwards.hpp). The gates' gradient needs y, which is computed again rather than kept:
/// more bytes, less memory.
/// Shapes: x, y [B, H, L, D]; g [B, H, L, Dg], Dg = 1 or D; states [B, H, D]; fp32 in device memory.
/// Bound by: memory.
/// Requires: fewer than 2^31 tiles.
/// Weakness: the choice goes by L alone. With very many sequences of D = 1 the loop stays ahead a little longer than 8
/// steps, and so it does with very many channels of D > 1, where the loop fills the GPU (README.md has the times).
/// Sources: those of the stages before.

#include "06_scan/scan.hpp"
#include "06_scan/scan/backwards.hpp"
#include "06_scan/scan/dispatch/single_pass.hpp"

namespace tutorial::scan {
void dispatch(const Arguments& a) {
  is_short(a) ? sequential_gpu(a) : planned_single_pass(a);
}

void dispatch_backward(const BackwardArguments& a) {
  const View<float> y = recomputed_y(a);
  dispatch(forwards(a, y));
  dispatch(backwards(a));
  gate_gradient(a, {y.data, y.stride_b, y.stride_h, y.stride_l});
}

std::string dispatch_unsupported(const Arguments& a) {
  return is_short(a) ? sequential_gpu_unsupported(a) : planned_single_pass_unsupported(a);
}

std::string dispatch_backward_unsupported(const BackwardArguments& a) {
  const std::string scans = dispatch_unsupported(forwards(a, {}));
  return scans.empty() ? gate_gradient_unsupported(a) : scans;
}

std::int64_t dispatch_memory(const Arguments& a) {
  return is_short(a) ? 0 : planned_single_pass_memory(a);
}

std::int64_t dispatch_backward_memory(const BackwardArguments& a) {
  return recomputed_y_memory(a) + dispatch_memory(forwards(a, {}));
}

std::string dispatch_note(const Arguments& a) {
  if (is_short(a)) return "sequential_gpu";
  return "single pass, tiles of " + std::to_string(TilePlan(a).tile) + " steps";
}

}  // namespace tutorial::scan
