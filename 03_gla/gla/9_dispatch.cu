/// @file
/// Stage 9, `dispatch`: what a user calls. No new kernel for the operator, a choice.
///
/// Mends: stage 8 takes as many segments as fill the GPU once, whatever they cost, and it takes not every width. Same:
/// the kernels, shapes and bytes of the stage that it picks.
/// In bf16 the choice is how many segments and how wide a tile, by chapter 02's estimate: a walk takes as long as the
/// chunks that one block has to do one after the other, and segments add the walk for their states and its way through
/// memory. The times of a chunk are an H200's (README.md has what comes of them). Widths that are no multiple of 16 or
/// too large for the registers, and rows that are not aligned, are computed in fp32: three kernels copy q, k and v out,
/// one copies the result back.
/// In fp32 the choice is between two kernels: stage 5 has a block for each tile of a head and walks; stage 6 has one
/// for each chunk and computes more. The former wins where heads fill the GPU or the walk is short, the latter where
/// there are few heads and many chunks. A step of a walk has a latency, and work for each block that shares the
/// multiprocessor; the chunks of stage 6 share out the multiprocessors evenly, and there are four launches in front.
/// Limit and needs: those of the kernels that it picks. What stage 5 does not take, Dk > 256, goes to stage 6.
/// Weakness: the constants were measured at Dk = Dv = 128, those of fp32 follow from counting instructions.

#include <cuda_runtime.h>

#include "03_gla/gla.hpp"
#include "03_gla/gla/prepared.hpp"
#include "03_gla/gla/spread.hpp"
#include "common/device/convert.cuh"
#include "common/device/device.hpp"
#include "common/device/workspace.hpp"

namespace tutorial::gla {
namespace {

// fp32: microseconds at Dk = 128.
constexpr double kStepLatency = 0.1, kStepWork = 0.08;  // of a block of stage 5, for a position
constexpr double kChunkWork = 18;                       // of a block of stage 6, for 64 positions and 64 columns
constexpr double kLaunches = 10;                        // of stage 6

double divided_up(double count, int by) {
  return double((std::int64_t(count) - 1) / by + 1);
}

bool walk_is_faster(const FloatArguments& a) {
  const int multiprocessors = multiprocessor_count();
  const double heads = double(a.B) * a.H, width = a.Dk / 128.0;
  const double walks = divided_up(heads * divided_up(a.Dv, 32), multiprocessors);  // a multiprocessor
  const double chunks = divided_up(heads * divided_up(a.L, 64) * divided_up(a.Dv, 64), multiprocessors);
  return a.L * (kStepLatency + walks * kStepWork * width) < kLaunches + chunks * kChunkWork * width;
}

bool picks_recurrent(const FloatArguments& a) {
  if (!recurrent_gpu_limits(a).empty()) return false;
  return !chunk_gpu_limits(a).empty() || walk_is_faster(a);
}

// bf16.
constexpr linear_attention::WalkTimes kTimes{.narrow = {.walk = {2.0, 3.4}, .states = {1.2, 2.0}},
                                             .wide = {.walk = {3.1, 5.4}, .states = {1.8, 3.3}}};

Spread choose(const HalfArguments& a) {
  return linear_attention::fastest_spread(without_gates(a), kTimes);
}

std::int64_t converted_count(const HalfArguments& a) {
  return 2 * std::int64_t(a.B) * a.H * a.L * (std::int64_t(a.Dk) + a.Dv);
}

/// The same problem in fp32. @param memory of converted_count() elements, or null where only sizes are of interest
FloatArguments in_fp32(const HalfArguments& a, float* memory) {
  const std::int64_t rows = std::int64_t(a.B) * a.H * a.L;
  const auto view = [&](int D) {
    const View<float> result = packed(memory, a.H, a.L, D);
    if (memory) memory += rows * D;
    return result;
  };
  const View<float> q = view(a.Dk), k = view(a.Dk), v = view(a.Dv), o = view(a.Dv);
  const auto read = [](const View<float>& x) { return View<const float>{x.data, x.stride_b, x.stride_h, x.stride_l}; };
  return {a.B, a.H, a.L, a.Dk, a.Dv, a.C, a.scale, read(q), read(k), read(v), a.g, a.initial_state, o, a.final_state};
}

void compute_in_fp32(const HalfArguments& a) {
  const FloatArguments f = in_fp32(a, workspace<float>("gla: q, k, v, o in fp32", std::size_t(converted_count(a))));
  const auto write = [](const View<const float>& x) {
    return View<float>{const_cast<float*>(x.data), x.stride_b, x.stride_h, x.stride_l};
  };
  convert(a.B, a.H, a.L, a.Dk, a.q, write(f.q));
  convert(a.B, a.H, a.L, a.Dk, a.k, write(f.k));
  convert(a.B, a.H, a.L, a.Dv, a.v, write(f.v));
  dispatch(f);
  convert(a.B, a.H, a.L, a.Dv, f.o, a.o);
}

}  // namespace

void dispatch(const FloatArguments& a) {
  picks_recurrent(a) ? recurrent_gpu(a) : chunk_gpu(a);
}

std::string dispatch_limits(const FloatArguments& a) {
  return picks_recurrent(a) ? "" : chunk_gpu_limits(a);
}

std::string dispatch_note(const FloatArguments& a) {
  return picks_recurrent(a) ? "recurrent_gpu" : "chunk_gpu";
}

std::int64_t dispatch_memory(const FloatArguments& a) {
  return picks_recurrent(a) ? recurrent_gpu_memory(a) : chunk_gpu_memory(a);
}

void dispatch(const HalfArguments& a) {
  subchunk_limits(a).empty() ? subchunk_walk(a, choose(a)) : compute_in_fp32(a);
}

std::string dispatch_limits(const HalfArguments& a) {
  if (subchunk_limits(a).empty()) return "";
  if (const std::string limits = convert_limits(a.B, a.H, a.L); !limits.empty()) return limits;
  return dispatch_limits(in_fp32(a, nullptr));
}

std::string dispatch_note(const HalfArguments& a) {
  if (const std::string limits = subchunk_limits(a); !limits.empty()) {
    return dispatch_note(in_fp32(a, nullptr)) + " in fp32: " + limits;
  }
  const Spread spread = choose(a);
  const std::string segments = spread.segments == 1 ? "one segment" : std::to_string(spread.segments) + " segments";
  return "subchunk_walk, " + segments + ", " + std::to_string(spread.columns) + " columns a block";
}

std::int64_t dispatch_moved(const HalfArguments& a) {
  return subchunk_limits(a).empty() ? subchunk_walk_moved(a, choose(a)) : -1;
}

std::int64_t dispatch_memory(const HalfArguments& a) {
  if (subchunk_limits(a).empty()) return subchunk_walk_memory(a, choose(a));
  return std::int64_t(sizeof(float)) * converted_count(a) + dispatch_memory(in_fp32(a, nullptr));
}

}  // namespace tutorial::gla
