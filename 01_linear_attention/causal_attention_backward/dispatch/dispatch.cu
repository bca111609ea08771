/// @file
/// `dispatch`: the gradients of the layer on the device, around those of causal_dot_product.
///
/// Idea: in the forward pass the normaliser is one more column of ones, and the layer is causal_dot_product between two
/// kernels that work row by row. In the backward pass each of the three passes its gradient on to the one before it:
///   1. as in the forward pass: phi(q), phi(k), [v, 1], then o' = [phi(q) S, phi(q) . z] by causal_dot_product's
///      `dispatch`
///   2. through the division: do' = [do_t / c_t, -(do_t . o_t) / c_t], where c_t is the denominator
///   3. through the product: `dispatch` of causal_dot_product's gradients, with Dv + 1 columns
///   4. through the feature map: dq = phi'(q) dphi(q), likewise dk; the last column of d[v, 1] belongs to a constant
/// Improves on: `recurrent` runs on one core.
/// Unchanged: z is the last column of S, dz of dS; c_t and do_t . o_t of the forward pass are computed again.
/// Equation: as `recurrent`, with dc_t in the last column of do'
/// Shapes: workspace phi_q, phi_k, dphi_q, dphi_k [B, H, L, Dk]; v_one, o_one, do_one, dv_one [B, H, L, Dv + 1], fp32
/// in device memory.
/// Thread mapping: in the kernels of rows a warp takes one row at a time, and its lanes run along the row.
/// Resources: no shared memory in these kernels.
/// Work: 16 Dk (Dv + 1) operations and 4 Dk exponentials per head and position: 4 for o' and 12 for the walks.
/// Bytes: 7 tensors in and out, and 8 of the workspace written and read.
/// Bound by: the walks, see causal_dot_product; the kernels of rows by memory.
/// Requires: what the two dispatches require for Dv + 1.
/// Weakness: Dv + 1 is the length of a column in two of the walks: 64 becomes 65, which is computed as 128. A
/// separate running sum for dc_t would avoid that.
/// Sources: as `recurrent`.

#include <cuda_runtime.h>

#include <algorithm>

#include "01_linear_attention/causal_attention/features.hpp"
#include "01_linear_attention/causal_attention_backward/gradients.hpp"
#include "01_linear_attention/causal_dot_product.hpp"
#include "01_linear_attention/causal_dot_product_backward.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/warp.cuh"
#include "common/device/workspace.hpp"
#include "common/feature_map.hpp"

namespace tutorial::causal_attention_backward {
namespace {

constexpr unsigned kWarps = 8;  // rows per block

/// Grid (B H, up to 65535 groups of kWarps rows), for this number of rows.
LaunchConfig row_grid(const Arguments& a, int rows) {
  return {dim3(unsigned(a.B * a.H), std::min((unsigned(rows) - 1) / kWarps + 1, 65535u)), kWarps * 32};
}

/// row_grid(L).
__global__ void division_kernel(Arguments a, View<const float> o_one, View<float> do_one) {
  const int b = int(blockIdx.x) / a.H, h = int(blockIdx.x) % a.H;
  const int lane = int(threadIdx.x % 32);
  for (int t = int(blockIdx.y * kWarps + threadIdx.x / 32); t < a.L; t += int(gridDim.y * kWarps)) {
    const float* o = o_one.row(b, h, t);
    const float* do_t = a.d_o.row(b, h, t);
    const float normaliser = load_global(&o[a.Dv]) + a.eps;
    float mean = 0;  // do_t . o_t
    for (int j = lane; j < a.Dv; j += 32) {
      const float g = load_global(&do_t[j]) / normaliser;
      store_global(&do_one.row(b, h, t)[j], g);
      mean += g * load_global(&o[j]);
    }
    mean = warp_sum<32>(mean);
    if (lane == 0) store_global(&do_one.row(b, h, t)[a.Dv], -mean / normaliser);
  }
}

/// row_grid(max(L, Lk)).
__global__ void features_kernel(Arguments a, int key_rows, View<const float> dphi_q, View<const float> dphi_k,
                                View<const float> dv_one) {
  const int b = int(blockIdx.x) / a.H, h = int(blockIdx.x) % a.H;
  const int lane = int(threadIdx.x % 32);
  const int keys = min(a.key_lengths ? min(load_global(&a.key_lengths[b]), a.Lk) : a.Lk, key_rows);
  for (int t = int(blockIdx.y * kWarps + threadIdx.x / 32); t < max(a.L, a.Lk); t += int(gridDim.y * kWarps)) {
    for (int d = lane; d < a.Dk && t < a.L; d += 32) {
      const float slope = dphi(load_global(&a.q.row(b, h, t)[d]));
      store_global(&a.dq.row(b, h, t)[d], slope * load_global(&dphi_q.row(b, h, t)[d]));
    }
    for (int d = lane; d < a.Dk && t < a.Lk; d += 32) {
      const float slope = t < keys ? dphi(load_global(&a.k.row(b, h, t)[d])) : 0.0f;
      store_global(&a.dk.row(b, h, t)[d], t < keys ? slope * load_global(&dphi_k.row(b, h, t)[d]) : 0.0f);
    }
    for (int j = lane; j < a.Dv && t < a.Lk; j += 32) {
      store_global(&a.dv.row(b, h, t)[j], t < keys ? load_global(&dv_one.row(b, h, t)[j]) : 0.0f);
    }
  }
}

using Product = causal_dot_product::Arguments;
using ProductGradients = causal_dot_product_backward::Arguments;

/// The arguments of the inner product, with null tensors.
ProductGradients inner(const Arguments& a) {
  ProductGradients product{};
  product.B = a.B;
  product.H = a.H;
  product.L = a.L;
  product.Dk = a.Dk;
  product.Dv = a.Dv + 1;
  return product;
}

/// The arguments of the inner forward product, which writes o.
Product forward(const ProductGradients& a, const View<float>& o) {
  return {a.B, a.H, a.L, a.Dk, a.Dv, a.q, a.k, a.v, o};
}

}  // namespace

void through_division(const Arguments& a, const View<const float>& o_one, const View<float>& do_one) {
  launch(division_kernel, row_grid(a, a.L), a, o_one, do_one);
}

void through_features(const Arguments& a, int key_rows, const View<const float>& dphi_q,
                      const View<const float>& dphi_k, const View<const float>& dv_one) {
  launch(features_kernel, row_grid(a, std::max(a.L, a.Lk)), a, key_rows, dphi_q, dphi_k, dv_one);
}

void dispatch(const Arguments& a) {
  const auto rows_of = [&](const char* name, int width) {
    const std::size_t rows = std::size_t(a.B) * std::size_t(a.H) * std::size_t(a.L);
    return packed(workspace<float>(name, rows * std::size_t(width)), a.H, a.L, width);
  };
  const View<float> phi_q = rows_of("causal_attention phi_q", a.Dk), phi_k = rows_of("causal_attention phi_k", a.Dk);
  const View<float> v_one = rows_of("causal_attention v_one", a.Dv + 1);
  const View<float> o_one = rows_of("causal_attention o_one", a.Dv + 1);
  const View<float> do_one = rows_of("causal_attention do_one", a.Dv + 1);
  ProductGradients product = inner(a);
  product.q = read_only(phi_q);
  product.k = read_only(phi_k);
  product.v = read_only(v_one);
  product.d_o = read_only(do_one);
  product.dq = rows_of("causal_attention dphi_q", a.Dk);
  product.dk = rows_of("causal_attention dphi_k", a.Dk);
  product.dv = rows_of("causal_attention dv_one", a.Dv + 1);

  causal_attention::features(a, a.L, phi_q, phi_k, v_one);
  causal_dot_product::dispatch(forward(product, o_one));
  through_division(a, read_only(o_one), do_one);
  causal_dot_product_backward::dispatch(product);
  through_features(a, a.L, read_only(product.dq), read_only(product.dk), read_only(product.dv));
}

std::string dispatch_unsupported(const Arguments& a) {
  if ((a.Dk > 256 && a.Dv > 1023) || (a.Dk > 1024 && a.Dv > 255)) {
    return "Dv > 1023 with Dk > 256, or Dk > 1024 with Dv > 255: atomic takes 1024 columns, one of them the normaliser";
  }
  return causal_dot_product_backward::dispatch_unsupported(inner(a));
}

}  // namespace tutorial::causal_attention_backward
