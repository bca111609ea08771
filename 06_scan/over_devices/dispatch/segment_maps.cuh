#pragma once
/// @file
/// The map of a device from k, v and the gates alone: those of its segments at once, then their composition. The same
/// for the gradient of the state, from q, do and the gates.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "06_scan/over_devices/maps.cuh"
#include "06_scan/simple_gla/tile_gates.cuh"
#include "common/device/cp_async.cuh"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/workspace.hpp"
#include "common/tile/block_part.cuh"
#include "common/tile/chunk_products.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/load_tile.cuh"
#include "common/tile/requirements.hpp"
#include "common/tile/select_shape.cuh"
#include "common/tile/state.cuh"

namespace tutorial::over_devices {
namespace {

constexpr int kPipelineDepth = 2;  // chunks in shared memory

/// The map of each segment. Grid (tiles of Dv of all segments, H, B).
/// @param length positions of a segment @param from_end whether the problem is that of from_the_end(): what a position
/// adds then passes its own gate, too @param scale of all that is added @param maps one after the other @param size
/// floats of a map
template <class Shape, bool kHasGates>
__global__ void __launch_bounds__(tile::kThreads, Shape::kDk <= 128 ? 2 : 1)
    segment_maps_kernel(Arguments a, int length, bool from_end, float scale, float* maps, std::int64_t size) {
  using namespace tile;
  const BlockPart<Shape> part(extents_of(a), length);
  __shared__ scan::TileGates<kChunk> gates;
  const auto tiles_of = [&](int n) {
    return StateTiles<Shape>(dynamic_shared<unsigned char>() + n % kPipelineDepth * StateTiles<Shape>::kBytes);
  };
  const auto load = [&](int n) {
    const int t = part.begin + n * kChunk;
    if (t < part.end) {
      load_tile_async(tiles_of(n).K, a.k.row(part.b, part.h, t), a.k.stride_l, part.end - t, a.Dk);
      load_tile_async(tiles_of(n).V, a.v.row(part.b, part.h, t) + part.first_column, a.v.stride_l, part.end - t,
                      part.columns);
    }
    cp_async_commit();
  };
  simple_gla::FloatArguments only_gates{};
  only_gates.g = a.g;
  load(0);
  typename Shape::State X = {};
  float log_decay = 0;
  for (int n = 0; part.begin + n * kChunk < part.end; ++n) {
    const int t = part.begin + n * kChunk;
    if (kHasGates && threadIdx.x < 32) {
      load_gates(gates, only_gates, part.b, part.h, t, min(kChunk, part.end - t));
    }
    cp_async_wait<0>();
    __syncthreads();
    load(n + 1);  // all have left chunk n - 1, whose place it takes
    const StateTiles<Shape> tiles = tiles_of(n);
    if constexpr (kHasGates) {
      for (int i = int(threadIdx.x); i < kChunk * Shape::kDv / 8; i += tile::kThreads) {
        const int row = i / (Shape::kDv / 8);
        const float x = gates.decay_to_end[row] * (from_end ? gates.gate[row] : 1.0f);
        scale_unit(tiles.V, row, i % (Shape::kDv / 8) * 8, {x, x, x, x, x, x, x, x});
      }
      scale_state<Shape>(X, scan::decay(gates.log_decay));
      log_decay += gates.log_decay;
      __syncthreads();
    }
    update_state<Shape>(X, tiles.K, tiles.V);
  }
  scale_state<Shape>(X, scale);
  float* map = maps + part.segment * size;
  store_state<Shape>(map + std::int64_t(part.head) * a.Dk * a.Dv + part.first_column, X, a.Dv, a.Dk, part.columns);
  if (kHasGates && part.first_column == 0 && threadIdx.x == 0) {
    store_global(map + std::int64_t(a.B) * a.H * a.Dk * a.Dv + part.head, log_decay);
  }
}

/// Computes X of a share, or Y if the problem is that of the gradient from its end.
/// @param from_end,scale see segment_maps_kernel()
/// @param sum [B, H, Dk, Dv]
template <Rule kRule>
void write_sum(const Arguments& share, bool from_end, float scale, float* sum) {
  const tile::LaunchPlan plan = tile::one_wave(tile::extents_of(share));
  const auto size = std::int64_t(map_size<kRule>(share));
  auto* maps = workspace<float>("devices: maps of segments", std::size_t(plan.segments * size));
  tile::select_shape(share.Dk, plan.columns, [&]<class Shape>(Shape) {
    launch(segment_maps_kernel<Shape, kRule == Rule::simple_gla>,
           {tile::grid_of<Shape>(tile::extents_of(share), plan.segments), tile::kThreads,
            std::size_t(kPipelineDepth * tile::StateTiles<Shape>::kBytes)},
           share, plan.length, from_end, scale, maps, size);
  });
  compose<kRule>(share, maps_from<kRule>(maps, share), plan.segments, sum, share.initial_state);
}

/// Computes a device's own map.
template <Rule kRule>
void write_map(const Arguments& share, float* map) {
  write_sum<kRule>(share, false, 1, map);
  if (kRule == Rule::simple_gla) sum_gates(share, map + state_size(share));
}

}  // namespace
}  // namespace tutorial::over_devices
