/// @file
/// `gpu`: the whole layer on the device, around the kernels of causal_dot_product.
///
/// Idea: the normaliser is one more value column. Give every value a last element of 1. Column Dv of
/// phi(q_t) sum phi(k_i)^T [v_i, 1] is then phi(q_t) . z_t. So three steps make the layer, and the middle one exists
/// already:
///   1. features: phi(q), phi(k) and [v, 1] into workspace; k past key_lengths[b], or missing (Lk < L), becomes 0
///   2. o' = causal_dot_product's `dispatch` on these, with Dv + 1 columns
///   3. normalise: o = o'[:Dv] / (o'[Dv] + eps)
/// Grows out of: 1_recurrent.cpp; port to the GPU: the loop is that of causal_dot_product, with kernels around it
/// Improves on: `recurrent` runs on one core.
/// Unchanged: the two states; z is the last column of S.
/// Equation: o_t = phi(q_t) S_t / (phi(q_t) . z_t + eps)
/// Shapes: workspace phi_q, phi_k [B, H, L, Dk]; v_one, o_one [B, H, L, Dv + 1], fp32 in device memory.
/// Thread mapping: in steps 1 and 3 a warp takes one row at a time, and its lanes run along the row.
/// Resources: no shared memory in steps 1 and 3.
/// Work: 4 Dk (Dv + 1) operations and 2 Dk exponentials per head and position.
/// Bytes: 12 tensors pass through device memory where 4 would do. Steps 1 and 3 account for 8 of them.
/// Bound by: step 2, see causal_dot_product; steps 1 and 3 by memory.
/// Requires: what dispatch requires for Dv + 1.
/// Weakness: an exponential is cheap and a trip to device memory is not. phi could be computed while step 2 loads its
/// tiles. And Dv + 1 columns fill blocks badly: 64 become 65, which is three blocks of 32 where two would do.
/// Sources: as `recurrent`.

#include <cuda_runtime.h>

#include <algorithm>

#include "01_linear_attention/attention.hpp"
#include "01_linear_attention/causal_attention/features.hpp"
#include "01_linear_attention/causal_dot_product.hpp"
#include "01_linear_attention/causal_dot_product/dispatch/lmha.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/workspace.hpp"
#include "common/feature_map.hpp"

namespace tutorial::causal_attention {
namespace {

constexpr unsigned kWarps = 8;  // rows per block

/// Grid (B H, up to 65535 groups of kWarps rows), for this number of rows.
LaunchConfig row_grid(const AttentionArguments& a, int rows) {
  return {dim3(unsigned(a.B * a.H), std::min((unsigned(rows) - 1) / kWarps + 1, 65535u)), kWarps * 32};
}

/// row_grid(max(L, key_rows)).
__global__ void features_kernel(AttentionArguments a, int key_rows, View<float> phi_q, View<float> phi_k,
                                View<float> v_one) {
  const int b = int(blockIdx.x) / a.H, h = int(blockIdx.x) % a.H;
  const int lane = int(threadIdx.x % 32);
  const int keys = a.key_lengths ? min(load_global(&a.key_lengths[b]), a.Lk) : a.Lk;
  for (int t = int(blockIdx.y * kWarps + threadIdx.x / 32); t < max(a.L, key_rows); t += int(gridDim.y * kWarps)) {
    const bool has_key = t < keys;
    for (int d = lane; d < a.Dk; d += 32) {
      if (t < a.L) store_global(&phi_q.row(b, h, t)[d], phi(load_global(&a.q.row(b, h, t)[d])));
      if (t >= key_rows) continue;
      store_global(&phi_k.row(b, h, t)[d], has_key ? phi(load_global(&a.k.row(b, h, t)[d])) : 0.0f);
    }
    for (int j = lane; j <= a.Dv && t < key_rows; j += 32) {  // of [v, 1]
      const float v = j == a.Dv ? 1.0f : has_key ? load_global(&a.v.row(b, h, t)[j]) : 0.0f;
      store_global(&v_one.row(b, h, t)[j], v);
    }
  }
}

/// row_grid(L).
__global__ void normalise_kernel(AttentionArguments a, View<const float> o_one) {
  const int b = int(blockIdx.x) / a.H, h = int(blockIdx.x) % a.H;
  const int lane = int(threadIdx.x % 32);
  for (int t = int(blockIdx.y * kWarps + threadIdx.x / 32); t < a.L; t += int(gridDim.y * kWarps)) {
    const float* row = o_one.row(b, h, t);
    const float normaliser = load_global(&row[a.Dv]) + a.eps;
    for (int j = lane; j < a.Dv; j += 32) store_global(&a.o.row(b, h, t)[j], load_global(&row[j]) / normaliser);
  }
}

/// The arguments of the inner product, on the tensors of the workspace. Its tensors are null if only its requirements
/// are checked.
causal_dot_product::Arguments inner(const Arguments& a, float* phi_q, float* phi_k, float* v_one, float* o_one) {
  return {a.B,
          a.H,
          a.L,
          a.Dk,
          a.Dv + 1,
          packed<const float>(phi_q, a.H, a.L, a.Dk),
          packed<const float>(phi_k, a.H, a.L, a.Dk),
          packed<const float>(v_one, a.H, a.L, a.Dv + 1),
          packed<float>(o_one, a.H, a.L, a.Dv + 1)};
}

}  // namespace

void features(const Arguments& a, int key_rows, const View<float>& phi_q, const View<float>& phi_k,
              const View<float>& v_one) {
  launch(features_kernel, row_grid(a, std::max(a.L, key_rows)), a, key_rows, phi_q, phi_k, v_one);
}

void gpu(const Arguments& a) {
  const std::size_t rows = std::size_t(a.B) * std::size_t(a.H) * std::size_t(a.L);
  float* phi_q = workspace<float>("causal_attention phi_q", rows * std::size_t(a.Dk));
  float* phi_k = workspace<float>("causal_attention phi_k", rows * std::size_t(a.Dk));
  float* v_one = workspace<float>("causal_attention v_one", rows * std::size_t(a.Dv + 1));
  float* o_one = workspace<float>("causal_attention o_one", rows * std::size_t(a.Dv + 1));
  const auto product = inner(a, phi_q, phi_k, v_one, o_one);
  features(a, a.L, packed(phi_q, a.H, a.L, a.Dk), packed(phi_k, a.H, a.L, a.Dk), packed(v_one, a.H, a.L, a.Dv + 1));
  causal_dot_product::dispatch(product);
  launch(normalise_kernel, row_grid(a, a.L), a, packed<const float>(o_one, a.H, a.L, a.Dv + 1));
}

std::string gpu_unsupported(const Arguments& a) {
  if (a.Dk > causal_dot_product::kLmhaMaxKeyDim && a.Dv > 1023) {
    return "Dv > 1023 with Dk > 256: atomic takes 1024 columns, one of them the normaliser";
  }
  return causal_dot_product::dispatch_unsupported(inner(a, nullptr, nullptr, nullptr, nullptr));
}

}  // namespace tutorial::causal_attention
