/// @file
/// `prefill`: all tokens of a prompt are known, so they are computed at once. The only new kernel is a feature map.
///
/// Idea: a prompt is a sequence like those of the chapters before. Each of those chapters ends with a `dispatch` that
/// computes a sequence in chunks on tensor cores and returns the state after it. That state is all that decoding needs
/// of the prompt.
/// Grows out of: 1_recurrent.cpp; port to the GPU: the `dispatch` of each chapter replaces its recurrence
/// Improves on: `recurrent` is on the CPU.
/// Unchanged: the operator.
/// Equation:
///
///   simple_gla                           chapter 04's dispatch
///   gla                                  chapter 03's dispatch
///   delta_rule, gated_delta_rule, kda    chapter 05's dispatch
///   normalized                           phi(q) and phi(k) into workspace, then chapter 02's dispatch with its
///                                        normaliser (chapter 01's last stage returns no state)
///
/// Shapes: as in decode.hpp, bf16; phi(q), phi(k) [B, H, L, Dk] in bf16; all in device memory.
/// Thread mapping: in the feature map a warp takes one row at a time, and its lanes run along it. The rest is that of
/// the chapters.
/// Bytes: those of the chapters' kernels; per position two rows of Dk are read and written for phi.
/// Requires: what the chapters' dispatch requires.
/// Weakness: it needs all tokens in advance. When a model generates, the next token depends on the output of the last
/// one.
/// Sources: those of the chapters.

#include <cuda_runtime.h>

#include "06_scan/decode.hpp"
#include "06_scan/decode/chapters.hpp"
#include "common/device/convert.cuh"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/workspace.hpp"
#include "common/feature_map.hpp"

namespace tutorial::decode {
namespace {

constexpr int kRows = 8;  // of a block, a warp each

/// phi(q) and phi(k), rounded to bf16. Grid ceil(B H L / kRows).
__global__ void features_kernel(Bf16Arguments a, View<__nv_bfloat16> phi_q, View<__nv_bfloat16> phi_k) {
  const std::int64_t row = std::int64_t(blockIdx.x) * kRows + threadIdx.y, head = row / a.L, t = row % a.L;
  if (head >= std::int64_t(a.B) * a.H) return;
  const std::int64_t b = head / a.H, h = head % a.H;
  const bool has_key = !a.key_lengths || t < load_global(&a.key_lengths[b]);
  for (int d = int(threadIdx.x); d < a.Dk; d += 32) {
    const float q = float(load_global(a.q.row(b, h, t) + d)), k = float(load_global(a.k.row(b, h, t) + d));
    store_global(phi_q.row(b, h, t) + d, __nv_bfloat16(phi(q)));
    store_global(phi_k.row(b, h, t) + d, __nv_bfloat16(has_key ? phi(k) : 0.0f));
  }
}

std::int64_t feature_count(const Bf16Arguments& a) {
  return std::int64_t(a.B) * a.H * a.L * a.Dk;
}

}  // namespace

template <Rule kRule>
void prefill(const Bf16Arguments& a) {
  if constexpr (kRule == Rule::normalized) {
    auto* phi_q = workspace<__nv_bfloat16>("decode: features", 2 * std::size_t(feature_count(a)));
    auto* phi_k = phi_q + feature_count(a);
    const std::int64_t rows = std::int64_t(a.B) * a.H * a.L;
    launch(features_kernel, {unsigned((rows - 1) / kRows + 1), dim3(32, kRows)}, a, packed(phi_q, a.H, a.L, a.Dk),
           packed(phi_k, a.H, a.L, a.Dk));
    dispatch_normalized(as_normalized<__nv_bfloat16>(a, phi_q, phi_k));
  } else {
    dispatch(as_chapter<kRule>(a));
  }
}

TUTORIAL_DECODE_WITH_ALL_RULES(prefill, Bf16Arguments);

}  // namespace tutorial::decode
