#include "cluster_barrier.hpp"

#include <algorithm>

#include "cluster.hpp"
#include "emulator/cluster.hpp"
#include "latencies.hpp"

namespace emulator {

void ClusterBarrier::arrive(KernelThread& thread, std::source_location where) {
  if (thread.has_arrived) {
    thread.block->trap("the thread arrives at the cluster's barrier, but has not waited since its last arrival", where);
  }
  thread.has_arrived = true;
  thread.cluster_phase = phase_;
  points_[phase_ % 2].release(where);
  if (Recorder* recorder = Recorder::active()) {
    recorder->note(thread, Recorder::Kind::cluster_arrive, where, thread.clock,
                   {.phase = static_cast<std::int64_t>(phase_)});
  }
  clocks_[phase_ % 2] = std::max(clocks_[phase_ % 2], thread.clock);
  if (++arrived_ < cluster_.thread_count()) return;
  arrived_ = 0;
  ++phase_;
  clocks_[phase_ % 2] = 0;
  cluster_.wake(this);
}

void ClusterBarrier::wait(KernelThread& thread, std::source_location where) {
  if (!thread.has_arrived) {
    thread.block->trap("the thread waits at the cluster's barrier, but has not arrived there", where);
  }
  if (thread.cluster_phase == phase_) thread.block->wait({KernelThread::State::at_cluster_barrier, where, this});
  thread.has_arrived = false;
  points_[thread.cluster_phase % 2].acquire(where);
  if (Recorder* recorder = Recorder::active()) {
    const std::int64_t begin = thread.clock;
    thread.clock = std::max(thread.clock, clocks_[thread.cluster_phase % 2] + latencies::kClusterBarrier);
    recorder->note(thread, Recorder::Kind::cluster_wait, where, begin,
                   {.phase = static_cast<std::int64_t>(thread.cluster_phase)});
  }
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
