/// @file
/// Stage 9, `dispatch`: what a user calls. No new kernel for the operator, a choice.
///
/// Mends: stage 8 does not take every width. Same: the kernels, shapes and bytes of the stage that it picks.
/// It is stage 8, or stage 7 where a block has not enough shared memory for that. Widths that are no multiple of 16 or
/// too large, and rows that are not aligned, are computed in fp32: a kernel copies each of q, k and v out, one copies
/// the result back. There the choice is between two stages. In stage 5 a block walks position after position; in stage
/// 6 most of the work has a block for each chunk, and the walk is one of chunks, at the price of two fifths more
/// operations and four launches. The latter wins where few heads leave multiprocessors idle and there are many chunks;
/// where heads fill the GPU the operations count, and the former wins. A step of a walk has a latency, and work for
/// each block that shares the multiprocessor; what has a block for each chunk shares out the multiprocessors evenly.
/// Limit and needs: those of the stage that it picks; a chunk of stage 6 has 64 positions, whatever C is.
/// Weakness: the constants follow from counting instructions; and rows that are only not aligned,
/// or widths that are no multiple of 16, could be copied to bf16 ones that are.

#include <cuda_runtime.h>

#include "05_deltanet_wy/delta_rule.hpp"
#include "common/device/convert.cuh"
#include "common/device/device.hpp"
#include "common/device/workspace.hpp"

namespace tutorial::delta_rule {
namespace {

constexpr int kChunk = 64, kWalkColumns = 32;  // of both walks' blocks

// Microseconds at Dk = 128, of a block.
constexpr double kPosition = 0.15, kPositionWork = 0.08;  // stage 5: a step
constexpr double kChunkStep = 3, kChunkStepWork = 5;      // stage 6: a step of its walk
constexpr double kChunkWork = 30;                         // stage 6: T, W and U, outputs of 64 columns
constexpr double kLaunches = 10;                          // stage 6 has three more

double divided_up(double count, int by) {
  return double((std::int64_t(count) - 1) / by + 1);
}

bool recurrent_is_faster(const FloatArguments& a) {
  const int multiprocessors = multiprocessor_count();
  const double heads = double(a.B) * a.H, N = divided_up(a.L, kChunk), width = a.Dk / 128.0;
  const double walks = divided_up(heads * divided_up(a.Dv, kWalkColumns), multiprocessors);  // a multiprocessor
  const double chunks = divided_up(heads * N * divided_up(a.Dv, 64), multiprocessors);
  return a.L * (kPosition + walks * kPositionWork * width) <
         kLaunches + N * (kChunkStep + walks * kChunkStepWork * width) + chunks * kChunkWork * width;
}

bool picks_recurrent(const FloatArguments& a) {
  if (!recurrent_gpu_limits(a).empty()) return false;
  return !chunk_gpu_limits(a).empty() || recurrent_is_faster(a);
}

/// q, k, v and o in fp32.
struct Copies {
  View<float> q, k, v, o;

  static std::int64_t count(const HalfArguments& a) {
    return 2 * std::int64_t(a.B) * a.H * a.L * (std::int64_t(a.Dk) + a.Dv);
  }
  /// @param memory of count() elements
  Copies(const HalfArguments& a, float* memory) {
    const std::int64_t rows = std::int64_t(a.B) * a.H * a.L;
    q = packed(memory, a.H, a.L, a.Dk);
    k = packed(q.data + rows * a.Dk, a.H, a.L, a.Dk);
    v = packed(k.data + rows * a.Dk, a.H, a.L, a.Dv);
    o = packed(v.data + rows * a.Dv, a.H, a.L, a.Dv);
  }
  Copies() = default;  // where only sizes are of interest
};

/// The same problem in fp32.
FloatArguments in_fp32(const HalfArguments& a, const Copies& copies) {
  const auto read = [](const View<float>& x) { return View<const float>{x.data, x.stride_b, x.stride_h, x.stride_l}; };
  return {a.B,
          a.H,
          a.L,
          a.Dk,
          a.Dv,
          kChunk,
          a.scale,
          a.normalize_keys,
          read(copies.q),
          read(copies.k),
          read(copies.v),
          a.beta,
          a.initial_state,
          copies.o,
          a.final_state};
}

void compute_in_fp32(const HalfArguments& a) {
  const Copies copies(a, workspace<float>("delta_rule: q, k, v, o in fp32", std::size_t(Copies::count(a))));
  convert(a.B, a.H, a.L, a.Dk, a.q, copies.q);
  convert(a.B, a.H, a.L, a.Dk, a.k, copies.k);
  convert(a.B, a.H, a.L, a.Dv, a.v, copies.v);
  const FloatArguments f = in_fp32(a, copies);
  picks_recurrent(f) ? recurrent_gpu(f) : chunk_gpu(f);
  convert(a.B, a.H, a.L, a.Dv, copies.o, a.o);
}

}  // namespace

void dispatch(const HalfArguments& a) {
  if (fused_limits(a).empty()) return fused(a);
  tensor_core_limits(a).empty() ? tensor_core(a) : compute_in_fp32(a);
}

std::string dispatch_limits(const HalfArguments& a) {
  if (fused_limits(a).empty() || tensor_core_limits(a).empty()) return "";
  if (const std::string limits = convert_limits(a.B, a.H, a.L); !limits.empty()) return limits;
  const FloatArguments f = in_fp32(a, {});
  return picks_recurrent(f) ? "" : chunk_gpu_limits(f);
}

std::string dispatch_note(const HalfArguments& a) {
  if (fused_limits(a).empty()) return "fused";
  const std::string limits = tensor_core_limits(a);
  if (limits.empty()) return "tensor_core: " + fused_limits(a);
  return (picks_recurrent(in_fp32(a, {})) ? "recurrent_gpu in fp32: " : "chunk_gpu in fp32: ") + limits;
}

std::int64_t dispatch_memory(const HalfArguments& a) {
  if (fused_limits(a).empty()) return fused_memory(a);
  if (tensor_core_limits(a).empty()) return tensor_core_memory(a);
  const FloatArguments f = in_fp32(a, {});
  return std::int64_t(sizeof(float)) * Copies::count(a) +
         (picks_recurrent(f) ? recurrent_gpu_memory(f) : chunk_gpu_memory(f));
}

std::int64_t dispatch_moved(const HalfArguments& a) {
  if (fused_limits(a).empty()) return fused_moved(a);
  return tensor_core_limits(a).empty() ? tensor_core_moved(a) : -1;
}

}  // namespace tutorial::delta_rule
