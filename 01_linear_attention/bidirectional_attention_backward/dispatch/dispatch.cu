/// @file
/// `dispatch`: six launches of one kernel for matrix products.
///
/// Idea: `eigen` is a list of matrix products, and they differ in which of their factors is transposed. A matrix whose
/// two strides are both given can be read either way, so one kernel computes all of them. z, dc and dz are the last
/// columns of these matrices, as in the gradients of `causal_attention`. The kernels for rows are also those of that
/// stage.
/// Improves on: `eigen` uses the few cores of a CPU.
/// Unchanged: the products.
/// Equation: with v' = [v, 1], o' = [phi(Q) S, phi(Q) z], do' = [dO / c, dc] and their states S' and dS' [Dk, Dv + 1],
///
///   S' = phi(K)^T V'       o' = phi(Q) S'            as in the forward pass, then do' from o'
///   dphi(Q) = do' S'^T     dS' = phi(Q)^T do'
///   dphi(K) = V' dS'^T     dV = (phi(K) dS')[:, :Dv]
///
/// S' and dS' have few tiles and long sums, so their positions are cut into segments, as in the forward stage. A second
/// kernel adds the segments' parts up in a fixed order.
/// Shapes: workspace phi_q, dphi_q [B, H, L, Dk]; phi_k, dphi_k [B, H, Lk, Dk]; v_one, dv_one [B, H, Lk, Dv + 1];
/// o_one, do_one [B, H, L, Dv + 1]; S', dS' [B, H, Dk, Dv + 1], and their parts [segments, B, H, Dk, Dv + 1], fp32 in
/// device memory.
/// Thread mapping: 256 threads per block. Thread (x, y) has the 4 x 4 elements of a 64 x 64 tile of the result at rows
/// y + 16 r, columns x + 16 c, in registers. A tile of a factor is loaded along the dimension that is packed in memory.
/// Resources: 16 registers for the tile, 8 for operands; two tiles of 16 x 66 floats in shared memory, 8.4 KB.
/// Work: (6 L + 6 Lk) Dk (Dv + 1) operations per head.
/// Bytes: 7 tensors in and out. 8 tensors of the workspace are written, and read once per 64 columns of a result.
/// Bound by: reads of shared memory, 8 for 16 multiply-adds, and the loads of each slice, which nothing in the block
/// overlaps.
/// Requires: B H <= 65535.
/// Weakness: every intermediate matrix passes through device memory; Dv + 1 columns need one more tile than Dv.
/// Sources: as `eigen`.

#include <cuda_runtime.h>

#include <algorithm>

#include "01_linear_attention/causal_attention/features.hpp"
#include "01_linear_attention/causal_attention_backward/gradients.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::bidirectional_attention_backward {
namespace {

constexpr int kTile = 64;   // rows and columns of a tile of the result
constexpr int kDepth = 16;  // of the summed dimension in shared memory at a time
constexpr int kThreads = 256;
constexpr int kRow = kTile + 2;  // with padding against bank conflicts, as in the forward stage

/// The matrices of all heads; element (row, column) of head n is data[n head + row row_stride + column column_stride].
struct Matrices {
  float* data;
  std::int64_t head, row_stride, column_stride;

  __device__ float* at(std::int64_t n, int row, int column) const {
    return data + n * head + row * row_stride + column * column_stride;
  }
};

/// Packed matrices [heads, rows, columns].
Matrices matrices(float* data, int rows, int columns) {
  return {data, std::int64_t(rows) * columns, columns, 1};
}
Matrices transposed(const Matrices& m) {
  return {m.data, m.head, m.column_stride, m.row_stride};
}

/// Loads a slice of a factor into shared memory: tile[e][r] is its element (first + r, depth + e), 0 from `rows` and
/// `depth_end` on. Neighbouring threads read neighbouring elements of memory.
__device__ void load_slice(float (&tile)[kDepth][kRow], const Matrices& m, std::int64_t n, int first, int rows,
                           int depth, int depth_end) {
  for (int index = int(threadIdx.x); index < kDepth * kTile; index += kThreads) {
    const bool depth_first = m.column_stride == 1;
    const int e = depth_first ? index % kDepth : index / kTile, r = depth_first ? index / kDepth : index % kTile;
    tile[e][r] = first + r < rows && depth + e < depth_end ? load_global(m.at(n, first + r, depth + e)) : 0.0f;
  }
}

/// C = A B^T for each head and segment of the summed dimension: C [rows, columns], A [rows, depth], B [columns, depth].
/// Grid (row tiles x column tiles, heads, segments); C of segment s lies (s x heads) matrices further on.
__global__ void __launch_bounds__(kThreads)
    product_kernel(Matrices A, Matrices B, Matrices C, int rows, int columns, int depth, int segment_length) {
  __shared__ float a_tile[kDepth][kRow], b_tile[kDepth][kRow];
  const int column_tiles = (columns - 1) / kTile + 1;
  const int r0 = int(blockIdx.x) / column_tiles * kTile, c0 = int(blockIdx.x) % column_tiles * kTile;
  const int x = int(threadIdx.x) % 16, y = int(threadIdx.x) / 16;
  const std::int64_t n = blockIdx.y;
  const int first = int(blockIdx.z) * segment_length, last = min(first + segment_length, depth);

  float sums[4][4] = {};
  for (int e0 = first; e0 < last; e0 += kDepth) {
    load_slice(a_tile, A, n, r0, rows, e0, last);
    load_slice(b_tile, B, n, c0, columns, e0, last);
    __syncthreads();
#pragma unroll
    for (int e = 0; e < kDepth; ++e) {
      float a[4], b[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) a[r] = a_tile[e][y + 16 * r];
#pragma unroll
      for (int c = 0; c < 4; ++c) b[c] = b_tile[e][x + 16 * c];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
#pragma unroll
        for (int c = 0; c < 4; ++c) sums[r][c] += a[r] * b[c];
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < 4; ++r) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int row = r0 + y + 16 * r, column = c0 + x + 16 * c;
      if (row < rows && column < columns) {
        store_global(C.at(n + std::int64_t(blockIdx.z) * gridDim.y, row, column), sums[r][c]);
      }
    }
  }
}

/// state[i] = sum of the segments' parts[n][i], one thread per element.
__global__ void sum_kernel(const float* parts, int segments, std::size_t size, float* state) {
  const std::size_t i = std::size_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= size) return;
  float sum = 0;
  for (int n = 0; n < segments; ++n) sum += load_global(&parts[std::size_t(n) * size + i]);
  store_global(&state[i], sum);
}

/// Starts the kernels of one problem.
struct Products {
  const Arguments& a;
  int heads = a.B * a.H;

  /// C = A B^T, not cut into segments.
  void rows(const Matrices& A, const Matrices& B, const Matrices& C, int rows, int columns, int depth) const {
    const int tiles = ceil_div(rows, kTile) * ceil_div(columns, kTile);
    launch(product_kernel, {dim3(unsigned(tiles), unsigned(heads)), kThreads}, A, B, C, rows, columns, depth, depth);
  }

  /// A state [Dk, Dv + 1] = X^T Y, with the sum over L positions cut into segments. Their number gives each
  /// multiprocessor about four blocks.
  void state(const Matrices& X, const Matrices& Y, int L, float* S) const {
    const int tiles = ceil_div(a.Dk, kTile) * ceil_div(a.Dv + 1, kTile);
    const int wanted = ceil_div(4 * multiprocessor_count(), tiles * heads);
    const int length = ceil_div(L, std::clamp(wanted, 1, ceil_div(L, kTile)));
    const int segments = ceil_div(L, length);
    const std::size_t size = std::size_t(heads) * std::size_t(a.Dk) * std::size_t(a.Dv + 1);
    float* parts = workspace<float>("bidirectional partial states", std::size_t(segments) * size);
    launch(product_kernel, {dim3(unsigned(tiles), unsigned(heads), unsigned(segments)), kThreads}, transposed(X),
           transposed(Y), matrices(parts, a.Dk, a.Dv + 1), a.Dk, a.Dv + 1, L, length);
    launch(sum_kernel, {unsigned((size - 1) / kThreads + 1), kThreads}, parts, segments, size, S);
  }
};

}  // namespace

void dispatch(const Arguments& a) {
  const auto take = [&](const char* name, int rows, int columns) {
    return workspace<float>(name, std::size_t(a.B) * std::size_t(a.H) * std::size_t(rows) * std::size_t(columns));
  };
  const int width = a.Dv + 1;
  float* phi_q = take("bidirectional phi_q", a.L, a.Dk);
  float* phi_k = take("bidirectional phi_k", a.Lk, a.Dk);
  float* v_one = take("bidirectional v_one", a.Lk, width);
  float* o_one = take("bidirectional o_one", a.L, width);
  float* do_one = take("bidirectional do_one", a.L, width);
  float* dphi_q = take("bidirectional dphi_q", a.L, a.Dk);
  float* dphi_k = take("bidirectional dphi_k", a.Lk, a.Dk);
  float* dv_one = take("bidirectional dv_one", a.Lk, width);
  float* S = take("bidirectional state", a.Dk, width);
  float* dS = take("bidirectional adjoint", a.Dk, width);
  const Matrices Q = matrices(phi_q, a.L, a.Dk), K = matrices(phi_k, a.Lk, a.Dk), V = matrices(v_one, a.Lk, width);
  const Matrices O = matrices(o_one, a.L, width), dO = matrices(do_one, a.L, width);
  const Matrices state = matrices(S, a.Dk, width), adjoint = matrices(dS, a.Dk, width);
  const Products product{a};

  causal_attention::features(a, a.Lk, packed(phi_q, a.H, a.L, a.Dk), packed(phi_k, a.H, a.Lk, a.Dk),
                             packed(v_one, a.H, a.Lk, width));
  product.state(K, V, a.Lk, S);
  product.rows(Q, transposed(state), O, a.L, width, a.Dk);
  causal_attention_backward::through_division(a, packed<const float>(o_one, a.H, a.L, width),
                                              packed(do_one, a.H, a.L, width));
  product.rows(dO, state, matrices(dphi_q, a.L, a.Dk), a.L, a.Dk, width);
  product.state(Q, dO, a.L, dS);
  product.rows(V, adjoint, matrices(dphi_k, a.Lk, a.Dk), a.Lk, a.Dk, width);
  product.rows(K, transposed(adjoint), matrices(dv_one, a.Lk, width), a.Lk, width, a.Dk);
  causal_attention_backward::through_features(a, a.Lk, packed<const float>(dphi_q, a.H, a.L, a.Dk),
                                              packed<const float>(dphi_k, a.H, a.Lk, a.Dk),
                                              packed<const float>(dv_one, a.H, a.Lk, width));
}

std::string dispatch_unsupported(const Arguments& a) {
  if (std::int64_t(a.B) * a.H > 65535) return "B H > 65535: the grid's second dimension";
  return "";
}

}  // namespace tutorial::bidirectional_attention_backward
