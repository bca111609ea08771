#pragma once
/// @file
/// The layer on a GPU. The stages `gpu` and `gpu_bf16` differ in the type of x, y, the matrices and what lies
/// between them.

#include <cuda_runtime.h>

#include <climits>

#include "03_gla/gla_layer/heads.hpp"
#include "common/device/launch.cuh"
#include "common/device/matmul.hpp"
#include "common/device/memory.cuh"
#include "common/device/warp.cuh"
#include "common/device/workspace.hpp"
#include "common/parts.hpp"
#include "common/tile/float_tile.cuh"

namespace tutorial::gla_layer {
namespace {

using tile::store_float;
using tile::to_float;

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
  const int column = int(blockIdx.y) * kColumns + int(threadIdx.x);
  const int first_row = int(blockIdx.x) * kPositions;
  float logits[kPositions] = {};
  for (int first = 0; first < rank; first += kRanks) {
    __syncthreads();
    for (int i = int(threadIdx.x); i < kPositions * kRanks; i += kColumns) {
      const int row = first_row + i / kRanks, column_of_low = first + i % kRanks;
      const bool is_there = row < rows && column_of_low < rank;
      reinterpret_cast<float*>(low_tile)[i] =
          is_there ? load_global(low + std::int64_t(row) * rank + column_of_low) : 0.0f;
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
  const std::int64_t head = std::int64_t(blockIdx.x) * kHeads + threadIdx.x / 32;
  if (head >= heads) return;
  const std::int64_t start = head * Dv;
  const int lane = int(lane_index());
  float squares = 0;
  for (int j = lane; j < Dv; j += 32) {
    const float value = to_float(load_global(o + start + j));
    squares += value * value;
  }
  const float norm = 1.0f / sqrtf(warp_sum(squares) / float(Dv) + eps);
  for (int j = lane; j < Dv; j += 32) {
    const float z_j = to_float(load_global(z + start + j));
    const float swish = z_j / (1.0f + expf(-z_j));  // -0 if exp is infinite
    store_float(u + start + j, to_float(load_global(o + start + j)) * norm * load_global(w + j) * swish);
  }
}

/// All parts, one after the other. Between them are matrices in device memory; nothing goes to the host.
template <class T>
void layer(const Arguments<T>& a) {
  const int rows = a.B * a.L, key_dim = a.key_dim(), value_dim = a.value_dim();
  const auto size = [&](int columns) { return std::size_t(rows) * std::size_t(columns); };
  T* q = workspace<T>("gla_layer: q", size(key_dim));
  T* k = workspace<T>("gla_layer: k", size(key_dim));
  T* v = workspace<T>("gla_layer: v", size(value_dim));
  T* z = workspace<T>("gla_layer: z", size(value_dim));
  matmul_transposed(a.x, a.Wq, q, rows, key_dim, a.d_model);
  matmul_transposed(a.x, a.Wk, k, rows, key_dim, a.d_model);
  matmul_transposed(a.x, a.Wv, v, rows, value_dim, a.d_model);
  matmul_transposed(a.x, a.Wz, z, rows, value_dim, a.d_model);
  end_part("projections");

  float* low = workspace<float>("gla_layer: low", size(a.rank));
  float* g = workspace<float>("gla_layer: g", size(key_dim));
  matmul_transposed(a.x, a.W1, low, rows, a.rank, a.d_model);
  launch(gates_kernel<T>,
         {dim3(unsigned((rows - 1) / kPositions + 1), unsigned((key_dim - 1) / kColumns + 1)), kColumns}, low, a.W2,
         a.bias, a.normalizer, g, rows, key_dim, a.rank);
  end_part("gates");

  T* o = workspace<T>("gla_layer: o", size(value_dim));
  gla::dispatch(attention<T>(a, q, k, v, g, o));
  end_part("gla");

  T* u = workspace<T>("gla_layer: u", size(value_dim));
  const std::int64_t heads = std::int64_t(rows) * a.H;
  launch(norm_and_gate_kernel<T>, {unsigned((heads - 1) / kHeads + 1), 32 * kHeads}, o, z, a.w, a.eps, u, heads, a.Dv);
  end_part("norm and gate");

  matmul_transposed(u, a.Wo, a.y, rows, a.d_model, value_dim);
  end_part("output");
}

/// Why the layer cannot run this, as a sentence; empty if it can.
template <class T>
std::string layer_unsupported(const Arguments<T>& a) {
  if (std::int64_t(a.B) * a.L > INT_MAX - kPositions) return "B L > 2^31 - 17: rows of matrices are counted in int";
  if (a.key_dim() > 65535 * kColumns) return "H Dk > 65535 * 128: the grid";
  return gla::dispatch_unsupported(attention(a));
}

/// Bytes of everything between x and y, and of the library.
template <class T>
std::int64_t layer_memory(const Arguments<T>& a) {
  const std::int64_t key_dim = a.key_dim(), value_dim = a.value_dim();
  const std::int64_t row = std::int64_t(sizeof(T)) * (2 * key_dim + 4 * value_dim) +  // q, k; v, z, o, u
                           std::int64_t(sizeof(float)) * (a.rank + key_dim);          // low, g
  return std::int64_t(a.B) * a.L * row + std::int64_t(matmul_memory()) + gla::dispatch_memory(attention(a));
}

/// What gla's dispatch picks, as text for the report.
template <class T>
std::string layer_note(const Arguments<T>& a) {
  return "gla's dispatch: " + gla::dispatch_note(attention(a));
}

}  // namespace
}  // namespace tutorial::gla_layer
