/// @file
/// What the stages require of a problem, and the memory that they take.

#include <algorithm>
#include <climits>

#include "03_gla/gla/requirements.hpp"
#include "03_gla/gla_layer/heads.hpp"
#include "common/device/matmul.hpp"

namespace tutorial::gla_layer {
namespace {

/// The most bytes that the layer on the CPU has beside x, the weights and y at a time.
/// @param size of a number of its arithmetic
/// @param attention what gla has
std::int64_t cpu_layer_memory(const FloatArguments& a, std::int64_t size, std::int64_t attention) {
  const std::int64_t rows = std::int64_t(a.B) * a.L;
  const std::int64_t keys = rows * a.key_dim(), values = rows * a.value_dim(), x = rows * a.d_model;
  // x and the logits; q, k, g, v, z and o. Then u, the product with Wo, and Wo where it is not of this type.
  const std::int64_t kept = size * (x + keys) + std::int64_t(sizeof(float)) * 3 * (keys + values);
  const std::int64_t Wo = size == sizeof(float) ? 0 : std::int64_t(a.d_model) * a.value_dim();
  return kept + std::max(attention, size * (values + x + Wo));
}

}  // namespace

std::int64_t cpu_memory(const FloatArguments& a) {
  return cpu_layer_memory(a, sizeof(float), gla::chunkwise_memory(attention(a)));
}

std::int64_t reference_memory(const FloatArguments& a) {
  return cpu_layer_memory(a, sizeof(double), 0);
}

template <class T>
std::string gpu_unsupported(const Arguments<T>& a) {
  if (std::int64_t(a.B) * a.L > INT_MAX - 16) return "B L > 2^31 - 17: rows of matrices are counted in int";
  if (a.key_dim() > 65535 * 128) return "H Dk > 65535 * 128: the grid";
  return gla::dispatch_unsupported(attention(a));
}
template std::string gpu_unsupported(const FloatArguments&);
template std::string gpu_unsupported(const Bf16Arguments&);

template <class T>
std::int64_t gpu_memory(const Arguments<T>& a) {
  const std::int64_t key_dim = a.key_dim(), value_dim = a.value_dim();
  const std::int64_t row = std::int64_t(sizeof(T)) * (2 * key_dim + 4 * value_dim) +  // q, k; v, z, o, u
                           std::int64_t(sizeof(float)) * (a.rank + key_dim);          // low, g
  return std::int64_t(a.B) * a.L * row + std::int64_t(matmul_memory()) + gla::dispatch_memory(attention(a));
}
template std::int64_t gpu_memory(const FloatArguments&);
template std::int64_t gpu_memory(const Bf16Arguments&);

template <class T>
std::string gpu_note(const Arguments<T>& a) {
  return "gla's dispatch: " + gla::dispatch_note(attention(a));
}
template std::string gpu_note(const FloatArguments&);
template std::string gpu_note(const Bf16Arguments&);

}  // namespace tutorial::gla_layer
