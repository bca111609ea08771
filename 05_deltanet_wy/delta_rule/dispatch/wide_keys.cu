/// @file
/// The delta rule, with or without gates, position after position in fp32 on a GPU, for keys of any width.
///
/// Idea: no column of S depends on another one. So each warp walks with one column, which lies in shared memory because
/// the registers have no room for it. A lane has every 32nd row, and no other lane needs these: the warps wait for
/// nothing but their own sums.
/// Equation: with gates for each row d of the state. A single gate is the same for all d.
///
///     R_t = diag(exp(g_t)) S_{t-1},   delta_t = beta_t (v_t - k_t R_t),   S_t = R_t + k_t^T delta_t
///     o_t = scale (q_t R_t + (q_t . k_t) delta_t)
///
/// Shapes: q, k [B, H, L, Dk], v, o [B, H, L, Dv] bf16, any strides; beta [B, H, L], g, S_0 and final_state [B, H, Dk,
/// Dv] fp32; all in device memory.
/// Thread mapping: block (b, h, tile) has 8 columns, one for each of its warps.
/// Resources: 32 Dk bytes of shared memory.
/// Bytes: v and o once; q, k and gates once per column, from a cache after the first one.
/// Bound by: latency. Each position waits for its loads and for sums over the lanes.
/// Requires: Dk up to 1024.
/// Source: arXiv 2510.26692, equation 1.

#include "05_deltanet_wy/delta_rule/dispatch/wide_keys.hpp"

#include <cuda_runtime.h>

#include <climits>
#include <cstdint>

#include "common/ceil_div.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/warp.cuh"
#include "common/tile/base2.cuh"

namespace tutorial::delta_rule {
namespace {

constexpr int kWarps = 8;  // of a block, which has as many columns

/// Grid: (tiles of columns) times (B H) blocks. The blocks of a head are neighbours.
__global__ void __launch_bounds__(32 * kWarps) wide_keys_kernel(Bf16Arguments a, int gates, View<const float> g) {
  const int tiles = (a.Dv - 1) / kWarps + 1;
  const int head = int(blockIdx.x) / tiles, b = head / a.H, h = head % a.H;
  const int lane = int(lane_index()), warp = int(threadIdx.x) / 32;
  const int j = int(blockIdx.x) % tiles * kWarps + warp;
  if (j >= a.Dv) return;  // the whole warp; there is no barrier
  float* const S = dynamic_shared<float>() + warp * a.Dk;
  for (int d = lane; d < a.Dk; d += 32) {
    S[d] = a.initial_state.data ? load_global(a.initial_state.row(b, h, d) + j) : 0.0f;
  }
  for (int t = 0; t < a.L; ++t) {
    const __nv_bfloat16 *q = a.q.row(b, h, t), *k = a.k.row(b, h, t);
    const float beta = load_global(a.beta.row(b, h, t)), v = float(load_global(a.v.row(b, h, t) + j));
    float kS = 0, qS = 0, qk = 0, kk = 0;
    for (int d = lane; d < a.Dk; d += 32) {
      const float q_d = float(load_global(q + d)), k_d = float(load_global(k + d));
      float s = S[d];
      if (gates > 0) {
        s *= tile::gate(load_global(g.row(b, h, t) + min(d, gates - 1)));
        S[d] = s;
      }
      kS += k_d * s;
      qS += q_d * s;
      qk += q_d * k_d;
      kk += k_d * k_d;
    }
    kS = warp_sum(kS);
    qS = warp_sum(qS);
    qk = warp_sum(qk);
    const float factor = a.normalize_keys ? 1 / sqrtf(warp_sum(kk) + kKeyEps) : 1.0f;  // of k
    const float delta = factor * beta * (v - factor * kS);  // times the factor by which k is still to be scaled
    for (int d = lane; d < a.Dk; d += 32) S[d] += float(load_global(k + d)) * delta;
    if (lane == 0) store_global(a.o.row(b, h, t) + j, __nv_bfloat16(a.scale * (qS + qk * delta)));
  }
  if (a.final_state.data == nullptr) return;
  for (int d = lane; d < a.Dk; d += 32) store_global(a.final_state.row(b, h, d) + j, S[d]);
}

std::int64_t block_count(const Bf16Arguments& a) {
  return std::int64_t(a.B) * a.H * ceil_div(a.Dv, kWarps);
}

}  // namespace

void wide_keys(const Bf16Arguments& a, int gates, const View<const float>& g) {
  const std::size_t shared_bytes = sizeof(float) * kWarps * std::size_t(a.Dk);
  launch(wide_keys_kernel, {unsigned(block_count(a)), 32 * kWarps, shared_bytes}, a, gates, g);
}

std::string wide_keys_unsupported(const Bf16Arguments& a) {
  if (a.Dk > kWidestKey) return "Dk > 1024: no kernel of the operator has room for a column of the state";
  return block_count(a) > INT_MAX ? "B H > 2^31 - 1 tiles of 8 columns: the grid" : "";
}

}  // namespace tutorial::delta_rule
