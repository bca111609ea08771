/// @file
/// What the gradients' stages require: why one cannot run a problem, the bytes that it needs beside its inputs and
/// outputs, and its operations.

#include <algorithm>
#include <cstdint>

#include "02_chunkwise/linear_attention_backward.hpp"
#include "02_chunkwise/linear_attention_backward/gradients.hpp"
#include "02_chunkwise/linear_attention_backward/requirements.hpp"
#include "02_chunkwise/operators.hpp"
#include "common/ceil_div.hpp"
#include "common/chapter/attention.hpp"
#include "common/parallel.hpp"
#include "common/tile/requirements.hpp"

namespace tutorial::linear_attention {
namespace {

constexpr int kChunkLength = 64;  // of the GPU stages

/// Operations of the gradients in chunks of C. The states take k_t^T v_t, q_t^T do_t and three products. The scores
/// take two kinds of products and three sums of rows.
double backward_flops(const Sizes& s, std::int64_t C) {
  const auto Dk = double(s.at("Dk")), Dv = double(s.at("Dv"));
  return positions(s) * (10 * Dk * Dv + double(C > 0 ? std::min(C, s.at("L")) + 1 : 0) * (3 * Dk + 2 * Dv));
}

}  // namespace

std::string gradients_unsupported(const Bf16BackwardArguments& b) {
  for (const Gradient& gradient : gradients_of(b)) {
    if (const std::string reason = tile::tensor_core_unsupported(gradient.a); !reason.empty()) return reason;
  }
  return "";
}

std::int64_t chunkwise_backward_memory(const FloatBackwardArguments& a) {
  const std::int64_t C = std::min(a.C, a.L);
  return 4 * (std::int64_t(a.Dk) * a.Dv + C * C) * processor_count();
}

std::int64_t materialized_backward_memory(const Bf16BackwardArguments& b) {
  return 2 * std::int64_t(sizeof(float)) * b.B * b.H * ceil_div(b.L, kChunkLength) * b.Dk * b.Dv;
}

Work recurrent_backward_work(const Sizes& s) {
  return {.fma_flops = backward_flops(s, 0)};
}

Work chunkwise_backward_work(const Sizes& s) {
  return {.fma_flops = backward_flops(s, s.at("C"))};
}

Work tensor_backward_work(const Sizes& s) {
  return {.tensor_flops = backward_flops(s, kChunkLength)};
}

}  // namespace tutorial::linear_attention
