// How the threads of a block reach the shared memory of another block of their cluster.

#include <cstdio>

#include "cluster.hpp"
#include "emulator/cluster.hpp"

namespace emulator {

MBarrier* Cluster::find_mbarrier(const Block& asking, const void* address) {
  if (MBarrier* barrier = blocks_[asking.rank()]->mbarriers().find(address)) return barrier;
  for (const auto& block : blocks_) {
    if (MBarrier* barrier = block->mbarriers().find(address)) return barrier;
  }
  return nullptr;
}

void* Cluster::peer_address(KernelThread& thread, const void* mine, unsigned rank, std::source_location where) {
  Block& self = *thread.block;
  if (rank >= size()) {
    char text[80];
    std::snprintf(text, sizeof text, "the cluster has no block of rank %u: it has %u", rank, size());
    self.trap(text, where);
  }
  if (rank == self.rank()) return const_cast<void*>(mine);
  Block& peer = *blocks_[rank];
  if (!self.dynamic_shared().contains(mine, 1)) {
    self.trap("the address is not one in this block's dynamic shared memory, which alone has its like in other blocks",
              where);
  }
  if (!barrier_.has_opened()) {
    self.trap("a block reaches into another one before the cluster's first barrier: that one may not have started",
              where);
  }
  if (peer.has_ended()) {
    self.trap("a block reaches into another one that has ended: there is no shared memory any more", where);
  }
  thread.peer_shared = where;
  const auto offset = static_cast<const char*>(mine) - static_cast<const char*>(self.dynamic_shared().data());
  return static_cast<char*>(peer.dynamic_shared().data()) + offset;
}

unsigned cluster_rank() {
  return Block::current()->rank();
}

unsigned cluster_size() {
  return Block::current()->cluster().size();
}

void* peer_address(const void* mine, unsigned rank, std::source_location where) {
  Block& block = *Block::current();
  return block.cluster().peer_address(block.thread(), mine, rank, where);
}

}  // namespace emulator
