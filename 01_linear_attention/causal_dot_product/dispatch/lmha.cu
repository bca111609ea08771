/// @file
/// `lmha` with everything that dispatch needs: Dk up to 256, any number of blocks per head, one or two threads per
/// column.
///
/// A column of up to 64 floats fits into one thread. Beyond that, 2 threads (Dk up to 128) or 4 (up to 256) share a
/// column, and o_t[j] is the sum of their parts, by warp shuffles. The threads of a column take turns along Dk, four
/// floats each, so that the lanes of a warp read neighbouring float4 from shared memory. Dk is rounded up to a tier of
/// 32, 48, 64, 128 or 256, so that every loop over the column has a length that the compiler knows.
///
/// The columns of a head go to one block or to several, because the columns of S are independent.
///
/// Where Dk <= 64, two threads may share a column as well. Each warp then does half of a position's reads and
/// multiply-adds. The other half goes to a scheduler that had no warp.

#include <cuda_runtime.h>

#include <algorithm>
#include <climits>

#include "01_linear_attention/causal_dot_product/dispatch/lmha.hpp"
#include "01_linear_attention/causal_dot_product/dispatch/products.hpp"
#include "common/ceil_div.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/warp.cuh"
#include "common/tile/aligned_rows.hpp"

namespace tutorial::causal_dot_product {
namespace {

constexpr int kMaxThreads = 512;
constexpr int kNoStep = INT_MAX;  // a position that no sequence reaches

constexpr int threads_per_column(int tier) {
  return tier <= 64 ? 1 : tier / 64;
}

/// The compile-time parameters of a kernel: for Dk up to kTier, with kShare threads per column. Narrow blocks (up to
/// 128 threads) may use more registers per thread than wide ones, so their tiles are longer. The steps of a tile are
/// not unrolled as a whole, for the reason that `lmha` gives.
template <int kTier, int kShare, bool kWide>
struct Shape {
  // Positions per buffer, and how many of them are unrolled. Both were found by trying.
  static constexpr int kSteps = kTier > 128 ? 4 : kWide || (kTier <= 64 && kShare == 2) ? 8 : 16;
  static constexpr int kUnroll = kWide ? 1 : kSteps == 8 ? 4 : 2;
  static constexpr int kThreads = kWide ? kMaxThreads : 128;  // at most
  static constexpr int kFewestThreads = kWide ? 160 : kShare == 1 ? 64 : 32 * kShare;
  static constexpr int kColumns = kThreads / kShare;                 // at most
  static constexpr int kFloat4 = kSteps * kTier / 4;                 // of q in a buffer; k has as many
  static constexpr int kLoads = (kFloat4 - 1) / kFewestThreads + 1;  // of them per thread
  static constexpr int kLoadsOfV = kSteps / kShare;                  // values of v per thread
  static_assert(kSteps % kShare == 0, "the threads of a column share out the steps of v");
};

/// Four elements of a row, of which `left` are inside it; zero for the others. kVector: the row's length is a multiple
/// of 4 and the elements are 16-byte aligned.
template <bool kVector>
__device__ float4 load4(const float* elements, int left) {
  if constexpr (kVector) {
    return load_global(reinterpret_cast<const float4*>(elements));
  } else {
    return {load_global(&elements[0]), left > 1 ? load_global(&elements[1]) : 0,
            left > 2 ? load_global(&elements[2]) : 0, left > 3 ? load_global(&elements[3]) : 0};
  }
}

/// One walk. The block's threads cover blockDim.x / kShare value columns, from column tile blockIdx.y on.
template <int kTier, int kShare, bool kWide, bool kVector>
__device__ __forceinline__ void walk(const View<const float>& q, const View<const float>& k, const View<const float>& v,
                                     const View<float>& o, int H, int L, int Dk, int Dv) {
  using X = Shape<kTier, kShare, kWide>;
  constexpr int kSteps = X::kSteps;
  __shared__ float4 q_tile[2][kSteps][kTier / 4];
  __shared__ float4 k_tile[2][kSteps][kTier / 4];
  __shared__ float v_tile[2][kSteps][X::kColumns];

  const int b = int(blockIdx.x) / H, h = int(blockIdx.x) % H;
  const int thread = int(threadIdx.x);
  const int columns = int(blockDim.x) / kShare;  // of this block
  const int first_column = int(blockIdx.y) * columns;
  const int column = thread / kShare;  // of this thread
  const int part = thread % kShare;    // which of the threads that share it

  // This thread's share of every tile: elements d to d + 3 of the same steps in each tile. So the addresses of the next
  // tile are those of this one plus a constant. kNoStep means that there is no such step.
  int step_of[X::kLoads], d_of[X::kLoads];
  const float *q_source[X::kLoads], *k_source[X::kLoads];
#pragma unroll
  for (int n = 0; n < X::kLoads; ++n) {
    const int index = thread + n * int(blockDim.x);
    d_of[n] = index % (kTier / 4) * 4;
    step_of[n] = index < X::kFloat4 && d_of[n] < Dk ? index / (kTier / 4) : kNoStep;
    q_source[n] = q.row(b, h, index / (kTier / 4)) + d_of[n];
    k_source[n] = k.row(b, h, index / (kTier / 4)) + d_of[n];
  }
  const int v_step = thread / columns, v_column = thread % columns;
  const bool has_v = first_column + v_column < Dv;
  const float* v_source = v.row(b, h, v_step) + first_column + v_column;

  float4 q_next[X::kLoads], k_next[X::kLoads];  // the next tile, being loaded from device memory
  float v_next[X::kLoadsOfV];
  auto load_tile = [&](int t0) {
#pragma unroll
    for (int n = 0; n < X::kLoads; ++n) {
      q_next[n] = k_next[n] = float4{0, 0, 0, 0};  // a key of zeros past the end leaves S as it is
      if (step_of[n] < L - t0) {
        q_next[n] = load4<kVector>(q_source[n], Dk - d_of[n]);
        k_next[n] = load4<kVector>(k_source[n], Dk - d_of[n]);
      }
      q_source[n] += kSteps * q.stride_l;
      k_source[n] += kSteps * k.stride_l;
    }
#pragma unroll
    for (int n = 0; n < X::kLoadsOfV; ++n) {
      v_next[n] = has_v && v_step + n * kShare < L - t0 ? load_global(v_source) : 0;
      v_source += kShare * v.stride_l;
    }
  };
  auto store_tile = [&](int buffer) {
#pragma unroll
    for (int n = 0; n < X::kLoads; ++n) {
      const int index = thread + n * int(blockDim.x);
      if (index < X::kFloat4) {
        q_tile[buffer][index / (kTier / 4)][index % (kTier / 4)] = q_next[n];
        k_tile[buffer][index / (kTier / 4)][index % (kTier / 4)] = k_next[n];
      }
    }
#pragma unroll
    for (int n = 0; n < X::kLoadsOfV; ++n) v_tile[buffer][v_step + n * kShare][v_column] = v_next[n];
  };

  const bool has_o = part == 0 && first_column + column < Dv;
  float* o_t = o.row(b, h, 0) + first_column + column;
  float4 S[kTier / kShare / 4] = {};  // this thread's part of its column
  load_tile(0);
  store_tile(0);
  __syncthreads();
  for (int t0 = 0, buffer = 0; t0 < L; t0 += kSteps, buffer ^= 1) {
    load_tile(t0 + kSteps);
#pragma unroll X::kUnroll
    for (int step = 0; step < kSteps; ++step) {
      const float v_tj = v_tile[buffer][step][column];
      float4 sum = {0, 0, 0, 0};
#pragma unroll
      for (int i = 0; i < kTier / kShare / 4; ++i) {
        const float4 k_t = k_tile[buffer][step][i * kShare + part];
        const float4 q_t = q_tile[buffer][step][i * kShare + part];
        S[i].x += k_t.x * v_tj;
        S[i].y += k_t.y * v_tj;
        S[i].z += k_t.z * v_tj;
        S[i].w += k_t.w * v_tj;
        sum.x += q_t.x * S[i].x;
        sum.y += q_t.y * S[i].y;
        sum.z += q_t.z * S[i].z;
        sum.w += q_t.w * S[i].w;
      }
      const float o_tj = warp_sum<kShare>((sum.x + sum.y) + (sum.z + sum.w));
      if (has_o && step < L - t0) store_global(o_t, o_tj);
      o_t += o.stride_l;
    }
    store_tile(buffer ^ 1);
    __syncthreads();
  }
}

/// Grid (B H, column tiles).
template <int kTier, int kShare, bool kWide, bool kVector>
__global__ void __launch_bounds__(Shape<kTier, kShare, kWide>::kThreads)
    lmha_kernel(View<const float> q, View<const float> k, View<const float> v, View<float> o, int H, int L, int Dk,
                int Dv) {
  walk<kTier, kShare, kWide, kVector>(q, k, v, o, H, L, Dk, Dv);
}

/// Several products of the same sizes.
struct AtOnce {
  struct {
    View<const float> q, k, v;
    View<float> o;
  } of[kMostAtOnce];
};

/// Grid (B H, column tiles, products). This is a kernel of its own, because strides that depend on the block take
/// registers, which the wide kernels do not have. In lmha_kernel, instructions take the strides directly from the
/// kernel's parameters.
template <int kTier, int kShare, bool kWide, bool kVector>
__global__ void __launch_bounds__(Shape<kTier, kShare, kWide>::kThreads)
    at_once_kernel(const __grid_constant__ AtOnce products, int H, int L, int Dk, int Dv) {
  const auto& product = products.of[blockIdx.z];
  walk<kTier, kShare, kWide, kVector>(product.q, product.k, product.v, product.o, H, L, Dk, Dv);
}

template <int kTier, int kShare, bool kWide>
void launch_shape(std::span<const Arguments> products, int columns) {
  const Arguments& a = products.front();
  const LaunchConfig config(dim3(unsigned(a.B * a.H), unsigned(ceil_div(a.Dv, columns)), unsigned(products.size())),
                            unsigned(columns * kShare));
  AtOnce all{};
  bool vector = a.Dk % 4 == 0;
  for (std::size_t n = 0; n < products.size(); ++n) {
    const Arguments& p = products[n];
    all.of[n] = {p.q, p.k, p.v, p.o};
    vector = vector && tile::has_aligned_rows(p.q) && tile::has_aligned_rows(p.k);
  }
  if (products.size() == 1) {
    const auto kernel = vector ? lmha_kernel<kTier, kShare, kWide, true> : lmha_kernel<kTier, kShare, kWide, false>;
    return launch(kernel, config, a.q, a.k, a.v, a.o, a.H, a.L, a.Dk, a.Dv);
  }
  const auto kernel = vector ? at_once_kernel<kTier, kShare, kWide, true> : at_once_kernel<kTier, kShare, kWide, false>;
  launch(kernel, config, all, a.H, a.L, a.Dk, a.Dv);
}

template <int kTier>
void launch_tier(std::span<const Arguments> products, LmhaPlan plan) {
  constexpr int kShare = threads_per_column(kTier);
  // A block has whole warps, because shuffles name all 32 lanes, and at least two of them. Threads past the last column
  // compute on zeros.
  int columns = ((products.front().Dv - 1) / plan.blocks_per_head / 32 + 1) * 32;
  if constexpr (kShare == 1) {
    if (plan.two_threads_per_column && columns <= 64) return launch_shape<kTier, 2, false>(products, columns);
    columns = std::max(columns, 64);
  }
  if (columns * kShare <= 128) return launch_shape<kTier, kShare, false>(products, columns);
  launch_shape<kTier, kShare, true>(products, columns);
}

}  // namespace

void planned_lmha(std::span<const Arguments> products, LmhaPlan plan) {
  const int Dk = products.front().Dk;
  if (Dk <= 32) return launch_tier<32>(products, plan);
  if (Dk <= 48) return launch_tier<48>(products, plan);
  if (Dk <= 64) return launch_tier<64>(products, plan);
  if (Dk <= 128) return launch_tier<128>(products, plan);
  return launch_tier<256>(products, plan);
}

int lmha_max_columns(int Dk) {
  return kMaxThreads / (Dk <= 64 ? 1 : Dk <= 128 ? 2 : 4);
}

}  // namespace tutorial::causal_dot_product
