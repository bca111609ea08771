#pragma once
/// @file
/// Maps of runs of positions, S -> M S + X, and their composition. A map lies in memory as
///
///     linear_attention   X [B, H, Dk, Dv]                            M = 1
///     simple_gla         X [B, H, Dk, Dv], then log M [B, H]         M: the product of the gates
///     delta_rule         [X | E] [B, H, Dk, Dv + Dk]                 M = I + E
///
/// all in fp32; several maps lie one after the other. Where there are gradients, each is followed by Y [B, H, Dk, Dv]
/// of dS -> M^T dS + Y, the map of the gradient of the state, from the end of the positions to their start.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "06_scan/affine.hpp"
#include "06_scan/over_devices.hpp"
#include "06_scan/over_devices/map_sizes.hpp"
#include "06_scan/over_devices/shares.hpp"
#include "common/ceil_div.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/warp.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::over_devices {

namespace {

constexpr int kThreads = 256;  // of a block

/// The sum of g over one part of a device's positions. Grid (B H, kGateParts), a warp. In double, because a device may
/// have 2^20 positions and more.
/// @param sums [B H, kGateParts]
__global__ void sum_parts_kernel(Arguments a, double* sums) {
  const int head = int(blockIdx.x), part = int(blockIdx.y), length = (a.L + kGateParts - 1) / kGateParts;
  const int end = min(a.L, (part + 1) * length);
  double sum = 0;
  for (int t = part * length + int(threadIdx.x); t < end; t += 32) {
    sum += load_global(a.g.row(head / a.H, head % a.H, t));
  }
  sum = warp_sum(sum);
  if (threadIdx.x == 0) store_global(&sums[head * kGateParts + part], sum);
}

/// The sum of the parts' sums. Grid (B H), a warp.
__global__ void sum_gates_kernel(const double* parts, float* sums) {
  double sum = 0;
  for (int part = int(threadIdx.x); part < kGateParts; part += 32) {
    sum += load_global(&parts[blockIdx.x * kGateParts + part]);
  }
  sum = warp_sum(sum);
  if (threadIdx.x == 0) store_global(&sums[blockIdx.x], float(sum));
}

/// Computes log M of a device's positions: the sum of its g, one per head.
/// @param sums [B, H]
inline void sum_gates(const Arguments& a, float* sums) {
  auto* parts = workspace<double>("devices: sums of gates", heads(a) * kGateParts);
  launch(sum_parts_kernel, {{unsigned(heads(a)), kGateParts}, 32}, a, parts);
  launch(sum_gates_kernel, {unsigned(heads(a)), 32}, parts, sums);
}

/// Where maps lie that are composed one after the other. Distances are in floats.
struct Maps {
  const float* X;         ///< of the first one, of all heads
  std::int64_t X_row;     ///< from one row of X to the next
  const float* M;         ///< of the first one: log M of all heads, or E; null if M = 1
  std::int64_t E_row;     ///< from one row of E to the next
  std::int64_t E_column;  ///< from one column of E to the next
  std::int64_t next;      ///< from one map to the next
};

/// Maps of the state, one after the other.
template <Rule kRule>
Maps maps_from(const float* first, const Arguments& a) {
  const std::int64_t size = std::int64_t(map_size<kRule>(a)), width = a.Dv + a.Dk;
  if (kRule == Rule::delta_rule) return {first, width, first + a.Dv, width, 1, size};
  return {first, a.Dv, kRule == Rule::simple_gla ? first + state_size(a) : nullptr, 0, 0, size};
}

/// The state after n maps. Grid (B H, blocks of the elements of a state).
/// @param a sizes alone @param initial [B, H, Dk, Dv]: the state before all of them; data is null if it is 0, and then
/// M of the first map is not read
__global__ void compose_kernel(Arguments a, Maps maps, int n, View<const float> initial, float* state) {
  const int element = int(blockIdx.y * kThreads + threadIdx.x), head = int(blockIdx.x), elements = a.Dk * a.Dv;
  if (element >= elements) return;
  const std::int64_t at = std::int64_t(head) * elements + element;
  float S = 0;
  if (initial.data) S = load_global(initial.row(head / a.H, head % a.H, element / a.Dv) + element % a.Dv);
  for (int m = 0; m < n; ++m) {
    if (maps.M && (m > 0 || initial.data)) S *= scan::decay(load_global(&maps.M[m * maps.next + head]));
    S += load_global(&maps.X[m * maps.next + at]);
  }
  store_global(&state[at], S);
}

constexpr int kColumns = 8;  // of a block

/// The same, from zeros, for maps whose M is a matrix. Grid (B H, blocks of columns).
__global__ void compose_products_kernel(Maps maps, int Dk, int Dv, int n, float* state) {
  __shared__ float S[2][kMaxKeyDim][kColumns];
  const int c = int(threadIdx.x) % kColumns, j = int(blockIdx.y) * kColumns + c, head = int(blockIdx.x);
  const bool is_there = j < Dv;
  for (int m = 0; m < n; ++m) {
    const float *X = maps.X + m * maps.next + std::int64_t(head) * Dk * maps.X_row,
                *E = maps.M + m * maps.next + std::int64_t(head) * Dk * (Dv + Dk);
    for (int d = int(threadIdx.x) / kColumns; d < Dk; d += kThreads / kColumns) {
      float next = is_there ? load_global(&X[d * maps.X_row + j]) : 0.0f;
      if (m > 0) {
        next += S[m % 2][d][c];
        for (int e = 0; e < Dk; ++e) next += load_global(&E[d * maps.E_row + e * maps.E_column]) * S[m % 2][e][c];
      }
      S[(m + 1) % 2][d][c] = next;
    }
    __syncthreads();
  }
  for (int d = int(threadIdx.x) / kColumns; d < Dk; d += kThreads / kColumns) {
    if (is_there) store_global(&state[(std::int64_t(head) * Dk + d) * Dv + j], S[n % 2][d][c]);
  }
}

/// The state after n maps.
/// @param initial the state before all of them, which maps that are matrices have in the first X; data is null if it
/// is 0
template <Rule kRule>
void compose(const Arguments& a, const Maps& maps, int n, float* state, View<const float> initial = {}) {
  if constexpr (kRule == Rule::delta_rule) {
    launch(compose_products_kernel, {dim3(unsigned(heads(a)), ceil_div(a.Dv, kColumns)), kThreads}, maps, a.Dk, a.Dv, n,
           state);
  } else {
    Arguments sizes{};
    sizes.H = a.H, sizes.Dk = a.Dk, sizes.Dv = a.Dv;
    launch(compose_kernel, {dim3(unsigned(heads(a)), ceil_div(a.Dk * a.Dv, kThreads)), kThreads}, sizes, maps, n,
           initial, state);
  }
}

}  // namespace
}  // namespace tutorial::over_devices
