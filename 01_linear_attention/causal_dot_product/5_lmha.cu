/// @file
/// Stage 5, `lmha` (linear multi-head attention): the state in registers, and no atomics.
///
/// Idea: a block owns all of S for one (batch, head), and a thread one column of it, in registers. Then S never moves,
/// each element of o is written once, and all that flows is q, k and v.
/// Mends: the Dk / 8 atomic adds into every element of o. Same: the recurrence, step by step.
///
///   S_j += k_t v_tj          thread j: column j of S, Dk floats
///   o_tj = q_t . S_j
///
/// Who does what: a column of up to 64 floats fits in one thread. Above, 2 threads (Dk up to 128) or 4 (up to 256)
/// share one, and o_tj is the sum of their parts, by warp shuffles. Dk is rounded up to a tier of 32, 48, 64, 128 or
/// 256 so that every loop over the column has a length known to the compiler: registers have no addresses, an index
/// that is only known at run time would send S to local memory. The threads of a column take turns along Dk, four
/// floats each, so that the lanes of a warp ask shared memory for neighbouring float4.
///
/// Double buffering: every thread needs all of q_t and k_t, so they pass through shared memory. While the block
/// computes on one buffer, each thread already has its share of the next one under way from global memory, in
/// registers; it lands in the other buffer when the computing is done, and one barrier swaps the two.
///
///      registers      load tile n+1 ........................ store     load tile n+2 ...
///      buffer 0/1     compute tile n (in buffer n % 2)       -> n+1    compute tile n+1
///                                                             ^ barrier
///
/// A load takes 600 to 900 cycles to arrive, a time step computes for 200 to 400: a buffer of a single step would leave
/// the block waiting. A tile of kSteps steps covers the way, and pays one barrier for all of them.
///
/// Shapes: q, k [B, H, L, Dk]; v, o [B, H, L, Dv], fp32 in global memory; a tile of q, k and v in shared memory,
/// twice.
/// Blocks: (b h, column tile), of 64 to 512 threads. This stage has one tile a head; dispatch may have several, and
/// give a column two threads where Dk <= 64.
/// Resources: S takes tier / (threads a column) registers, 64 at most, the tile under way up to 48 more; up to 40
/// KB of shared memory, 32 KB at Dk = Dv = 64.
/// Work: 2 Dk Dv multiply-adds a step. Bytes: q, k, v read once, o written once: the least there is.
/// Limit: not those bytes. A step cannot start before the last one is done, and a thread reads two float4 from
/// shared memory for every eight multiply-adds. At Dk = 64 that is the latency of these reads, with one or two
/// warps to wait for them. At Dk = 128 it is their number: Dk Dv / 64 a step, each of which takes shared memory
/// about two cycles. And with B H blocks most of the GPU's multiprocessors have none.
/// Needs: Dk <= 256; at most 512 threads: Dv <= 512 up to Dk = 64, 256 up to 128, 128 up to 256.
/// Weakness: steps follow one another and a head is one block. With few heads, stage 6.
/// Source: the kernel of NVIDIA's contribution to fast-transformers follows the same plan, a step a buffer.

#include <cuda_runtime.h>

#include <algorithm>
#include <climits>

#include "01_linear_attention/linear_attention.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/warp.cuh"

namespace tutorial::causal_dot_product {
namespace {

constexpr int kMaxThreads = 512;
constexpr int kNothing = INT_MAX;  // a time step that no sequence reaches

constexpr int threads_per_column(int tier) {
  return tier <= 64 ? 1 : tier / 64;
}

/// How a kernel is specialised: for Dk up to kTier, with kShare threads a column. Narrow blocks (up to 128 threads) may
/// use more registers a thread than wide ones, so their tiles are longer. The steps of a tile are not unrolled whole:
/// the compiler would see the next tile's loads and their use in one piece of code and move the loads down to where
/// they are used, behind all the computing that should hide them.
template <int kTier, int kShare, bool kWide>
struct Shape {
  // Time steps a buffer, and how many of them are unrolled: found by trying.
  static constexpr int kSteps = kTier > 128 ? 4 : kWide || (kTier <= 64 && kShare == 2) ? 8 : 16;
  static constexpr int kUnroll = kWide ? 1 : kSteps == 8 ? 4 : 2;
  static constexpr int kThreads = kWide ? kMaxThreads : 128;  // at most
  static constexpr int kFewestThreads = kWide ? 160 : kShare == 1 ? 64 : 32 * kShare;
  static constexpr int kColumns = kThreads / kShare;                 // at most
  static constexpr int kFloat4 = kSteps * kTier / 4;                 // of q in a buffer; k has as many
  static constexpr int kLoads = (kFloat4 - 1) / kFewestThreads + 1;  // of them a thread
  static constexpr int kLoadsOfV = kSteps / kShare;                  // values of v a thread
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

/// Grid (B H, column tiles). The block's threads cover blockDim.x / kShare value columns.
template <int kTier, int kShare, bool kWide, bool kVector>
__global__ void __launch_bounds__(Shape<kTier, kShare, kWide>::kThreads)
    lmha_kernel(View<const float> q, View<const float> k, View<const float> v, View<float> o, int H, int L, int Dk,
                int Dv) {
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

  // What this thread brings of every tile: elements d to d + 3 of steps fixed once and for all, so that the addresses
  // of the next tile are those of this one plus a constant. A step past every L stands for "nothing".
  int step_of[X::kLoads], d_of[X::kLoads];
  const float *q_source[X::kLoads], *k_source[X::kLoads];
#pragma unroll
  for (int n = 0; n < X::kLoads; ++n) {
    const int index = thread + n * int(blockDim.x);
    d_of[n] = index % (kTier / 4) * 4;
    step_of[n] = index < X::kFloat4 && d_of[n] < Dk ? index / (kTier / 4) : kNothing;
    q_source[n] = q.row(b, h, index / (kTier / 4)) + d_of[n];
    k_source[n] = k.row(b, h, index / (kTier / 4)) + d_of[n];
  }
  const int v_step = thread / columns, v_column = thread % columns;
  const bool has_v = first_column + v_column < Dv;
  const float* v_source = v.row(b, h, v_step) + first_column + v_column;

  float4 q_next[X::kLoads], k_next[X::kLoads];  // the next tile on its way from global memory
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

bool rows_are_vectors(View<const float> x, int D) {
  return reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0 && D % 4 == 0 && x.stride_b % 4 == 0 &&
         x.stride_h % 4 == 0 && x.stride_l % 4 == 0;
}

template <int kTier, int kShare, bool kWide>
void launch_shape(const Arguments& a, int columns) {
  const LaunchConfig config(dim3(unsigned(a.B * a.H), unsigned((a.Dv - 1) / columns + 1)), unsigned(columns * kShare));
  const bool vector = rows_are_vectors(a.q, a.Dk) && rows_are_vectors(a.k, a.Dk);
  const auto kernel = vector ? lmha_kernel<kTier, kShare, kWide, true> : lmha_kernel<kTier, kShare, kWide, false>;
  launch(kernel, config, a.q, a.k, a.v, a.o, a.H, a.L, a.Dk, a.Dv);
}

template <int kTier>
void launch_tier(const Arguments& a, Spread spread) {
  constexpr int kShare = threads_per_column(kTier);
  // Whole warps, because shuffles name all 32 lanes, and never a single one; threads past the last column compute on
  // zeros.
  int columns = ((a.Dv - 1) / spread.column_tiles / 32 + 1) * 32;
  if constexpr (kShare == 1) {
    if (spread.twice_the_threads && columns <= 64) return launch_shape<kTier, 2, false>(a, columns);
    columns = std::max(columns, 64);
  }
  if (columns * kShare <= 128) return launch_shape<kTier, kShare, false>(a, columns);
  launch_shape<kTier, kShare, true>(a, columns);
}

}  // namespace

void lmha(const Arguments& a, Spread spread) {
  if (a.Dk <= 32) return launch_tier<32>(a, spread);
  if (a.Dk <= 48) return launch_tier<48>(a, spread);
  if (a.Dk <= 64) return launch_tier<64>(a, spread);
  if (a.Dk <= 128) return launch_tier<128>(a, spread);
  return launch_tier<256>(a, spread);
}

void lmha(const Arguments& a) {
  lmha(a, Spread{});
}

int lmha_max_columns(int Dk) {
  return kMaxThreads / (Dk <= 64 ? 1 : Dk <= 128 ? 2 : 4);
}

std::string lmha_limits(const Arguments& a) {
  if (a.L > INT_MAX - 64) return "L > 2^31 - 65: positions are counted in int";
  if (std::int64_t(a.B) * a.H > INT_MAX) return "B H > 2^31 - 1: the grid's first dimension";
  if (a.Dk > kLmhaMaxKeyDim) return "Dk > 256: a column of S would not fit in four threads' registers";
  if (a.Dv > lmha_max_columns(a.Dk)) {
    return "Dv > " + std::to_string(lmha_max_columns(a.Dk)) + " at this Dk: more than 512 threads in a block";
  }
  return "";
}

}  // namespace tutorial::causal_dot_product
