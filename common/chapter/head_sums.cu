#include "common/chapter/head_sums.hpp"

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>

#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/tile/aligned_rows.hpp"

namespace tutorial {
namespace {

constexpr int kThreads = 256;

/// Numbers side by side, loaded and stored at once.
template <class T, int kCount>
struct alignas(kCount * sizeof(T)) Unit {
  T x[kCount];
};

/// A thread adds up one unit of a row. Grid: units of all rows of all groups / kThreads, rounded up.
/// @param parts [groups, heads, L, D]
/// @param units of all groups
template <int kCount, class T>
__global__ void __launch_bounds__(kThreads)
    add_up_heads_kernel(const T* parts, View<T> sum, int heads, int L, int D, int key_heads, std::int64_t units) {
  using OfRow = Unit<T, kCount>;
  const std::int64_t i = std::int64_t(blockIdx.x) * kThreads + int(threadIdx.x);
  if (i >= units) return;
  const int of_row = D / kCount, d = int(i % of_row) * kCount;
  const std::int64_t row = i / of_row, group = row / L, t = row % L;
  float x[kCount] = {};
  for (int h = 0; h < heads; ++h) {
    const auto part = load_global(reinterpret_cast<const OfRow*>(parts + ((group * heads + h) * L + t) * D + d));
#pragma unroll
    for (int j = 0; j < kCount; ++j) x[j] += float(part.x[j]);
  }
  OfRow out;
#pragma unroll
  for (int j = 0; j < kCount; ++j) out.x[j] = T(x[j]);
  store_global(reinterpret_cast<OfRow*>(sum.row(group / key_heads, group % key_heads, t) + d), out);
}

template <int kCount, class T>
void start(const HeadParts& p, const View<T>& to, int key_heads) {
  const std::int64_t units = std::int64_t(p.groups) * p.L * (p.D / kCount);
  if (units == 0) return;
  launch(add_up_heads_kernel<kCount, T>, {dim3(unsigned((units - 1) / kThreads + 1)), dim3(kThreads)},
         static_cast<const T*>(p.data), to, p.heads, p.L, p.D, key_heads, units);
}

template <class T>
void add_up(const HeadParts& p, const TensorReference& sum, int key_heads, Processor processor) {
  const View<T> to{static_cast<T*>(sum.data), sum.stride_b, sum.stride_h, sum.stride_l};
  const auto* parts = static_cast<const T*>(p.data);
  const std::int64_t rows = std::int64_t(p.groups) * p.L;
  if (processor == Processor::gpu) {
    constexpr int kCount = 16 / int(sizeof(T));
    const bool is_aligned = p.D % kCount == 0 && tile::has_aligned_rows(to);
    return is_aligned ? start<kCount>(p, to, key_heads) : start<1>(p, to, key_heads);
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t group = row / p.L, t = row % p.L;
    T* out = to.row(group / key_heads, group % key_heads, t);
    for (int d = 0; d < p.D; ++d) {
      float x = 0;
      for (int h = 0; h < p.heads; ++h) x += float(parts[((group * p.heads + h) * p.L + t) * p.D + d]);
      out[d] = T(x);
    }
  }
}

}  // namespace

void add_up_heads(const HeadParts& parts, const TensorReference& sum, int key_heads, Processor processor) {
  switch (sum.dtype) {
    case Dtype::fp32:
      return add_up<float>(parts, sum, key_heads, processor);
    case Dtype::bf16:
      return add_up<__nv_bfloat16>(parts, sum, key_heads, processor);
    default:
      throw std::logic_error("gradients of shared heads are fp32 or bf16");
  }
}

}  // namespace tutorial
