#pragma once
/// @file
/// The walk of a segment without outputs: what it makes of a state of zeros, H or Psi (segment_maps.cuh).

#include <cuda_runtime.h>

#include "05_deltanet_wy/chunk/prepare_inverses.hpp"
#include "05_deltanet_wy/chunk/segment_maps.cuh"
#include "05_deltanet_wy/chunk/split_triangle.cuh"
#include "05_deltanet_wy/chunk/warpgroup_products.cuh"
#include "05_deltanet_wy/delta_rule.hpp"
#include "common/device/early_start.cuh"
#include "common/device/mbarrier.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/tensor_map.hpp"
#include "common/device/warp.cuh"
#include "common/device/wgmma.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::delta_rule {

/// A chunk in shared memory.
template <int kDk>
struct InverseMapTiles : MapTiles<kDk> {
  SplitTriangle T;  ///< in the place of T_high and T_low

  /// What bulk copies bring.
  static constexpr int kLoadedBytes = MapTiles<kDk>::Base::kBytes + int(SplitTriangle::Panel::kPanelBytes);

  /// @param memory kBytes in shared memory, aligned to 1024 bytes
  __device__ __forceinline__ explicit InverseMapTiles(unsigned char* memory)
      : MapTiles<kDk>(memory), T{{this->T_high.data}} {}
};

/// A segment of whole chunks.
struct MapSegment {
  int number;         ///< among SegmentMaps
  bool is_first;      ///< of its sequence: it starts from the initial state, and its Psi is not needed
  int chunks;         ///< how many
  int position;       ///< the first one
  int first_inverse;  ///< number of its first chunk in PreparedInverses
};

/// Walks a segment with 128 columns of [V | -K]. Grid of SegmentMaps::config(): this block is one of maps.blocks(). All
/// threads of a block call. Waits for the kernel before, which prepares T.
/// @param inverses map_of() PreparedInverses
template <class Shape>
__device__ __forceinline__ void walk_for_map(const Bf16Arguments& a, const tile::ChunkMaps& maps,
                                             const TensorMap& inverses, const SegmentMaps<Shape::kDk>& out,
                                             const MapSegment& segment) {
  using namespace tile;
  constexpr int kDk = Shape::kDk, kDepth = InverseMapTiles<kDk>::kDepth;
  const int b = int(blockIdx.z), h = int(blockIdx.y), group = int(threadIdx.x) / kWarpgroup;
  const int tile = int(blockIdx.x) % out.blocks();
  const bool is_key = tile == out.blocks() - 1;
  if (is_key && segment.is_first) return;
  __shared__ Barrier full[kDepth], empty[kDepth];
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int stage) { return InverseMapTiles<kDk>(memory + stage * InverseMapTiles<kDk>::kBytes); };
  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(1);
    for (Barrier& barrier : empty) barrier.init(2 * 4);
    fence_barrier_init();
  }
  __syncthreads();

  if (group == 2) {
    if (threadIdx.x > 2 * kWarpgroup) return;
    auto ring = Ring<kDepth>::producer();
    for (int n = 0; n < segment.chunks; ++n) {
      const InverseMapTiles<kDk> tiles = tiles_of(ring.stage());
      const int position = segment.position + n * kChunk;
      Barrier& barrier = full[ring.stage()];
      ring.wait(empty);
      fence_async_proxy();  // V has been read by ldmatrix
      barrier.arrive_expect(InverseMapTiles<kDk>::kLoadedBytes);
      load_panels(tiles.K, maps.k, barrier, {.position = position, .head = h, .batch = b});
      load_panels(tiles.V, is_key ? maps.k : maps.v, barrier,
                  {.column = is_key ? 0 : tile * 128, .position = position, .head = h, .batch = b});
      wait_for_previous_kernel();  // T
      load_tile(inverses, tiles.T.panel.data, barrier,
                {.position = (segment.first_inverse + n) * kInverseRows, .head = h, .batch = b});
      ring.advance();
    }
    return;
  }
  const Columns columns{b, h, segment.number, is_key ? group : 2 * tile + group};
  WarpgroupState<kDk> S = {};
  if (segment.is_first) out.load_initial(S, a, columns);
  RoundedState<kDk> s;
  WarpgroupColumns residual, v_new;
  WarpgroupFragments factor;
  const int unit = first_unit_of_columns();
  auto ring = Ring<kDepth>::consumer();
  for (int n = 0; n < segment.chunks; ++n) {
    const InverseMapTiles<kDk> tiles = tiles_of(ring.stage());
    round_state<kDk>(s, S);
    ring.wait(full);
    load_signed_values(residual, tiles.columns(group), unit, is_key ? kPlus : kMinus);
    wgmma_fence(residual, s);
    start_residual<kDk>(residual, s, tiles.K);
    wgmma_commit();
    wgmma_wait<0>(residual);
    round_columns(factor, residual);
    wgmma_fence(v_new, factor);
    start_new_values(v_new, factor, tiles.T);
    wgmma_commit();
    wgmma_wait<0>(v_new);
    round_columns(factor, v_new);
    wgmma_fence(S, factor);
    start_state_update<kDk>(S, factor, tiles.K);
    wgmma_commit();
    wgmma_wait<0>(S);
    __syncwarp();  // all lanes have read their part of V
    if (lane_index() == 0) empty[ring.stage()].arrive();
    ring.advance();
  }
  is_key ? out.store_transition(a, columns, S) : out.store_state(a, columns, S);
}

}  // namespace tutorial::delta_rule
