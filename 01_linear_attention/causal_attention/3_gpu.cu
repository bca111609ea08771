/// @file
/// Stage 3, `gpu`: the whole layer on the device, around the kernels of causal_dot_product.
///
/// Idea: the normaliser is one more value column. Give every value a last element of 1, and column Dv of
/// phi(q_t) sum phi(k_i)^T [v_i, 1] is phi(q_t) . z_t. So three steps make the layer, and the middle one is the
/// `dispatch` that we have:
///   1. features: phi(q), phi(k) and [v, 1] into workspace; k past key_lengths[b], or missing (Lk < L), becomes 0
///   2. causal_dot_product on these, with Dv + 1 columns
///   3. normalise: divide columns 0 to Dv - 1 by column Dv plus eps
/// Mends: stage 2 runs on one core. Same: the two states; z is the last column of S.
///
/// Shapes: workspace phi_q, phi_k [B, H, L, Dk]; v_one, o_one [B, H, L, Dv + 1], fp32, in global memory.
/// Who does what: in steps 1 and 3 a warp takes a row, its lanes run along the row.
/// Work: as stage 2. Bytes: steps 1 and 3 read and write everything once more than step 2 alone.
/// Limit: step 2, see causal_dot_product; steps 1 and 3 run at the speed of memory.
/// Weakness: an exponential is cheap and a trip to global memory is not; phi could be taken as step 2 loads its tiles.

#include <cuda_runtime.h>

#include "01_linear_attention/feature_map.hpp"
#include "01_linear_attention/linear_attention.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::causal_attention {
namespace {

constexpr unsigned kWarps = 8;  // rows a block

/// Grid (ceil(L / kWarps), B H).
__global__ void features_kernel(AttentionArguments a, View<float> phi_q, View<float> phi_k, View<float> v_one) {
  const int b = int(blockIdx.y) / a.H, h = int(blockIdx.y) % a.H;
  const int t = int(blockIdx.x * kWarps + threadIdx.x / 32), lane = int(threadIdx.x % 32);
  if (t >= a.L) return;
  const int keys = a.key_lengths ? min(load_global(&a.key_lengths[b]), a.Lk) : a.Lk;
  const bool has_key = t < keys;
  for (int d = lane; d < a.Dk; d += 32) {
    store_global(&phi_q.row(b, h, t)[d], phi(load_global(&a.q.row(b, h, t)[d])));
    store_global(&phi_k.row(b, h, t)[d], has_key ? phi(load_global(&a.k.row(b, h, t)[d])) : 0.0f);
  }
  for (int j = lane; j <= a.Dv; j += 32) {
    const float v = j == a.Dv ? 1.0f : has_key ? load_global(&a.v.row(b, h, t)[j]) : 0.0f;
    store_global(&v_one.row(b, h, t)[j], v);
  }
}

/// Grid (ceil(L / kWarps), B H).
__global__ void normalise_kernel(AttentionArguments a, View<const float> o_one) {
  const int b = int(blockIdx.y) / a.H, h = int(blockIdx.y) % a.H;
  const int t = int(blockIdx.x * kWarps + threadIdx.x / 32), lane = int(threadIdx.x % 32);
  if (t >= a.L) return;
  const float* row = o_one.row(b, h, t);
  const float normaliser = load_global(&row[a.Dv]) + a.eps;
  for (int j = lane; j < a.Dv; j += 32) store_global(&a.o.row(b, h, t)[j], load_global(&row[j]) / normaliser);
}

/// The inner problem, on the tensors of the workspace (null where only its limits are asked for).
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

void gpu(const Arguments& a) {
  const std::size_t rows = std::size_t(a.B) * std::size_t(a.H) * std::size_t(a.L);
  float* phi_q = workspace<float>("causal_attention phi_q", rows * std::size_t(a.Dk));
  float* phi_k = workspace<float>("causal_attention phi_k", rows * std::size_t(a.Dk));
  float* v_one = workspace<float>("causal_attention v_one", rows * std::size_t(a.Dv + 1));
  float* o_one = workspace<float>("causal_attention o_one", rows * std::size_t(a.Dv + 1));
  const auto product = inner(a, phi_q, phi_k, v_one, o_one);
  const dim3 grid((unsigned(a.L) + kWarps - 1) / kWarps, unsigned(a.B * a.H));
  launch(features_kernel, {grid, kWarps * 32}, a, packed(phi_q, a.H, a.L, a.Dk), packed(phi_k, a.H, a.L, a.Dk),
         packed(v_one, a.H, a.L, a.Dv + 1));
  causal_dot_product::dispatch(product);
  launch(normalise_kernel, {grid, kWarps * 32}, a, packed<const float>(o_one, a.H, a.L, a.Dv + 1));
}

std::string gpu_limits(const Arguments& a) {
  if (std::int64_t(a.B) * a.H > 65535) return "B H > 65535: the grid's second dimension";
  return causal_dot_product::dispatch_limits(inner(a, nullptr, nullptr, nullptr, nullptr));
}

}  // namespace tutorial::causal_attention
