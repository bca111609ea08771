#pragma once
/// @file
/// Two blocks that need the same tiles, as a cluster: each loads one half of every tile, into both.
///
/// So a tile comes from the second-level cache once instead of twice. A half may go to the other block's shared memory
/// only when that block has no more use for what is there. Its loading thread says so by a message, 16 bytes by a bulk
/// copy: an arrival from another block would make this thread wait for all of its own accesses to memory first.
///
///     ring.wait(empty);                                      // this block is done with the stage
///     full[ring.stage()].arrive_expect(bytes of both halves);
///     if (n >= kStages) peer.tell(ring.stage());             // in the first round all stages are free
///     load what this block alone needs
///     peer.wait(ring);                                       // the other block is done with it, too
///     load_panel_for_both(tile, map, full[ring.stage()], origin);
///
/// All this is called by one thread of each block, after the cluster's first barrier; before its last barrier, the
/// blocks have waited for all of their tiles.

#include <cuda_runtime.h>

#include "common/device/bulk_copy.cuh"
#include "common/device/cluster.cuh"
#include "common/device/mbarrier.cuh"
#include "common/device/push_shared.cuh"
#include "common/tile/panel_tile.cuh"

namespace tutorial::tile {

/// What the other block of the cluster says about the stages of its ring. In dynamic shared memory.
template <int kStages>
struct PeerStages {
  Barrier free[kStages];
  alignas(16) unsigned char outbox[16], inbox[16];  // the message's bytes; their values do not matter

  /// By the thread that initialises the block's barriers, before fence_barrier_init().
  __device__ __forceinline__ void init() {
    for (Barrier& barrier : free) barrier.init(1);
  }
  /// Tells the other block that a stage is free here.
  __device__ __forceinline__ void tell(int stage) {
    free[stage].arrive_expect(sizeof(inbox));  // of its own message
    push_shared(inbox, outbox, sizeof(inbox), free[stage], 1 - cluster_rank());
  }
  /// Waits until the next stage is free there. @param ring a producer's
  __device__ __forceinline__ void wait(const Ring<kStages>& ring) { ring.wait_cluster(free); }
};

/// Starts to load this block's panel of a tile of two, 64 columns, into both blocks, whose barriers expect them.
/// @param origin of the tile
__device__ __forceinline__ void load_panel_for_both(const PanelTile<128>& tile, const TensorMap& map, Barrier& barrier,
                                                    TileOrigin origin) {
  const int panel = int(cluster_rank());
  origin.column += panel * 64;
  load_tile_multicast(map, tile.data + panel * tile.kPanelElements, barrier, origin, 0b11);
}

/// Starts to load this block's half of the rows of 64 columns, into both blocks.
/// @param map with tiles of kRows / 2 rows @param rows in shared memory, kRows of them @param origin of the first row
template <int kRows>
__device__ __forceinline__ void load_rows_for_both(__nv_bfloat16* rows, const TensorMap& map, Barrier& barrier,
                                                   TileOrigin origin) {
  static_assert(kRows % 16 == 0, "the permutation repeats after eight rows");
  const int first = int(cluster_rank()) * (kRows / 2);
  origin.position += first;
  load_tile_multicast(map, rows + first * 64, barrier, origin, 0b11);
}

}  // namespace tutorial::tile
