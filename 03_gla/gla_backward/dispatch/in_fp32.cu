/// @file
/// The gradients by `closed_form` on a GPU, with one warp per row or column of a state.
///
/// Idea: a row of S depends on no other row, and so do the row's elements of dq, dk and dg. So rows_kernel is
/// `closed_form` with a warp for each row d, whose lanes share the columns. dv is a sum over the rows. A second kernel
/// has a warp for each column of dS, whose lanes share the rows, and walks from the end.
/// Shapes: as in gla_backward.hpp, any strides. A lane has every 32nd element of its warp's row or column.
/// Bytes: v and do are read by each of the Dk rows of a head in both walks, q, k and g by each of the Dv columns.
/// Neighbouring warps read the same bytes at about the same time.
/// Bound by: latency. Each position waits for its loads and for sums over the lanes.
/// Requires: Dk and Dv up to 512.

#include "03_gla/gla_backward/dispatch/in_fp32.hpp"

#include <cuda_runtime.h>

#include <algorithm>

#include "common/ceil_div.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/warp.cuh"
#include "common/tile/base2.cuh"
#include "common/tile/float_tile.cuh"

namespace tutorial::gla {
namespace {

using tile::gate, tile::store_float, tile::to_float;

constexpr int kWarps = 8;  // of a block

/// dq, dk, dg and dinitial_state. Grid (ceil(Dk / kWarps), H, B).
/// @tparam kElements of a row for each lane: Dv is at most 32 kElements
template <class T, int kElements>
__global__ void __launch_bounds__(32 * kWarps) rows_kernel(BackwardArguments<T> a) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), lane = int(lane_index());
  const int d = int(blockIdx.x) * kWarps + int(threadIdx.x) / 32;
  if (d >= a.Dk) return;
  float S[kElements], v[kElements], d_o[kElements];
  const auto load = [&](int t) {  // also returns scale do_t . v_t
    float own = 0;
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      const int j = lane + 32 * e;
      v[e] = j < a.Dv ? to_float(load_global(a.v.row(b, h, t) + j)) : 0.0f;
      d_o[e] = j < a.Dv ? to_float(load_global(a.d_o.row(b, h, t) + j)) : 0.0f;
      own += v[e] * d_o[e];
    }
    return a.scale * warp_sum(own);
  };
  const auto element_of = [&](const View<const float>& state, int e) {
    const int j = lane + 32 * e;
    return state.data && j < a.Dv ? load_global(state.row(b, h, d) + j) : 0.0f;
  };

  float dg = 0;
#pragma unroll
  for (int e = 0; e < kElements; ++e) S[e] = element_of(a.initial_state, e);
  for (int t = 0; t < a.L; ++t) {
    const float own = load(t), q = to_float(load_global(a.q.row(b, h, t) + d));
    const float k = to_float(load_global(a.k.row(b, h, t) + d)), decay = gate(load_global(a.g.row(b, h, t) + d));
    float sum = 0;
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      S[e] *= decay;
      sum += S[e] * d_o[e];
      if (t == a.L - 1) dg += S[e] * element_of(a.dfinal_state, e);
      S[e] += k * v[e];
    }
    const float dq = a.scale * warp_sum(sum);
    if (lane > 0) continue;
    store_float(a.dq.row(b, h, t) + d, dq + own * k);
    store_global(a.dg.row(b, h, t) + d, q * dq);
  }

  float dS[kElements];
#pragma unroll
  for (int e = 0; e < kElements; ++e) dS[e] = element_of(a.dfinal_state, e);
  dg = warp_sum(dg);
  for (int t = a.L - 1; t >= 0; --t) {
    const float own = load(t), q = to_float(load_global(a.q.row(b, h, t) + d));
    const float k = to_float(load_global(a.k.row(b, h, t) + d)), decay = gate(load_global(a.g.row(b, h, t) + d));
    float dk = 0;
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      dk += dS[e] * v[e];
      dS[e] = decay * (dS[e] + a.scale * q * d_o[e]);
    }
    dk = warp_sum(dk);
    if (lane > 0) continue;
    float* place = a.dg.row(b, h, t) + d;
    dg += load_for_update(place) - (t < a.L - 1 ? k * dk : 0.0f);
    store_float(a.dk.row(b, h, t) + d, dk + own * q);
    store_global(place, dg);
  }
  if (!a.dinitial_state.data) return;
#pragma unroll
  for (int e = 0; e < kElements; ++e) {
    if (lane + 32 * e < a.Dv) store_global(a.dinitial_state.row(b, h, d) + lane + 32 * e, dS[e]);
  }
}

/// dv. Grid (ceil(Dv / kWarps), H, B).
/// @tparam kElements of a column for each lane: Dk is at most 32 kElements
template <class T, int kElements>
__global__ void __launch_bounds__(32 * kWarps) columns_kernel(BackwardArguments<T> a) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), lane = int(lane_index());
  const int j = int(blockIdx.x) * kWarps + int(threadIdx.x) / 32;
  if (j >= a.Dv) return;
  float dS[kElements];
#pragma unroll
  for (int e = 0; e < kElements; ++e) {
    const int d = lane + 32 * e;
    dS[e] = a.dfinal_state.data && d < a.Dk ? load_global(a.dfinal_state.row(b, h, d) + j) : 0.0f;
  }
  for (int t = a.L - 1; t >= 0; --t) {
    const float d_o = a.scale * to_float(load_global(a.d_o.row(b, h, t) + j));
    float dv = 0;
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      const int d = lane + 32 * e;
      if (d >= a.Dk) continue;
      dS[e] += to_float(load_global(a.q.row(b, h, t) + d)) * d_o;
      dv += to_float(load_global(a.k.row(b, h, t) + d)) * dS[e];
      dS[e] *= gate(load_global(a.g.row(b, h, t) + d));
    }
    dv = warp_sum(dv);
    if (lane == 0) store_float(a.dv.row(b, h, t) + j, dv);
  }
}

}  // namespace

template <class T>
void backward_in_fp32(const BackwardArguments<T>& a) {
  const auto config = [&](int width) {
    return LaunchConfig{dim3(unsigned(ceil_div(width, kWarps)), unsigned(a.H), unsigned(a.B)), 32 * kWarps};
  };
  launch(a.Dv <= 128 ? rows_kernel<T, 4> : rows_kernel<T, 16>, config(a.Dk), a);
  launch(a.Dk <= 128 ? columns_kernel<T, 4> : columns_kernel<T, 16>, config(a.Dv), a);
}
template void backward_in_fp32(const FloatBackwardArguments&);
template void backward_in_fp32(const Bf16BackwardArguments&);

template <class T>
std::string backward_in_fp32_unsupported(const BackwardArguments<T>& a) {
  if (std::max(a.Dk, a.Dv) > 512) return "Dk or Dv > 512: a lane has no registers for more of a state";
  return std::max(a.B, a.H) > 65535 ? "B or H > 65535: the grid" : "";
}
template std::string backward_in_fp32_unsupported(const FloatBackwardArguments&);
template std::string backward_in_fp32_unsupported(const Bf16BackwardArguments&);

}  // namespace tutorial::gla
