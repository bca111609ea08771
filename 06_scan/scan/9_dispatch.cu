/// @file
/// Stage 9, `dispatch`: what a user calls. No new kernel, a choice.
///
/// Mends: stage 7's tiles are mostly empty where a sequence is a few steps. Same: the kernels, shapes and bytes of the
/// stage that it picks: for few steps it is stage 4, whose threads are then done after two memory latencies at most;
/// else stage 7. Few are 15 where D > 1: at 16 steps both take the same (H200, 8 x 1536 channels); and 8 where D = 1, one
/// latency, which no number of sequences makes slower than stage 7's.
/// Backward: dx is a scan of dy from the end and goes through the same kernels by negative strides (backwards.hpp); the
/// gates' gradient needs y, which is computed again rather than kept: more bytes, less memory.
/// Limit and needs: those of the stage that it picks. Weakness: with very many sequences, D = 1, the loop stays ahead a
/// little longer: 12288 of 16 steps take it 4.8 microseconds, and stage 7 6.5. And with very many channels, D > 1, whose
/// loop fills the GPU: simple_gla's `scan_states`, 524288 channels of 32 steps, takes 0.057 ms with the loop, 0.104 so.

#include "06_scan/scan.hpp"
#include "06_scan/scan/backwards.hpp"

namespace tutorial::scan {
namespace {

bool is_short(const Arguments& a) {
  return a.L <= (a.D == 1 ? 8 : 15);
}

}  // namespace

void dispatch(const Arguments& a) {
  is_short(a) ? sequential_gpu(a) : single_pass(a);
}

void dispatch_backward(const BackwardArguments& a) {
  const View<float> y = recomputed_y(a);
  dispatch(forwards(a, y));
  dispatch(backwards(a));
  gate_gradient(a, {y.data, y.stride_b, y.stride_h, y.stride_l});
}

std::string dispatch_limits(const Arguments& a) {
  return is_short(a) ? sequential_gpu_limits(a) : single_pass_limits(a);
}

std::string dispatch_backward_limits(const BackwardArguments& a) {
  const std::string scans = dispatch_limits(forwards(a, {}));
  return scans.empty() ? gate_gradient_limits(a) : scans;
}

std::int64_t dispatch_memory(const Arguments& a) {
  return is_short(a) ? 0 : single_pass_memory(a);
}

std::int64_t dispatch_backward_memory(const BackwardArguments& a) {
  return recomputed_y_memory(a) + dispatch_memory(forwards(a, {}));
}

std::int64_t dispatch_moved(const Arguments& a) {
  return is_short(a) ? sequential_gpu_moved(a) : single_pass_moved(a);
}

std::string dispatch_note(const Arguments& a) {
  return is_short(a) ? "sequential_gpu" : "single_pass";
}

}  // namespace tutorial::scan
