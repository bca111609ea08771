/// @file
/// `recurrent`: chapter 01's product with a scale and an initial state, one position after the other.
///
/// Idea: this chapter's operator is chapter 01's bare product with two additions, a scale and a state to start from.
/// Both can be applied outside the product's kernel: scale q takes the place of q, and a second kernel adds the initial
/// state's part to every output.
/// Unchanged: the kernels of chapter 01, of which its `dispatch` chooses one.
/// Equation:
///
///   o_t = sum_{i<=t} (scale q_t . k_i) v_i    causal_dot_product on scale q, k, v
///   o_t += (scale q_t) S_0                    where there is an initial state
///
/// Shapes: q, k [B, H, L, Dk]; v, o [B, H, L, Dv]; S_0 [B, H, Dk, Dv]; scale q, packed, as q; all fp32 in device
/// memory.
/// Thread mapping: in the two small kernels block (b h, y) takes the positions y, y + grid, ..., and thread j takes
/// element j of the row.
/// Work: 4 Dk Dv operations per position, and 2 Dk Dv more for S_0.
/// Bytes: q, k, v and o once. scale q is written and read again. For S_0, o is read and written again; S_0 itself comes
/// from the second-level cache.
/// Bound by: L sequential steps. Each step of a head is a rank-one update and a product of a row and a matrix. Both do
/// two operations per element of the state that they touch, and neither is a matrix product that a tensor core could
/// compute.
/// Requires: what chapter 01's dispatch requires. Chapter 01 keeps no state after the last position. So this stage
/// computes no final_state, and none is compared.
/// Weakness: the steps are sequential. `parallel` has no sequential steps.
/// Sources: chapter 01; arXiv 2312.06635, section 2.1, "recurrent form".

#include <cuda_runtime.h>

#include "01_linear_attention/causal_dot_product.hpp"
#include "02_chunkwise/linear_attention.hpp"
#include "02_chunkwise/linear_attention/requirements.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::linear_attention {
namespace {

constexpr int kBlock = 128;
constexpr int kMaxBlocks = 1024;  // per head

/// scaled = scale q. Grid (B H, up to kMaxBlocks).
__global__ void scale_kernel(View<const float> q, View<float> scaled, int H, int L, int Dk, float scale) {
  const int b = int(blockIdx.x) / H, h = int(blockIdx.x) % H;
  for (std::int64_t t = blockIdx.y; t < L; t += gridDim.y) {
    for (int d = int(threadIdx.x); d < Dk; d += kBlock) {
      store_global(&scaled.row(b, h, t)[d], scale * load_global(&q.row(b, h, t)[d]));
    }
  }
}

/// o += scaled S. Grid (B H, up to kMaxBlocks).
__global__ void add_state_kernel(View<const float> scaled, View<const float> S, View<float> o, int H, int L, int Dk,
                                 int Dv) {
  const int b = int(blockIdx.x) / H, h = int(blockIdx.x) % H;
  for (std::int64_t t = blockIdx.y; t < L; t += gridDim.y) {
    const float* q_t = scaled.row(b, h, t);
    for (int j = int(threadIdx.x); j < Dv; j += kBlock) {
      float sum = 0;
      for (int d = 0; d < Dk; ++d) sum += load_global(&q_t[d]) * load_global(&S.row(b, h, d)[j]);
      float* o_tj = &o.row(b, h, t)[j];
      store_global(o_tj, *o_tj + sum);
    }
  }
}

/// The arguments of chapter 01's product, with scale q in the place of q.
causal_dot_product::Arguments product(const FloatArguments& a, const float* scaled) {
  return {a.B, a.H, a.L, a.Dk, a.Dv, packed(scaled, a.H, a.L, a.Dk), a.k, a.v, a.o};
}

}  // namespace

void recurrent(const FloatArguments& a) {
  const View<float> scaled = packed(workspace<float>("scaled_q", std::size_t(recurrent_memory(a)) / 4), a.H, a.L, a.Dk);
  const dim3 grid(unsigned(a.B * a.H), unsigned(min(a.L, kMaxBlocks)));
  launch(scale_kernel, {grid, kBlock}, a.q, scaled, a.H, a.L, a.Dk, a.scale);
  const causal_dot_product::Arguments scaled_product = product(a, scaled.data);
  causal_dot_product::dispatch(scaled_product);
  if (a.initial_state.data) {
    launch(add_state_kernel, {grid, kBlock}, scaled_product.q, a.initial_state, a.o, a.H, a.L, a.Dk, a.Dv);
  }
}

}  // namespace tutorial::linear_attention
