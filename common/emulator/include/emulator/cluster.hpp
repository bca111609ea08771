#pragma once
/// @file
/// What the blocks of a cluster do together: a barrier for all of their threads, and addresses in each other's shared
/// memory. To be called in kernels only.

#include <source_location>

namespace emulator {

/// The number of this block in its cluster, counted as blocks are: x first, then y, then z.
unsigned cluster_rank();
/// The number of blocks of the cluster; 1 in a launch without clusters.
unsigned cluster_size();

/// Arrives at the barrier of the cluster. A second arrival without a wait in between ends the launch with a report.
void cluster_arrive(std::source_location where);
/// Waits until all threads of the cluster have arrived as often as this one. Ends the launch with a report if this
/// thread has not arrived since its last wait. Stricter than a GPU: a thread that has returned counts as missing.
void cluster_wait(std::source_location where);

/// The address in block `rank` of the cluster that has the same offset as `mine` has in this block's dynamic shared
/// memory. Ends the launch with a report for other addresses and ranks, for a block that has ended, and before the
/// cluster's first barrier, because until then a block may not have started.
void* peer_address(const void* mine, unsigned rank, std::source_location where);

/// The same with the type of the pointer.
template <class T>
T* peer_address(T* mine, unsigned rank, std::source_location where) {
  return static_cast<T*>(peer_address(static_cast<const void*>(mine), rank, where));
}

}  // namespace emulator
