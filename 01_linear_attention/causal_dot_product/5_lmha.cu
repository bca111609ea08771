/// @file
/// `lmha` (linear multi-head attention): tiles of 16 positions, loaded while the tile before is computed.
///
/// Idea: double buffering. The block computes on one buffer in shared memory. Meanwhile each thread loads its share of
/// the next tile from device memory into registers. It stores that share to the other buffer when the computation is
/// done, and one barrier swaps the two buffers.
///
///      registers      load tile n+1 ........................ store     load tile n+2 ...
///      buffer 0/1     compute tile n (in buffer n % 2)       -> n+1    compute tile n+1
///                                                             ^ barrier
///
/// One barrier is enough: before it, all threads have read buffer n % 2 for the last time, and have written the other
/// one. A load takes 600 to 900 clocks to arrive, and a position computes for some 310. A buffer of a single position
/// would leave the block waiting. A tile of 16 positions covers this latency, and needs one barrier for all of them.
/// Grows out of: 4_registers.cu
/// Improves on: `registers` waits at every position for its loads and at two barriers.
/// Unchanged: one block per (batch, head), one column of S per thread, in registers.
/// Equation: S[:, j] += k_t^T v_t[j], then o_t[j] = q_t S[:, j], in thread j
/// Shapes: q, k [B, H, L, Dk]; v, o [B, H, L, Dv], fp32 in device memory; a tile of q, k and v in shared memory, twice.
/// Thread mapping: block b h has one thread per value column. For a tile, neighbouring threads load neighbouring
/// elements of a row. Keys beyond the end are zeros, which leave S as it is.
/// Resources: S takes 64 registers at Dk = 64, the tile under way 48 more; 24 KB of shared memory at Dk = Dv = 64.
/// Work: 4 Dk Dv operations per head and position.
/// Bytes: q, k and v are read once, o is written once. No kernel can move less.
/// Bound by: the latency of shared memory. A position cannot start before the last one is done. A thread reads two
/// float4 from shared memory for every eight multiply-adds, and only one or two warps per block are there to hide that
/// latency. With B H blocks most of the GPU's multiprocessors have no work.
/// Requires: Dk <= 64 and Dv <= 128, as `registers`.
/// Weakness: positions follow one another, and a head has only one block. `lmha_low_occupancy` computes several
/// positions at once.
/// Sources: NVIDIA's `lmha` kernel for fast-transformers follows the same plan with one position per buffer.

#include <cuda_runtime.h>

#include "01_linear_attention/causal_dot_product.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"

namespace tutorial::causal_dot_product {
namespace {

constexpr int kSteps = 16;  // positions per tile

/// A thread's share of kSteps rows: element thread % kWidth of every (kThreads / kWidth)-th row.
template <int kWidth, int kThreads>
struct Share {
  static constexpr int kRowsAtOnce = kThreads / kWidth;

  float of[kSteps / kRowsAtOnce];

  /// Starts the loads. Only the first `rows` rows and `columns` columns exist; the rest becomes zeros.
  __device__ __forceinline__ void load(const float* first_row, std::int64_t stride, int rows, int columns) {
    const int row = int(threadIdx.x) / kWidth, column = int(threadIdx.x) % kWidth;
    const float* source = first_row + row * stride + column;
#pragma unroll
    for (int n = 0; n < kSteps / kRowsAtOnce; ++n, source += kRowsAtOnce * stride) {
      of[n] = row + n * kRowsAtOnce < rows && column < columns ? load_global(source) : 0.0f;
    }
  }
  __device__ __forceinline__ void store(float (&tile)[kSteps][kWidth]) const {
#pragma unroll
    for (int n = 0; n < kSteps / kRowsAtOnce; ++n) {
      tile[int(threadIdx.x) / kWidth + n * kRowsAtOnce][int(threadIdx.x) % kWidth] = of[n];
    }
  }
};

/// Grid B H. The last threads may have no column; they compute on zeros.
/// @tparam kDk Dk rounded up
/// @tparam kThreads Dv rounded up
template <int kDk, int kThreads>
__global__ void __launch_bounds__(kThreads) lmha_kernel(Arguments a) {
  alignas(16) __shared__ float q_tile[2][kSteps][kDk];
  alignas(16) __shared__ float k_tile[2][kSteps][kDk];
  __shared__ float v_tile[2][kSteps][kThreads];
  const int b = int(blockIdx.x) / a.H, h = int(blockIdx.x) % a.H;
  const int j = int(threadIdx.x);

  Share<kDk, kThreads> q_next, k_next;
  Share<kThreads, kThreads> v_next;
  const auto load_tile = [&](int t) {
    q_next.load(a.q.row(b, h, t), a.q.stride_l, a.L - t, a.Dk);
    k_next.load(a.k.row(b, h, t), a.k.stride_l, a.L - t, a.Dk);
    v_next.load(a.v.row(b, h, t), a.v.stride_l, a.L - t, a.Dv);
  };
  const auto store_tile = [&](int buffer) {
    q_next.store(q_tile[buffer]);
    k_next.store(k_tile[buffer]);
    v_next.store(v_tile[buffer]);
  };
  load_tile(0);
  store_tile(0);
  __syncthreads();

  float4 S[kDk / 4] = {};  // column j
  for (int t0 = 0, buffer = 0; t0 < a.L; t0 += kSteps, buffer ^= 1) {
    load_tile(t0 + kSteps);  // into registers; arrives while this tile is computed
    // Not unrolled as a whole: the compiler would see the loads and their use in one piece of code, and move the loads
    // down to where they are used, behind all the computing that hides them.
#pragma unroll 2
    for (int step = 0; step < kSteps; ++step) {
      const int t = t0 + step;
      const auto* q_t = reinterpret_cast<const float4*>(q_tile[buffer][step]);
      const auto* k_t = reinterpret_cast<const float4*>(k_tile[buffer][step]);
      const float v_tj = v_tile[buffer][step][j];
      float4 o_tj = {0, 0, 0, 0};
#pragma unroll
      for (int i = 0; i < kDk / 4; ++i) {
        const float4 q = q_t[i], k = k_t[i];
        S[i].x += k.x * v_tj;
        S[i].y += k.y * v_tj;
        S[i].z += k.z * v_tj;
        S[i].w += k.w * v_tj;
        o_tj.x += q.x * S[i].x;
        o_tj.y += q.y * S[i].y;
        o_tj.z += q.z * S[i].z;
        o_tj.w += q.w * S[i].w;
      }
      if (t < a.L && j < a.Dv) store_global(&a.o.row(b, h, t)[j], (o_tj.x + o_tj.y) + (o_tj.z + o_tj.w));
    }
    store_tile(buffer ^ 1);
    __syncthreads();  // one buffer is read to its end, the other is full
  }
}

template <int kDk>
void launch_width(const Arguments& a) {
  const auto heads = unsigned(a.B * a.H);
  if (a.Dv <= 64) return launch(lmha_kernel<kDk, 64>, {heads, 64}, a);
  launch(lmha_kernel<kDk, 128>, {heads, 128}, a);
}

}  // namespace

void lmha(const Arguments& a) {
  a.Dk <= 32 ? launch_width<32>(a) : launch_width<64>(a);
}

}  // namespace tutorial::causal_dot_product
