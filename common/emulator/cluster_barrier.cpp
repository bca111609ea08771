// The barrier of all threads of a cluster: barrier.cluster.arrive and .wait.

#include "cluster.hpp"
#include "emulator/cluster.hpp"

namespace emulator {

void Cluster::arrive(KernelThread& thread, std::source_location where) {
  if (thread.has_arrived) {
    thread.block->trap("the thread arrives at the cluster's barrier, but has not waited since its last arrival", where);
  }
  thread.has_arrived = true;
  thread.cluster_phase = phase_;
  points_[phase_ % 2].release();
  if (++arrived_ < threads_.size()) return;
  arrived_ = 0;
  ++phase_;
  ready_.push_batch(0, static_cast<unsigned>(threads_.size()), [this](unsigned i) {
    if (threads_[i].state != KernelThread::State::at_cluster_barrier) return false;
    threads_[i].state = KernelThread::State::ready;
    return true;
  });
}

void Cluster::wait(KernelThread& thread, std::source_location where) {
  if (!thread.has_arrived) {
    thread.block->trap("the thread waits at the cluster's barrier, but has not arrived there", where);
  }
  if (thread.cluster_phase == phase_) {
    thread.state = KernelThread::State::at_cluster_barrier;
    thread.where = where;
    thread.block->pause();
  }
  thread.has_arrived = false;
  points_[thread.cluster_phase % 2].acquire();
}

void cluster_arrive(std::source_location where) {
  Block& block = *Block::current();
  block.require(Feature::bulk_copies, "barrier.cluster", where);
  if (!block.skips(where)) block.cluster().arrive(block.thread(), where);
}

void cluster_wait(std::source_location where) {
  Block& block = *Block::current();
  if (!block.skips(where)) block.cluster().wait(block.thread(), where);
}

}  // namespace emulator
