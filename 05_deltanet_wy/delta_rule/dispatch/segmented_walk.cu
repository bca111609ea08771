/// @file
/// delta_rule's walk in segments: the kernels of segmented_walk.cuh without gates.

#include "05_deltanet_wy/delta_rule/dispatch/segmented_walk.hpp"

#include <cuda_runtime.h>

#include "05_deltanet_wy/delta_rule/dispatch/segmented_walk.cuh"

namespace tutorial::delta_rule {
namespace {

/// The vectors of a chunk are the factors of its keys.
/// @tparam kNormalize a.normalize_keys: without factors there are fewer instructions
template <bool kNormalize>
struct NoGates {
  static constexpr int kFloats = tile::kChunk;
  static constexpr bool kHasDecays = false;

  const float* factors;  ///< in shared memory

  __device__ __forceinline__ const float* of_keys() const { return kNormalize ? factors : nullptr; }
  __device__ __forceinline__ float of_chunk() const { return 1; }
  template <int kDk, class PassOn>
  __device__ __forceinline__ void subtract_product(WarpFragments& residual, const SwizzledTile<64>& V, int first_column,
                                                   const SwizzledTile<kDk>& K, const WarpState<kDk>& S,
                                                   PassOn pass_on) const {
    delta_rule::subtract_product<kDk>(residual, V, first_column, K, S, pass_on, of_keys());
  }
  __device__ __forceinline__ void decay_outputs(WarpColumns&) const {}
  template <int kDk, class PassOn>
  __device__ __forceinline__ void add_v_new(WarpState<kDk>& S, const WarpFragments& residual, const uint4* T,
                                            const SwizzledTile<kDk>& K, PassOn pass_on) const {
    delta_rule::add_v_new<kDk>(S, residual, T, K, pass_on, of_keys());
  }
};

}  // namespace

void segmented_walk(const Bf16Arguments& a, const Prepared& prepared, const tile::LaunchPlan& plan) {
  a.normalize_keys ? segmented::start<NoGates<true>>(a, prepared, plan)
                   : segmented::start<NoGates<false>>(a, prepared, plan);
}

std::int64_t segmented_walk_memory(const Bf16Arguments& a, const tile::LaunchPlan& plan) {
  return segmented::Maps::bytes(a, plan.segments - 1, false);
}

}  // namespace tutorial::delta_rule
