#pragma once
/// @file
/// The last chunk of one of several packed sequences: bulk copies load whole chunks, and the rows of the next sequence
/// arrive, too.

#include <cuda_runtime.h>

#include "05_deltanet_wy/kda/chunk_slot.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/tile/wgmma_products.cuh"

namespace tutorial::kda {

/// Makes rows from number `rows` on of k and g zeros. A warpgroup calls it.
/// @param barrier a named barrier of the warpgroup's
template <int kDk>
__device__ __forceinline__ void clear_rows(const ChunkSlot<kDk>& slot, int rows, unsigned barrier) {
  constexpr int kUnits = 8, kPanel = tile::kChunk * kUnits * 16;  // of a row of a panel; bytes
  const auto clear = [&](int offset) {
    auto* units = reinterpret_cast<uint4*>(slot.memory + offset);
    for (int i = rows * kUnits + int(threadIdx.x) % tile::kWarpgroup; i < tile::kChunk * kUnits;
         i += tile::kWarpgroup) {
      store_for_copies(units + i, make_uint4(0, 0, 0, 0));
    }
  };
  for (int panel = 0; panel < kDk / 64; ++panel) clear(slot.kTile + panel * kPanel);
  for (int panel = 0; panel < kDk / 32; ++panel) clear(2 * slot.kTile + panel * kPanel);
  fence_async_proxy();
  wait_at_named_barrier(barrier, tile::kWarpgroup);
}

}  // namespace tutorial::kda
