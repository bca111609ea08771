/// @file
/// The operations of the gradients' stages.

#include <algorithm>
#include <cstdint>

#include "02_chunkwise/operators.hpp"
#include "common/chapter/attention.hpp"

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
