#pragma once
/// @file
/// How tiles pass states on to later tiles: beside each word of look_back.cuh there is a state, and the word says that
/// the state has been written.

#include <cuda_runtime.h>

#include <cstdint>

#include "06_scan/scan/look_back.cuh"
#include "06_scan/simple_gla/state_plan.hpp"
#include "06_scan/state_tile.cuh"
#include "common/device/warp.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::scan {

inline constexpr int kStateWarps = kStateThreads / 32;

/// The words of tiles, and in their order the states.
struct PublishedStates {
  LookBack back;
  float4* own;        ///< what each tile makes of zeros
  float4* up_to_end;  ///< the state at each tile's end

  /// The first thread's part of a tile's state.
  template <int kDk>
  __device__ __forceinline__ std::int64_t first(int tile, int chain) const {
    return back.index(tile, chain, 0) / kStateWarps * StateTile<kDk>::kRows * kStateThreads;
  }
};

/// Passes this warp's part of a state on to the warp of the same number in later blocks. Called by whole warps.
template <int kDk>
__device__ __forceinline__ void publish(const StateTile<kDk>& S, float log_decay, float4* to, std::uint64_t* word) {
  S.store_packed(to);
  __syncwarp();
  if (lane_index() == 0) store_release(word, to_word({log_decay, 0.0f}));
}

/// Tiles that pass states on to each other: none if each sequence has one tile.
inline std::int64_t published_tiles(const StatePlan& plan) {
  return plan.tiles > 1 ? plan.tiles * plan.chains : 0;
}

/// A workspace for their states and words, where nothing has been published yet.
/// @throws CudaError if the memory cannot be allocated
inline PublishedStates make_published_states(const StatePlan& plan) {
  PublishedStates states{};
  states.back = make_look_back("simple_gla: look-back", plan.chains, kStateWarps, published_tiles(plan) * kStateWarps);
  if (plan.tiles > 1) {
    states.own = reinterpret_cast<float4*>(workspace<float>(kStatesTag, std::size_t(2 * plan.floats())));
    states.up_to_end = states.own + plan.floats() / 4;
  }
  return states;
}

}  // namespace tutorial::scan
