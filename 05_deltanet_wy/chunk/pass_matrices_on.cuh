#pragma once
/// @file
/// How T and P come from the third block of a cluster to both blocks that walk, in `three_blocks` with and without
/// gates. A block that pushes T and P of a chunk twice takes longer for it than the chain takes for the chunk. So the
/// third block pushes them to one of the two blocks, in turn, and this block passes them on to the other one.

#include <cuda_runtime.h>

#include "05_deltanet_wy/chunk/cluster_memory.cuh"
#include "common/device/mbarrier.cuh"
#include "common/device/push_shared.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::delta_rule {

/// One thread of block `rank`, 0 or 1, passes on what comes to it first: T and P of every second chunk.
/// @tparam Memory a ClusterMemory in which a third block computes
template <class Memory>
__device__ __forceinline__ void pass_matrices_on(const Memory& memory, int L, int rank) {
  auto& matrices_full = memory.barriers().matrices_full;
  for (int n = rank; n * tile::kChunk < L; n += kWalking) {
    const int slot = n % kGroups;
    matrices_full[slot].wait_cluster(n / kGroups % 2);
    void* bytes = memory.matrices(slot).T.panel.data;
    push_shared(bytes, bytes, Memory::Slot::kBytes, matrices_full[slot], 1 - rank);
  }
}

}  // namespace tutorial::delta_rule
