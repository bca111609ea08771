#include "cluster_barrier.hpp"

#include "cluster.hpp"
#include "emulator/cluster.hpp"

namespace emulator {

void ClusterBarrier::arrive(KernelThread& thread, std::source_location where) {
  if (thread.has_arrived) {
    thread.block->trap("the thread arrives at the cluster's barrier, but has not waited since its last arrival", where);
  }
  thread.has_arrived = true;
  thread.cluster_phase = phase_;
  points_[phase_ % 2].release(where);
  if (++arrived_ < cluster_.thread_count()) return;
  arrived_ = 0;
  ++phase_;
  cluster_.wake(this);
}

void ClusterBarrier::wait(KernelThread& thread, std::source_location where) {
  if (!thread.has_arrived) {
    thread.block->trap("the thread waits at the cluster's barrier, but has not arrived there", where);
  }
  if (thread.cluster_phase == phase_) thread.block->wait({KernelThread::State::at_cluster_barrier, where, this});
  thread.has_arrived = false;
  points_[thread.cluster_phase % 2].acquire(where);
}

unsigned ClusterBarrier::missing() const {
  return cluster_.thread_count() - arrived_;
}

void cluster_arrive(std::source_location where) {
  Block& block = *Block::current();
  block.require(Feature::bulk_copies, "barrier.cluster", where);
  if (!block.skips(where)) block.cluster().barrier().arrive(block.thread(), where);
}

void cluster_wait(std::source_location where) {
  Block& block = *Block::current();
  if (!block.skips(where)) block.cluster().barrier().wait(block.thread(), where);
}

}  // namespace emulator
