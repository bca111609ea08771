#include "05_deltanet_wy/delta_rule/dispatch/requirements.hpp"
#include "05_deltanet_wy/gated_delta_rule/dispatch/segmented_walk.hpp"

#include <cuda_runtime.h>

#include "05_deltanet_wy/delta_rule/dispatch/segmented_plan.hpp"
#include "05_deltanet_wy/delta_rule/dispatch/segmented_walk.cuh"
#include "05_deltanet_wy/gated_delta_rule/decayed_warp_products.cuh"
#include "05_deltanet_wy/gated_delta_rule/prepare_packed.hpp"
#include "05_deltanet_wy/gated_delta_rule_packed/dispatch/walks.hpp"
#include "common/device/device.hpp"
#include "common/parts.hpp"
#include "common/tile/packed_chunks.cuh"
#include "common/tile/requirements.hpp"

namespace tutorial::gated_delta_rule {
namespace {

using tile::kChunk;

/// The vectors of a chunk are its decays (prepare_gated.hpp).
struct Decays {
  static constexpr int kFloats = kDecays;
  static constexpr bool kHasDecays = true;

  const float* decays;  ///< in shared memory

  __device__ __forceinline__ const float* of_keys() const { return decays + kOfKeys * kChunk; }
  __device__ __forceinline__ const float* of_queries() const { return decays + kOfQueries * kChunk; }
  __device__ __forceinline__ float of_chunk() const { return of_queries()[kChunk - 1]; }
  template <int kDk, class PassOn>
  __device__ __forceinline__ void subtract_product(WarpFragments& residual, const tile::SwizzledTile<64>& V,
                                                   int first_column, const tile::SwizzledTile<kDk>& K,
                                                   const WarpState<kDk>& S, PassOn pass_on) const {
    subtract_decayed_product<kDk>(residual, V, first_column, K, S, of_keys(), pass_on);
  }
  __device__ __forceinline__ void decay_outputs(WarpColumns& O) const { decay_columns(O, of_queries()); }
  template <int kDk, class PassOn>
  __device__ __forceinline__ void add_v_new(WarpState<kDk>& S, const WarpFragments& residual, const uint4* T,
                                            const tile::SwizzledTile<kDk>& K, PassOn pass_on) const {
    add_decayed_v_new<kDk>(S, residual, T, K, of_chunk(), decays + kToEnd * kChunk, pass_on);
  }
};

}  // namespace

void segmented_walk(const Bf16Arguments& a, const Prepared& prepared, const tile::LaunchPlan& plan) {
  delta_rule::segmented::start<Decays>(a, {prepared.N, prepared.T, prepared.P, prepared.decays}, plan);
}

void walk_packed(const PackedBf16Arguments& p) {
  const Prepared prepared = prepare(p, {});
  end_part("prepare");
  delta_rule::segmented::start_packed<Decays>({p.all, p.cu_seqlens, p.N},
                                              {prepared.N, prepared.T, prepared.P, prepared.decays});
}

std::string walk_packed_unsupported(const PackedBf16Arguments& p) {
  constexpr int kMostEntries = 65535;  // of a grid
  if (const std::string reason = tile::tensor_core_unsupported(p.all); !reason.empty()) return reason;
  if (p.N > kMostEntries / p.all.B) return "more than 65535 sequences: the grid's third dimension";
  using delta_rule::segmented::WalkMemory;
  return shared_memory_missing(p.all.Dk <= 64    ? sizeof(WalkMemory<64, Decays>)
                               : p.all.Dk <= 128 ? sizeof(WalkMemory<128, Decays>)
                                                 : sizeof(WalkMemory<256, Decays>));
}

std::int64_t walk_packed_memory(const PackedBf16Arguments& p) {
  return prepared_memory(p) + p.N * std::int64_t(sizeof(int4));
}

std::int64_t segmented_walk_memory(const Bf16Arguments& a, const tile::LaunchPlan& plan) {
  return delta_rule::segmented::Maps::bytes(a, plan.segments - 1, true);
}

std::optional<tile::LaunchPlan> segmented_plan(const Bf16Arguments& a) {
  const tile::LaunchPlan plan = delta_rule::fastest_segmented_plan(a);
  if (plan.segments == 1 && tensor_core_unsupported(a).empty()) return {};
  return plan;
}

}  // namespace tutorial::gated_delta_rule
