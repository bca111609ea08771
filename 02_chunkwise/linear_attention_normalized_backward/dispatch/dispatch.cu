/// @file
/// The gradients of the normalised operator: the walks with u in the place of do, and two running sums of rows.
///
/// normalized_backward.hpp has the formulas. o is not computed. The walk leaves A_t = scale u_t S_t^T in dq_t, and
///
///     do_t . o_t = n_t . u_t = scale q_t S_t u_t^T = q_t . A_t,    so    w_t = -(q_t . A_t) / e_t
///
/// Around the walks there are four kernels. Each has one warp per chunk of 64 positions of a head:
///
///     sum_keys_kernel      the chunk's sum of k; carry_states() makes z before the chunk of it
///     divide_kernel        z_t, e_t and u_t
///     ... the walks, with u: A in dq, v dS^T in dk, dv
///     subtract_z_kernel    w_t, dq_t += scale w_t z_t, and the chunk's sum of scale w q; carry_states() makes dz of it
///     add_dz_kernel        dk_t += dz_t, from the chunk's last position to its first
///
/// A lane has columns lane, lane + 32, ... of Dk. In addition to the walks' bytes the first kernel moves k, the second
/// q, k, do and u, the third q, k and dq twice, and the fourth q and dk twice. That is twelve tensors.
/// Precision: u is rounded to bf16 as do is, and A before w z is added to it; the sums are fp32.

#include <cuda_runtime.h>

#include <cstdint>

#include "02_chunkwise/normalized_backward.hpp"
#include "common/ceil_div.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/warp.cuh"
#include "common/device/workspace.hpp"
#include "common/tile/carry.cuh"

namespace tutorial::linear_attention {
namespace {

constexpr int kPositions = 64;  // per warp
constexpr int kWarpsOfBlock = 4;

/// The intermediate results that the kernels pass to one another.
struct Sums {
  int N;             ///< chunks
  float* keys;       ///< [B, H, N, Dk]: the sum of k of each chunk, later replaced by z after the chunk
  float* gradients;  ///< [B, H, N, Dk], in the order of the walk from the end: the same for scale w q and dz
  float* e;          ///< [B, H, L]
  float* w;          ///< [B, H, L]
  __nv_bfloat16* u;  ///< [B, H, L, Dv]
};

/// The chunk of a warp.
struct Part {
  int b, h, n, begin, end;
  std::int64_t head;
  bool exists;

  __device__ __forceinline__ Part(const Bf16BackwardArguments& a, int N) {
    const std::int64_t chunk = std::int64_t(blockIdx.x) * kWarpsOfBlock + threadIdx.y;
    head = chunk / N;
    n = int(chunk % N);
    b = int(head / a.H);
    h = int(head % a.H);
    exists = b < a.B;
    begin = n * kPositions;
    end = min(begin + kPositions, a.L);
  }
};

/// Loads a bf16 row of D elements as floats: column lane + 32 i into x[i].
/// @tparam kIsUpdated whether the kernel writes the tensor, too
template <bool kIsUpdated = false, int kColumns>
__device__ __forceinline__ void load_row(float (&x)[kColumns], const __nv_bfloat16* row, int D) {
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    const int d = int(threadIdx.x) + 32 * i;
    x[i] = d < D ? __bfloat162float(kIsUpdated ? load_for_update(row + d) : load_global(row + d)) : 0.0f;
  }
}

template <int kColumns>
__device__ __forceinline__ void store_row(__nv_bfloat16* row, const float (&x)[kColumns], int D) {
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    const int d = int(threadIdx.x) + 32 * i;
    if (d < D) store_global(row + d, __float2bfloat16(x[i]));
  }
}

/// Loads the sum before chunk n, counted in the order of a walk: the user's initial value, or the sum after the chunk
/// before.
template <int kColumns>
__device__ __forceinline__ void load_sum(float (&sum)[kColumns], const float* first, const float* sums,
                                         std::int64_t head, int n, int N, int Dk) {
  const float* row = n == 0 ? (first ? first + head * Dk : nullptr) : sums + (head * N + n - 1) * Dk;
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    const int d = int(threadIdx.x) + 32 * i;
    sum[i] = row && d < Dk ? load_global(row + d) : 0.0f;
  }
}

template <int kColumns>
__device__ __forceinline__ void store_sum(float* row, const float (&sum)[kColumns], int Dk) {
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    const int d = int(threadIdx.x) + 32 * i;
    if (d < Dk) store_global(row + d, sum[i]);
  }
}

/// sum += factor row.
template <int kColumns>
__device__ __forceinline__ void add_row(float (&sum)[kColumns], const float (&row)[kColumns], float factor = 1) {
#pragma unroll
  for (int i = 0; i < kColumns; ++i) sum[i] += factor * row[i];
}

template <int kColumns>
__device__ __forceinline__ float dot(const float (&x)[kColumns], const float (&y)[kColumns]) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kColumns; ++i) sum += x[i] * y[i];
  return warp_sum<32>(sum);
}

template <int kColumns>
__global__ void sum_keys_kernel(Bf16BackwardArguments a, Sums sums) {
  const Part part(a, sums.N);
  if (!part.exists) return;
  float sum[kColumns] = {}, k[kColumns];
  for (int t = part.begin; t < part.end; ++t) {
    load_row(k, a.k.row(part.b, part.h, t), a.Dk);
    add_row(sum, k);
  }
  store_sum(sums.keys + (part.head * sums.N + part.n) * a.Dk, sum, a.Dk);
}

template <int kColumns>
__global__ void divide_kernel(Bf16BackwardArguments a, Sums sums, const float* initial_z, float eps) {
  const Part part(a, sums.N);
  if (!part.exists) return;
  float z[kColumns], k[kColumns], q[kColumns];
  load_sum(z, initial_z, sums.keys, part.head, part.n, sums.N, a.Dk);
  for (int t = part.begin; t < part.end; ++t) {
    load_row(k, a.k.row(part.b, part.h, t), a.Dk);
    load_row(q, a.q.row(part.b, part.h, t), a.Dk);
    add_row(z, k);
    const float e = a.scale * dot(q, z) + eps, factor = 1 / e;
    const std::int64_t row = part.head * a.L + t;
    if (threadIdx.x == 0) store_global(sums.e + row, e);
    for (int j = int(threadIdx.x); j < a.Dv; j += 32) {
      const float d_o = __bfloat162float(load_global(a.d_o.row(part.b, part.h, t) + j));
      store_global(sums.u + row * a.Dv + j, __float2bfloat16(factor * d_o));
    }
  }
}

template <int kColumns>
__global__ void subtract_z_kernel(Bf16BackwardArguments a, Sums sums, const float* initial_z) {
  const Part part(a, sums.N);
  if (!part.exists) return;
  float z[kColumns], k[kColumns], q[kColumns], A[kColumns], dz[kColumns] = {};
  load_sum(z, initial_z, sums.keys, part.head, part.n, sums.N, a.Dk);
  for (int t = part.begin; t < part.end; ++t) {
    load_row(k, a.k.row(part.b, part.h, t), a.Dk);
    load_row(q, a.q.row(part.b, part.h, t), a.Dk);
    load_row<true>(A, a.dq.row(part.b, part.h, t), a.Dk);
    add_row(z, k);
    const float w = -dot(q, A) / load_global(sums.e + part.head * a.L + t);
    if (threadIdx.x == 0) store_global(sums.w + part.head * a.L + t, w);
    add_row(A, z, a.scale * w);
    add_row(dz, q, a.scale * w);
    store_row(a.dq.row(part.b, part.h, t), A, a.Dk);
  }
  store_sum(sums.gradients + (part.head * sums.N + sums.N - 1 - part.n) * a.Dk, dz, a.Dk);
}

template <int kColumns>
__global__ void add_dz_kernel(Bf16BackwardArguments a, Sums sums, const float* dfinal_z, float* dinitial_z) {
  const Part part(a, sums.N);
  if (!part.exists) return;
  float dz[kColumns], q[kColumns], dk[kColumns];
  load_sum(dz, dfinal_z, sums.gradients, part.head, sums.N - 1 - part.n, sums.N, a.Dk);
  for (int t = part.end - 1; t >= part.begin; --t) {
    load_row(q, a.q.row(part.b, part.h, t), a.Dk);
    load_row<true>(dk, a.dk.row(part.b, part.h, t), a.Dk);
    add_row(dz, q, a.scale * load_global(sums.w + part.head * a.L + t));
    add_row(dk, dz);
    store_row(a.dk.row(part.b, part.h, t), dk, a.Dk);
  }
  if (dinitial_z && part.n == 0) store_sum(dinitial_z + part.head * a.Dk, dz, a.Dk);
}

std::int64_t rows_of(const Bf16BackwardArguments& a) {
  return std::int64_t(a.B) * a.H * a.L;
}

std::int64_t sum_elements(const Bf16BackwardArguments& a) {
  return std::int64_t(a.B) * a.H * ceil_div(a.L, kPositions) * a.Dk;
}

/// The arguments of the walks.
Bf16BackwardArguments walks_of(const Bf16BackwardArguments& a, const __nv_bfloat16* u) {
  Bf16BackwardArguments walks = a;
  walks.d_o = packed(u, a.H, a.L, a.Dv);
  return walks;
}

template <int kColumns>
void run(const NormalizedBackwardBf16Arguments& n) {
  const Bf16BackwardArguments& a = n.attention;
  const std::int64_t rows = rows_of(a), elements = sum_elements(a);
  Sums sums{};
  sums.N = ceil_div(a.L, kPositions);
  sums.keys = workspace<float>("linear_attention --backward --normalize: sums", std::size_t(2 * elements + 2 * rows));
  sums.gradients = sums.keys + elements;
  sums.e = sums.gradients + elements;
  sums.w = sums.e + rows;
  sums.u =
      workspace<__nv_bfloat16>("linear_attention --backward --normalize: u", std::size_t(rows) * std::size_t(a.Dv));
  const LaunchConfig warps{unsigned(ceil_div(std::int64_t(a.B) * a.H * sums.N, kWarpsOfBlock)),
                           dim3(32, kWarpsOfBlock)};
  const auto carry = [&](const float* first, float* all) {
    tile::carry_states(a.B, a.H, a.Dk, sums.N, tile::CarriedStates<>{packed(first, a.H, a.Dk, 1), 1, all});
  };
  launch(sum_keys_kernel<kColumns>, warps, a, sums);
  carry(n.initial_z, sums.keys);
  launch(divide_kernel<kColumns>, warps, a, sums, n.initial_z, n.eps);
  dispatch_backward(walks_of(a, sums.u));
  launch(subtract_z_kernel<kColumns>, warps, a, sums, n.initial_z);
  carry(n.dfinal_z, sums.gradients);
  launch(add_dz_kernel<kColumns>, warps, a, sums, n.dfinal_z, n.dinitial_z);
}

}  // namespace

void dispatch_normalized_backward(const NormalizedBackwardBf16Arguments& n) {
  const int Dk = n.attention.Dk;
  Dk <= 128 ? run<4>(n) : Dk <= 256 ? run<8>(n) : run<12>(n);
}

std::string dispatch_normalized_backward_unsupported(const NormalizedBackwardBf16Arguments& n) {
  const Bf16BackwardArguments& a = n.attention;
  if (a.Dk > 384) return "Dk > 384: more than 12 columns for each lane";
  if (a.B > 65535 || a.H > 65535) return "B or H > 65535: the grid of the walks over states";
  if (std::int64_t(a.B) * a.H * ceil_div(a.L, kPositions) > INT32_MAX) return "B H > 2^31 - 1 chunks of 64: the grid";
  return dispatch_backward_unsupported(walks_of(a, nullptr));
}

std::string dispatch_normalized_backward_note(const NormalizedBackwardBf16Arguments& n) {
  return dispatch_backward_note(walks_of(n.attention, nullptr));
}

std::int64_t dispatch_normalized_backward_memory(const NormalizedBackwardBf16Arguments& n) {
  const Bf16BackwardArguments& a = n.attention;
  return dispatch_backward_memory(walks_of(a, nullptr)) +
         std::int64_t(sizeof(float)) * 2 * (sum_elements(a) + rows_of(a)) +
         std::int64_t(sizeof(__nv_bfloat16)) * rows_of(a) * a.Dv;
}

}  // namespace tutorial::linear_attention
