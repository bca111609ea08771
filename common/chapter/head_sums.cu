#include "common/chapter/head_sums.hpp"

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>

#include "common/device/launch.cuh"
#include "common/device/memory.cuh"

namespace tutorial {
namespace {

constexpr int kThreads = 128;

/// A block adds up one row. Grid (L, groups) in one dimension, the positions first.
/// @param parts [groups, heads, L, D]
template <class T>
__global__ void __launch_bounds__(kThreads)
    add_up_heads_kernel(const T* parts, View<T> sum, int heads, int L, int D, int key_heads) {
  const std::int64_t row = std::int64_t(blockIdx.x);
  const std::int64_t group = row / L, t = row % L;
  const T* first = parts + (group * heads * L + t) * D;
  T* to = sum.row(group / key_heads, group % key_heads, t);
  for (int d = int(threadIdx.x); d < D; d += kThreads) {
    float x = 0;
    for (int h = 0; h < heads; ++h) x += float(load_global(first + std::int64_t(h) * L * D + d));
    store_global(to + d, T(x));
  }
}

template <class T>
void add_up(const HeadParts& p, const TensorReference& sum, int key_heads, Processor processor) {
  const View<T> to{static_cast<T*>(sum.data), sum.stride_b, sum.stride_h, sum.stride_l};
  const auto* parts = static_cast<const T*>(p.data);
  const std::int64_t rows = std::int64_t(p.groups) * p.L;
  if (processor == Processor::gpu) {
    if (rows > 0) {
      launch(add_up_heads_kernel<T>, {dim3(unsigned(rows)), dim3(kThreads)}, parts, to, p.heads, p.L, p.D, key_heads);
    }
    return;
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
