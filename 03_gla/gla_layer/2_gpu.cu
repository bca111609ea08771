/// @file
/// `gpu`: the parts of the layer on the GPU, one after the other, in fp32 or with matrices in bf16.
///
/// Idea: a library, cuBLAS, computes the matrix products, and gla's dispatch computes gla. Two small kernels do the
/// rest, each in one pass over its matrix. Each part reads what the one before has written to device memory; nothing
/// goes to the host. In bf16 the products run on tensor cores, more than ten times as fast, and every matrix has half
/// the bytes. What must not be rounded stays in fp32: g, because a decay is a product of many gates whose errors add
/// up; x W1^T, from which g is computed and which has only 16 columns; and every sum inside the kernels.
/// Grows out of: 1_cpu.cpp
/// Improves on: `cpu` has only as many threads as cores.
/// Unchanged: the equations, and the matrices between the parts.
/// Equation:
///
///     gates_kernel           g = logsigmoid(low W2^T + bias) / normalizer, low = x W1^T
///     norm_and_gate_kernel   u = o / sqrt(mean(o^2) + eps) * w * z sigmoid(z)
///
/// With an inner side of `rank` = 16 the product low W2^T writes H Dk / 16 numbers for each that it reads of `low`. So
/// it is computed where its result is used, and the logits never reach memory.
/// Shapes: x, y [B, L, d_model]; q, k, g [B L, H Dk]; v, z, o, u [B L, H Dv]; low [B L, rank]; W as in gla_layer.hpp;
/// in device memory. x, y, W, q, k, v, z, o and u are all fp32 or all bf16; bias, w, low and g are fp32. gla sees the
/// heads through strides.
/// Thread mapping: in gates_kernel a block has 16 positions and 128 columns of g, one thread per column. In
/// norm_and_gate_kernel a warp has one head of a position, and adds up its squares with shuffles.
/// Resources: in gates_kernel 16 sums and 16 numbers of W2 per thread, and 1 KB of shared memory for the block's `low`,
/// with two barriers for each 16 of `rank`.
/// Work: 2 B L d_model (2 H Dk + 3 H Dv) operations in the products, and gla's.
/// Bytes: x, y and the weights once; every matrix between them is written once and read once, x four times more.
/// Bound by: in fp32 by its arithmetic. Tensor cores could compute the products in TF32, but its 11 bits cause errors of
/// 3e-4, so it is off. In bf16 by tensor cores, unless gla takes longer. gla has a small part of the operations but runs
/// along L; the times of the parts show its share.
/// Requires: B L < 2^31 - 16, H Dk <= 8388480, and what gla's dispatch requires.
/// Weakness: q, k and v pass through device memory between the products and gla, o and z between gla and the norm. A
/// product that applied norm and swish gate while it loads u would save that, or one kernel for the projections and
/// gla. Both are matrix products with more inside, which cuBLAS does not offer.
/// Sources: arXiv 2312.06635, section 4.4; cuBLAS: NVIDIA's documentation of cublasGemmEx; Micikevicius et al., "Mixed
/// Precision Training", arXiv 1710.03740.

#include <cuda_runtime.h>

#include "03_gla/gla_layer/heads.hpp"
#include "common/ceil_div.hpp"
#include "common/device/launch.cuh"
#include "common/device/matmul.hpp"
#include "common/device/memory.cuh"
#include "common/device/warp.cuh"
#include "common/device/workspace.hpp"
#include "common/parts.hpp"
#include "common/tile/float_tile.cuh"

namespace tutorial::gla_layer {
namespace {

using namespace tile;  // to_float(), store_float()

constexpr int kColumns = 128;   // of a block of gates_kernel, one per thread
constexpr int kPositions = 16;  // of such a block
constexpr int kRanks = 16;      // of a row of W2 in registers at a time
constexpr int kHeads = 4;       // of a block of norm_and_gate_kernel, one per warp

/// The second half of the low-rank pair and what follows it: g = logsigmoid(low W2^T + bias) / normalizer. A product
/// with so short an inner side would write many times what it reads of `low`, so the logits never reach memory. One
/// thread per column of g: it has its row of W2 in registers and walks the positions, whose `low` is in shared memory,
/// where all threads read the same four numbers at a time. Grid (positions / 16) (columns / 128).
/// @param low [rows, rank]
/// @param W2 [columns, rank]
/// @param bias [columns]
/// @param g [rows, columns]
template <class T>
__global__ void __launch_bounds__(kColumns) gates_kernel(const float* low, const T* W2, const float* bias,
                                                         float normalizer, float* g, int rows, int columns, int rank) {
  __shared__ float4 low_tile[kPositions][kRanks / 4];
  const int column = int(blockIdx.y) * kColumns + int(threadIdx.x), first_row = int(blockIdx.x) * kPositions;
  float logits[kPositions] = {};
  for (int first = 0; first < rank; first += kRanks) {
    __syncthreads();
    for (int i = int(threadIdx.x); i < kPositions * kRanks; i += kColumns) {
      const int t = first_row + i / kRanks, r = first + i % kRanks;
      auto& element = reinterpret_cast<float*>(low_tile)[i];
      element = t < rows && r < rank ? load_global(low + std::int64_t(t) * rank + r) : 0.0f;
    }
    float w[kRanks];
#pragma unroll
    for (int i = 0; i < kRanks; ++i) {
      const bool is_there = column < columns && first + i < rank;
      w[i] = is_there ? to_float(load_global(W2 + std::int64_t(column) * rank + first + i)) : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int t = 0; t < kPositions; ++t) {
#pragma unroll
      for (int i = 0; i < kRanks / 4; ++i) {
        const float4 four = low_tile[t][i];
        logits[t] += four.x * w[4 * i] + four.y * w[4 * i + 1] + four.z * w[4 * i + 2] + four.w * w[4 * i + 3];
      }
    }
  }
  if (column >= columns) return;
  const float bias_of_column = load_global(bias + column);
#pragma unroll
  for (int t = 0; t < kPositions; ++t) {
    if (first_row + t >= rows) return;
    const float logit = logits[t] + bias_of_column;
    // The exponential of a number of at most 0 cannot overflow, and no gate is above 1.
    const float log_gate = fminf(logit, 0.0f) - log1pf(expf(-fabsf(logit)));
    store_global(g + std::int64_t(first_row + t) * columns + column, log_gate / normalizer);
  }
}

/// u = o / sqrt(mean(o^2) + eps) * w * z sigmoid(z). One warp per head and position. It reads the row of o twice: for
/// the mean, and, from the first-level cache, for u. Grid ceil(heads / 4).
/// @param o,z,u [heads, Dv], the heads of all positions
/// @param w [Dv]
template <class T>
__global__ void __launch_bounds__(32 * kHeads)
    norm_and_gate_kernel(const T* o, const T* z, const float* w, float eps, T* u, std::int64_t heads, int Dv) {
  const std::int64_t head = std::int64_t(blockIdx.x) * kHeads + threadIdx.x / 32, start = head * Dv;
  if (head >= heads) return;
  float squares = 0;
  for (int j = int(lane_index()); j < Dv; j += 32) {
    const float value = to_float(load_global(o + start + j));
    squares += value * value;
  }
  const float norm = 1.0f / sqrtf(warp_sum(squares) / float(Dv) + eps);
  for (int j = int(lane_index()); j < Dv; j += 32) {
    const float z_j = to_float(load_global(z + start + j));
    const float swish = z_j / (1.0f + expf(-z_j));  // -0 if exp is infinite
    store_float(u + start + j, to_float(load_global(o + start + j)) * norm * load_global(w + j) * swish);
  }
}

}  // namespace

template <class T>
void gpu(const Arguments<T>& a) {
  const int rows = a.B * a.L, key_dim = a.key_dim(), value_dim = a.value_dim();
  const auto size = [&](int columns) { return std::size_t(rows) * std::size_t(columns); };
  const auto project = [&](const char* name, const T* W, int columns) {
    T* product = workspace<T>(name, size(columns));
    matmul_transposed(a.x, W, product, rows, columns, a.d_model);
    return product;
  };
  const T *q = project("gla_layer: q", a.Wq, key_dim), *k = project("gla_layer: k", a.Wk, key_dim);
  const T *v = project("gla_layer: v", a.Wv, value_dim), *z = project("gla_layer: z", a.Wz, value_dim);
  end_part("projections");

  float *low = workspace<float>("gla_layer: low", size(a.rank)), *g = workspace<float>("gla_layer: g", size(key_dim));
  matmul_transposed(a.x, a.W1, low, rows, a.rank, a.d_model);
  const dim3 blocks(unsigned(ceil_div(rows, kPositions)), unsigned(ceil_div(key_dim, kColumns)));
  launch(gates_kernel<T>, {blocks, kColumns}, low, a.W2, a.bias, a.normalizer, g, rows, key_dim, a.rank);
  end_part("gates");

  T *o = workspace<T>("gla_layer: o", size(value_dim)), *u = workspace<T>("gla_layer: u", size(value_dim));
  gla::dispatch(attention<T>(a, q, k, v, g, o));
  end_part("gla");

  const std::int64_t heads = std::int64_t(rows) * a.H;
  launch(norm_and_gate_kernel<T>, {unsigned((heads - 1) / kHeads + 1), 32 * kHeads}, o, z, a.w, a.eps, u, heads, a.Dv);
  end_part("norm and gate");

  matmul_transposed(u, a.Wo, a.y, rows, a.d_model, value_dim);
  end_part("output");
}
template void gpu(const FloatArguments&);
template void gpu(const Bf16Arguments&);

}  // namespace tutorial::gla_layer
