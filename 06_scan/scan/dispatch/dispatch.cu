/// @file
/// `dispatch`: what a user calls.
///
/// Idea: for a sequence of few steps, `dispatch` uses the loop of `sequential_gpu`. Otherwise it computes all tiles at
/// once, by the kernels in dispatch/, which support every layout. With D > 1, up to 15 steps are few: at 16 steps both
/// take the same time (H200, 8 x 1536 channels). With D = 1, up to 8 steps are few: the loop then waits for memory only
/// once and is never slower than the tiles, however many sequences there are.
/// Improves on: the tiles of a sequence of few steps are mostly empty, and each earlier stage is made for one layout,
/// width or alignment.
/// Unchanged: what the tiles publish.
/// Equation: y_t = exp(g_t) y_{t-1} + x_t. With `--backward`, dx is a scan of dy from the end. It goes through the same
/// kernels by negative strides (backwards.hpp). The gates' gradient needs y, which is computed again instead of stored.
/// This moves more bytes and takes less memory.
/// Shapes: x, y [B, H, L, D]; g [B, H, L, Dg], Dg = 1 or D; states [B, H, D]; fp32 in device memory.
/// Bound by: memory.
/// Requires: fewer than 2^31 tiles.
/// Weakness: the choice depends only on L. With very many sequences of D = 1 the loop is still faster at a little more
/// than 8 steps. With D > 1 and enough channels to fill the GPU it is still faster at a little more than 15
/// (docs/notebook/06_scan.md has the times).
/// Sources: those of the earlier stages.

#include "06_scan/scan.hpp"
#include "06_scan/scan/backwards.hpp"
#include "06_scan/scan/dispatch/single_pass.hpp"
#include "06_scan/scan/gate_gradient.hpp"
#include "06_scan/scan/requirements.hpp"
#include "06_scan/scan_backward.hpp"

namespace tutorial::scan {
namespace {

/// What dispatch calls, and what that says of itself.
struct Choice {
  void (*run)(const Arguments&);
  std::string (*unsupported)(const Arguments&);
  std::string (*note)(const Arguments&);
  std::int64_t (*memory)(const Arguments&);
  std::int64_t (*bytes_moved)(const Arguments&);
};

constexpr Choice kLoop{.run = sequential_gpu,
                       .unsupported = sequential_gpu_unsupported,
                       .note = [](const Arguments&) -> std::string { return "sequential_gpu"; },
                       .memory = [](const Arguments&) -> std::int64_t { return 0; },
                       .bytes_moved = channel_bytes_moved};
constexpr Choice kTiles{.run = planned_single_pass,
                        .unsupported = planned_single_pass_unsupported,
                        .note = planned_single_pass_note,
                        .memory = planned_single_pass_memory,
                        .bytes_moved = planned_single_pass_bytes_moved};

const Choice& choose(const Arguments& a) {
  const bool is_short = a.L <= (a.D == 1 ? 8 : 15);
  return is_short ? kLoop : kTiles;
}

}  // namespace

void dispatch(const Arguments& a) {
  choose(a).run(a);
}

std::string dispatch_unsupported(const Arguments& a) {
  return choose(a).unsupported(a);
}

std::string dispatch_note(const Arguments& a) {
  return choose(a).note(a);
}

std::int64_t dispatch_memory(const Arguments& a) {
  return choose(a).memory(a);
}

std::int64_t dispatch_bytes_moved(const Arguments& a) {
  return choose(a).bytes_moved(a);
}

void dispatch_backward(const BackwardArguments& a) {
  const View<float> y = recomputed_y(a);
  dispatch(forwards(a, y));
  dispatch(backwards(a));
  gate_gradient(a, {y.data, y.stride_b, y.stride_h, y.stride_l});
}

std::string dispatch_backward_unsupported(const BackwardArguments& a) {
  const std::string scans = dispatch_unsupported(forwards(a, {}));
  return scans.empty() ? gate_gradient_unsupported(a) : scans;
}

std::int64_t dispatch_backward_memory(const BackwardArguments& a) {
  return recomputed_y_memory(a) + dispatch_memory(forwards(a, {}));
}

}  // namespace tutorial::scan
