/// @file
/// Why a stage cannot run a problem, and the memory that it takes.

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "01_linear_attention/attention.hpp"
#include "common/parallel.hpp"

namespace tutorial::bidirectional_attention {
namespace {

/// The memory that products() needs: for each thread phi(K), phi(Q), V if it is not of this type, the numerator and S.
template <class Real>
std::int64_t products_memory(const Arguments& a) {
  const std::int64_t threads = std::min<std::int64_t>(processor_count(), std::int64_t(a.B) * a.H);
  const std::int64_t features = (std::int64_t(a.L) + a.Lk) * a.Dk;
  const std::int64_t V = std::is_same_v<Real, float> ? 0 : std::int64_t(a.Lk) * a.Dv;
  const std::int64_t numerator = std::int64_t(a.L) * (a.Dv + 1);
  return threads * std::int64_t(sizeof(Real)) * (features + V + numerator + std::int64_t(a.Dk) * a.Dv);
}

}  // namespace

std::int64_t eigen_memory(const Arguments& a) {
  return products_memory<float>(a);
}

std::int64_t state_double_memory(const Arguments& a) {
  return products_memory<double>(a);
}

std::string gpu_unsupported(const Arguments& a) {
  if (std::int64_t(a.B) * a.H > 65535) return "B H > 65535: the grid's third dimension";
  if ((a.Dv - 1) / 64 + 1 > 65535) return "Dv > 64 x 65535: the grid's second dimension";
  return "";
}

}  // namespace tutorial::bidirectional_attention
