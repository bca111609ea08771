/// @file
/// Stage 2, `prefill`: all tokens are there, so they are computed at once. No new kernel but a feature map.
///
/// Idea: a prompt is a sequence like those of the chapters before, and they end with a `dispatch` that computes it in
/// chunks on tensor cores and leaves the state after it. That state is all that decoding needs of the prompt.
/// Mends: stage 1 is on the CPU. Same: the operator.
///
///   simple_gla: chapter 04's dispatch    gla: chapter 03's     delta_rule: chapter 05's
///   normalized: phi(q) and phi(k) into workspace, then chapter 02's dispatch with its normaliser. (Chapter 01's last
///   stage gives no state.)
///
/// Shapes: as in decode.hpp, bf16; phi(q), phi(k) [B, H, L, Dk] in bf16; all in device memory.
/// Who does what: in the feature map a warp takes a row at a time, its lanes run along it. The rest: as in the
/// chapters.
/// Memory, work, bytes, limit, needs: those of the chapters' kernels; two rows of Dk read and written for phi.
/// Weakness: it needs all tokens. The next one depends on the last one's output: stage 3.
/// Sources: those of the chapters.

#include <cuda_runtime.h>

#include "01_linear_attention/feature_map.hpp"
#include "06_scan/decode.hpp"
#include "06_scan/decode/chapters.hpp"
#include "common/device/convert.cuh"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::decode {
namespace {

constexpr int kRows = 8;  // of a block, a warp each

/// phi(q) and phi(k), rounded to bf16. Grid ceil(B H L / kRows).
__global__ void features_kernel(HalfArguments a, View<__nv_bfloat16> phi_q, View<__nv_bfloat16> phi_k) {
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

std::int64_t feature_count(const HalfArguments& a) {
  return std::int64_t(a.B) * a.H * a.L * a.Dk;
}

/// The problem as the rule's chapter takes it; its namespace is where dispatch() and what belongs to it are found.
template <Rule kRule>
auto as_chapter(const HalfArguments& a) {
  if constexpr (kRule == Rule::simple_gla) return as_simple_gla(a);
  if constexpr (kRule == Rule::gla) return as_gla(a);
  if constexpr (kRule == Rule::delta_rule) return as_delta_rule(a);
  if constexpr (kRule == Rule::normalized) return as_normalized<__nv_bfloat16>(a, nullptr, nullptr);
}

}  // namespace

template <Rule kRule>
void prefill(const HalfArguments& a) {
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

template <Rule kRule>
std::string prefill_limits(const HalfArguments& a) {
  if constexpr (kRule == Rule::normalized) {
    const std::string limits = convert_limits(a.B, a.H, a.L);  // of the same grid
    return limits.empty() ? dispatch_normalized_limits(as_chapter<kRule>(a)) : limits;
  } else {
    return dispatch_limits(as_chapter<kRule>(a));
  }
}

template <Rule kRule>
std::string prefill_note(const HalfArguments& a) {
  if constexpr (kRule == Rule::normalized) {
    return dispatch_normalized_note(as_chapter<kRule>(a));
  } else {
    return dispatch_note(as_chapter<kRule>(a));
  }
}

template <Rule kRule>
std::int64_t prefill_memory(const HalfArguments& a) {
  if constexpr (kRule == Rule::normalized) {
    return 2 * std::int64_t(sizeof(__nv_bfloat16)) * feature_count(a) +
           dispatch_normalized_memory(as_chapter<kRule>(a));
  } else {
    return dispatch_memory(as_chapter<kRule>(a));
  }
}

template <Rule kRule>
std::int64_t prefill_moved(const HalfArguments& a) {
  if constexpr (kRule == Rule::normalized) {
    return -1;
  } else {
    return dispatch_moved(as_chapter<kRule>(a));
  }
}

#define INSTANTIATE(RULE)                                           \
  template void prefill<RULE>(const HalfArguments&);                \
  template std::string prefill_limits<RULE>(const HalfArguments&);  \
  template std::string prefill_note<RULE>(const HalfArguments&);    \
  template std::int64_t prefill_memory<RULE>(const HalfArguments&); \
  template std::int64_t prefill_moved<RULE>(const HalfArguments&)
INSTANTIATE(Rule::simple_gla);
INSTANTIATE(Rule::gla);
INSTANTIATE(Rule::delta_rule);
INSTANTIATE(Rule::normalized);
#undef INSTANTIATE

}  // namespace tutorial::decode
