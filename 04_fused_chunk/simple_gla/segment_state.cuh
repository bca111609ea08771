#pragma once
/// @file
/// What a segment makes of a state of zeros, by a warpgroup, a warp that adds up gates and a thread that loads: the
/// kernel before the walks of dispatch/hopper_walk.cu and of the gradients by warpgroups.
///
/// The block goes through the segment from the end where its state is wanted. So the decay from a position to this end
/// is known when the block reaches its chunk:
///
///     X = sum of K_n^T (diag(2^(b_end - b + later)) V_n), where `later` is the sum of the b_end of the chunks after n
///
/// So all decays are in V~, and X is never multiplied. V is loaded from shared memory into registers and multiplied
/// there; the result, V~, is the left factor of the product. V~ of the next chunk is computed while the product runs.
/// The gradient of the state is wanted at the segment's beginning, and there 2^(b + earlier) is the decay.

#include <cuda_runtime.h>

#include "04_fused_chunk/simple_gla.hpp"
#include "04_fused_chunk/simple_gla/chunk_decays.cuh"
#include "04_fused_chunk/simple_gla/chunk_loads.cuh"
#include "04_fused_chunk/simple_gla/decayed_values.cuh"
#include "common/device/registers.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::simple_gla {
namespace {

using namespace tile;

constexpr int kStateDepth = 4;                // chunks in shared memory
constexpr int kStateBlock = kWarpgroup + 64;  // threads: those of the state, a warp that loads, one that adds up gates

template <class Shape>
constexpr std::size_t kSharedBytesForState = kStateDepth*(StateTiles<Shape>::kBytes + ChunkDecays::kBytes);

/// One warp writes only a chunk's decays into a state beyond the chunk's end, or, for a walk from the end, beyond its
/// start.
/// @param between the sum of the gates between the chunk and the state
__device__ __forceinline__ void store_into_state(const ChunkDecays& to, const ChunkSums& b, float between,
                                                 bool is_reversed) {
  const float end = b.end + between;
  const float first = is_reversed ? between + b.first : end - b.first;
  const float second = is_reversed ? between + b.second : end - b.second;
  to.put_into_state(ex2(first), ex2(second));
}

/// Computes the state of the block's segment and columns, and the decay of the segment. Called by all threads.
/// @param is_reversed the state that a walk from the end leaves at the segment's beginning
/// @param state [Dk, Dv] @param decay 2 to the sum of the segment's gates
/// @param has_initial the first segment starts from the initial state instead of zeros, if there is one
template <class Shape, class Part>
__device__ __forceinline__ void walk_for_state(const Bf16Arguments& a, const ChunkMaps& maps, const Part& part,
                                               bool is_reversed, float* state, float* decay, bool has_initial = false) {
  __shared__ Barrier full[kStateDepth], empty[kStateDepth], whole_full;
  __shared__ float whole;  // the decay of the segment
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int stage) { return StateTiles<Shape>(memory + stage * StateTiles<Shape>::kBytes); };
  const auto decays_of = [&](int stage) {
    return ChunkDecays(memory + kStateDepth * StateTiles<Shape>::kBytes, stage);
  };
  const int count = (part.end - part.begin - 1) / kChunk + 1, step = is_reversed ? kChunk : -kChunk;
  const int first = part.begin + (is_reversed ? 0 : (count - 1) * kChunk);
  const BlockChunks chunks{part.b, part.h, first, step, count, part.end, part.first_column};
  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(2);  // one for the bytes, one for the decays
    for (Barrier& barrier : empty) barrier.init(4);
    whole_full.init(1);
    fence_barrier_init();
  }
  __syncthreads();

  if (threadIdx.x >= kWarpgroup + 32) {
    if (threadIdx.x > kWarpgroup + 32) return;
    request_chunks(full, empty, tiles_of, maps, chunks);
    return;
  }
  if (threadIdx.x >= kWarpgroup) {
    const bool is_first = threadIdx.x == kWarpgroup;
    double between = 0;  // the chunk and the end where the state is wanted
    store_decays(full, empty, a, chunks, [&](int stage, const ChunkSums& sums) {
      store_into_state(decays_of(stage), sums, float(between), is_reversed);
      between += sums.end;
    });
    if (is_first) {
      whole = exp2f(float(between));
      whole_full.arrive();
      if (part.first_column == 0) store_global(decay, whole);
    }
    return;
  }
  WarpgroupState<Shape::kDk> X;
#pragma unroll
  for (float& element : X) element = 0;
  auto ring = Ring<kStateDepth>::consumer();  // one chunk ahead of `read`
  auto read = ring;
  const auto make_values = [&](ValueFragments& v) {
    ring.wait(full);
    load_decayed_values(v, tiles_of(ring.stage()).V, decays_of(ring.stage()));
    ring.advance();
  };
  ValueFragments v;
  make_values(v);
  for (int n = 0; n < count; ++n) {
    wgmma_fence(X, v);
    start_state_update<Shape::kDk>(X, v, tiles_of(read.stage()).K);
    wgmma_commit();
    ValueFragments v_next = {};
    if (n + 1 < count) make_values(v_next);
    wgmma_wait<0>(X, v);
    __syncwarp();  // all lanes have read V
    if (lane_index() == 0) empty[read.stage()].arrive();
    read.advance();
#pragma unroll
    for (int i = 0; i < kChunk / 16; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) v[i][j] = v_next[i][j];
    }
  }
  if (has_initial && part.segment == 0 && a.initial_state.data) {
    whole_full.wait(0);
    const float factor = whole;
    for_each_state_element<Shape::kDk>(
        X, a.initial_state.row(part.b, part.h, 0) + part.first_column, a.initial_state.stride_l, a.Dk, part.columns,
        [=](float& element, const float* address) { element += factor * load_global(address); });
  }
  store_group_state<Shape::kDk>(state + part.first_column, X, a.Dv, a.Dk, part.columns);
}

}  // namespace
}  // namespace tutorial::simple_gla
