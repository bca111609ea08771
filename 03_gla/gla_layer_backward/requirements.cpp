/// @file
/// The memory that the stage and the reference take.

#include <algorithm>

#include "03_gla/gla_backward.hpp"
#include "03_gla/gla_backward/requirements.hpp"
#include "03_gla/gla_layer_backward.hpp"

namespace tutorial::gla_layer {
namespace {

/// The most bytes beside inputs and outputs at a time, roughly: all matrices of positions, and one weight with its
/// gradient.
/// @param size of a number of the arithmetic
/// @param attention what gla's gradients have
std::int64_t layer_backward_memory(const BackwardArguments& b, std::int64_t size, std::int64_t attention) {
  const FloatArguments& a = b.layer;
  const std::int64_t rows = std::int64_t(a.B) * a.L, model = a.d_model;
  const std::int64_t keys = a.key_dim(), values = a.value_dim();
  return std::int64_t(sizeof(float)) * rows * (6 * keys + 6 * values) +
         size * (rows * (3 * model + 3 * keys + 2 * values) + 2 * model * std::max(keys, values)) + attention;
}

/// The sizes of the call of gla's gradients inside the layer.
gla::FloatBackwardArguments attention_sizes(const FloatArguments& a) {
  constexpr int kChunk = 64;
  gla::FloatBackwardArguments sizes{};
  sizes.B = a.B, sizes.H = a.H, sizes.L = a.L, sizes.Dk = a.Dk, sizes.Dv = a.Dv, sizes.C = kChunk;
  return sizes;
}

}  // namespace

std::int64_t cpu_backward_memory(const BackwardArguments& b) {
  return layer_backward_memory(b, sizeof(float), gla::chunkwise_backward_memory(attention_sizes(b.layer)));
}

std::int64_t backward_reference_memory(const BackwardArguments& b) {
  return layer_backward_memory(b, sizeof(double), 2 * gla::closed_form_backward_memory(attention_sizes(b.layer)));
}

}  // namespace tutorial::gla_layer
