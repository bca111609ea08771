#pragma once
/// @file
/// How prepare() stores T and P: as fragments.

#include "05_deltanet_wy/chunk/fragments.cuh"
#include "05_deltanet_wy/gated_delta_rule/prepare_gated.cuh"

namespace tutorial::gated_delta_rule {

static __device__ __forceinline__ void store_scores(const Prepared& out, const ForGradients& also, std::int64_t chunk,
                                                    BlockRow& P, int r) {
  if (also.blocks) store_flipped_blocks(also.blocks + (chunk * 3 + 2) * kBlockUnits, P, r);
  store_blocks(out.P + chunk * kBlockUnits, P, r);
}
static __device__ __forceinline__ void store_T(const Prepared& out, const ForGradients& also, std::int64_t chunk,
                                               BlockRow& T, int r, const AlikeRows& alike) {
  mark(T, r, alike);
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    if (also.blocks) store_flipped_blocks(also.blocks + (chunk * 3 + part) * kBlockUnits, T, r);
    store_blocks(out.T + (chunk * 2 + part) * kBlockUnits, T, r);
  }
}

}  // namespace tutorial::gated_delta_rule
