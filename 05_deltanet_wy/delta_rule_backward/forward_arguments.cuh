#pragma once
/// @file
/// What the stages of `--backward` on tensor cores give to the kernels of the operator: its arguments, with a beta that
/// is never 0.

#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/delta_rule.hpp"
#include "05_deltanet_wy/delta_rule_backward.hpp"
#include "05_deltanet_wy/delta_rule_backward/gradient_chunk.cuh"
#include "common/ceil_div.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/tile/chunk_shape.cuh"

namespace tutorial::delta_rule {
namespace {

/// to = beta, at least kLeastBeta. Grid (blocks of kThreads positions, H, B).
__global__ void __launch_bounds__(tile::kThreads) beta_kernel(View<const float> beta, View<float> to, int L) {
  const int t = int(blockIdx.x) * tile::kThreads + int(threadIdx.x), h = int(blockIdx.y), b = int(blockIdx.z);
  if (t < L) store_global(to.row(b, h, t), fmaxf(load_global(beta.row(b, h, t)), kLeastBeta));
}

/// The operator's arguments, without outputs. @param beta [B, H, L], packed
inline Bf16Arguments forward_of(const Bf16BackwardArguments& g, const float* beta) {
  return {g.B,
          g.H,
          g.L,
          g.Dk,
          g.Dv,
          g.C,
          g.scale,
          g.normalize_keys,
          g.q,
          g.k,
          g.v,
          packed(beta, g.H, g.L, 1),
          g.initial_state,
          {},
          {}};
}

/// The same with the beta that is computed with, which a kernel writes. @param beta [B, H, L], packed
inline Bf16Arguments forward_with_least_beta(const Bf16BackwardArguments& g, float* beta) {
  launch(beta_kernel, {dim3(unsigned(ceil_div(g.L, tile::kThreads)), unsigned(g.H), unsigned(g.B)), tile::kThreads},
         g.beta, packed(beta, g.H, g.L, 1), g.L);
  return forward_of(g, beta);
}

}  // namespace
}  // namespace tutorial::delta_rule
