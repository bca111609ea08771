#pragma once
/// @file
/// Maps of runs of positions, S -> M S + X, and their composition. A map lies in memory as
///
///     linear_attention   X [B, H, Dk, Dv]                            M = 1
///     simple_gla         X [B, H, Dk, Dv], then log M [B, H]         M: the product of the gates
///     delta_rule         [X | E] [B, H, Dk, Dv + Dk]                 M = I + E
///
/// all in fp32; several maps lie one after the other.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "06_scan/affine.hpp"
#include "06_scan/over_devices.hpp"
#include "common/ceil_div.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/warp.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::over_devices {

/// Heads of all batch entries.
inline std::size_t heads(const Arguments& a) {
  return std::size_t(a.B) * a.H;
}

/// Floats of the states of all heads.
inline std::size_t state_size(const Arguments& a) {
  return heads(a) * a.Dk * a.Dv;
}

/// Floats of a map.
template <Rule kRule>
std::size_t map_size(const Arguments& a) {
  if (kRule == Rule::delta_rule) return heads(a) * a.Dk * (a.Dv + a.Dk);
  return state_size(a) + (kRule == Rule::simple_gla ? heads(a) : 0);
}

namespace {

constexpr int kThreads = 256;  // of a block

/// The sum of a device's g, one per head. Grid (B H), a warp.
__global__ void sum_gates_kernel(Arguments a, float* sums) {
  const int head = int(blockIdx.x);
  double sum = 0;  // 2^20 numbers and more
  for (int t = int(threadIdx.x); t < a.L; t += 32) sum += load_global(a.g.row(head / a.H, head % a.H, t));
  sum = warp_sum(sum);
  if (threadIdx.x == 0) store_global(&sums[head], float(sum));
}

/// The state after n maps. Grid (blocks of the elements of a state, B H).
/// @param decays of the first map, one per head; null for none @param size floats of a map
/// @param initial [B, H, Dk, Dv]: the state before all of them; data is null if it is 0
__global__ void compose_kernel(Arguments a, const float* maps, const float* decays, std::int64_t size, int n,
                               View<const float> initial, float* state) {
  const int element = int(blockIdx.x * kThreads + threadIdx.x), head = int(blockIdx.y), elements = a.Dk * a.Dv;
  if (element >= elements) return;
  const std::int64_t at = std::int64_t(head) * elements + element;
  float S = 0;
  if (initial.data) S = load_global(initial.row(head / a.H, head % a.H, element / a.Dv) + element % a.Dv);
  for (int m = 0; m < n; ++m) {
    const float decay = decays ? scan::decay(load_global(&decays[m * size + head])) : 1.0f;
    S = decay * S + load_global(&maps[m * size + at]);
  }
  store_global(&state[at], S);
}

constexpr int kColumns = 8;      // of a block
constexpr int kMaxKeyDim = 512;  // of states whose maps are matrices

/// The same, from zeros, for maps [X | E] of rows of Dv + Dk. Grid (blocks of columns, B H).
__global__ void compose_products_kernel(const float* maps, std::int64_t size, int Dk, int Dv, int n, float* state) {
  __shared__ float S[2][kMaxKeyDim][kColumns];
  const int c = int(threadIdx.x) % kColumns, j = int(blockIdx.x) * kColumns + c, head = int(blockIdx.y);
  const bool is_there = j < Dv;
  for (int m = 0; m < n; ++m) {
    const float* map = maps + m * size + std::int64_t(head) * Dk * (Dv + Dk);
    for (int d = int(threadIdx.x) / kColumns; d < Dk; d += kThreads / kColumns) {
      const float* row = map + std::int64_t(d) * (Dv + Dk);
      float next = is_there ? load_global(&row[j]) : 0.0f;
      if (m > 0) {
        next += S[m % 2][d][c];
        for (int e = 0; e < Dk; ++e) next += load_global(&row[Dv + e]) * S[m % 2][e][c];
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
void compose(const Arguments& a, const float* maps, int n, float* state, View<const float> initial = {}) {
  const auto size = std::int64_t(map_size<kRule>(a));
  if constexpr (kRule == Rule::delta_rule) {
    launch(compose_products_kernel, {dim3(ceil_div(a.Dv, kColumns), unsigned(heads(a))), kThreads}, maps, size, a.Dk,
           a.Dv, n, state);
  } else {
    Arguments sizes{};
    sizes.H = a.H, sizes.Dk = a.Dk, sizes.Dv = a.Dv;
    const float* decays = kRule == Rule::simple_gla ? maps + state_size(a) : nullptr;
    launch(compose_kernel, {dim3(ceil_div(a.Dk * a.Dv, kThreads), unsigned(heads(a))), kThreads}, sizes, maps, decays,
           size, n, initial, state);
  }
}

/// [v | -k]. Grid (blocks of the elements of a position's row, L, B H).
__global__ void values_kernel(Arguments a, View<__nv_bfloat16> values) {
  const int j = int(blockIdx.x * kThreads + threadIdx.x);
  if (j >= a.Dv + a.Dk) return;
  const int b = int(blockIdx.z) / a.H, h = int(blockIdx.z) % a.H;
  for (int t = int(blockIdx.y); t < a.L; t += int(gridDim.y)) {
    store_global(values.row(b, h, t) + j, j < a.Dv ? load_global(a.v.row(b, h, t) + j)
                                                   : __nv_bfloat16(-float(load_global(a.k.row(b, h, t) + j - a.Dv))));
  }
}

/// The problem with the values [v | -k] and outputs that nobody reads, both in workspace.
[[maybe_unused]] Arguments with_keys_as_values(Arguments x) {
  const int width = x.Dv + x.Dk;
  const std::size_t size = heads(x) * x.L * width;
  auto* values = workspace<__nv_bfloat16>("devices: values and their outputs", 2 * size);
  const View<__nv_bfloat16> wide = packed(values, x.H, x.L, width);
  launch(values_kernel, {dim3(ceil_div(width, kThreads), unsigned(std::min(x.L, 65535)), unsigned(heads(x))), kThreads},
         x, wide);
  x.v = read_only(wide), x.o = packed(values + size, x.H, x.L, width), x.Dv = width;
  return x;
}

}  // namespace
}  // namespace tutorial::over_devices
