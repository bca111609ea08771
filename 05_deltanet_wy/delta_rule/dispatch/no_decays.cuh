#pragma once
/// @file
/// The decays of a rule without gates, for `one_block` (05_deltanet_wy/chunk/one_block.cuh).

#include <cuda_runtime.h>

#include "05_deltanet_wy/chunk/warpgroup_products.cuh"
#include "05_deltanet_wy/delta_rule.hpp"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::delta_rule {
namespace {

/// There are none.
struct NoDecays {
  using Arguments = Bf16Arguments;
  static constexpr bool kExist = false;
  static constexpr int kBytes = 0;

  static __device__ __forceinline__ void multiply_pairs(tile::WarpgroupScores&, const float*) {}

  struct Source {
    __device__ __forceinline__ Source(const Bf16Arguments&, int, int) {}
  };

  struct Chain {
    static constexpr __device__ bool begin(const float*) { return false; }
    template <int kSums>
    __device__ __forceinline__ void multiply_state(float (&)[kSums]) const {}
    __device__ __forceinline__ void load_values(WarpgroupColumns& sums, const ValuePanel& V, int unit) const {
      load_signed_values(sums, V, unit, kMinus);
    }
    __device__ __forceinline__ float output_factors(float scale) const { return scale; }
    template <int kSums>
    __device__ __forceinline__ void end(float (&)[kSums]) const {}

    // No chunk is strong.
    template <int kSums>
    __device__ __forceinline__ void keep(float (&)[kSums]) const {}
    __device__ __forceinline__ void finish_residual(WarpgroupColumns&, const ValuePanel&, int) const {}
    __device__ __forceinline__ void finish_output(WarpgroupColumns&) const {}
    __device__ __forceinline__ void finish_values(WarpgroupColumns&) const {}
  };
};

}  // namespace
}  // namespace tutorial::delta_rule
