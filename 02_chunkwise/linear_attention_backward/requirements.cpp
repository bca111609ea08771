/// @file
/// What the gradients' stages require: why one cannot run a problem, and the bytes that it needs beside its inputs and
/// outputs.

#include <algorithm>
#include <cstdint>

#include "02_chunkwise/linear_attention_backward.hpp"
#include "02_chunkwise/linear_attention_backward/gradients.hpp"
#include "02_chunkwise/linear_attention_backward/requirements.hpp"
#include "common/ceil_div.hpp"
#include "common/parallel.hpp"
#include "common/tile/requirements.hpp"

namespace tutorial::linear_attention {
namespace {

constexpr int kChunkLength = 64;  // of the GPU stages

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

}  // namespace tutorial::linear_attention
