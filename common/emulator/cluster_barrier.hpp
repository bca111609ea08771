#pragma once
/// @file
/// The barrier of all threads of a cluster: barrier.cluster.arrive and .wait.

#include <cstdint>
#include <source_location>

#include "hand_over.hpp"
#include "recorder.hpp"

namespace emulator {

class Cluster;
struct KernelThread;

/// The barrier of one cluster. Consecutive phases alternate between two points, as those of a block's barrier do.
class ClusterBarrier {
 public:
  explicit ClusterBarrier(Cluster& cluster) : cluster_(cluster) {}

  /// As at the start of a cluster.
  void reset() {
    phase_ = arrived_ = 0;
    clocks_ = {};
  }
  /// See cluster_arrive().
  void arrive(KernelThread& thread, std::source_location where);
  /// See cluster_wait().
  void wait(KernelThread& thread, std::source_location where);
  /// Whether all threads have arrived at least once.
  bool has_opened() const { return phase_ > 0; }
  /// Threads that have not arrived in the current phase.
  unsigned missing() const;

 private:
  Cluster& cluster_;
  std::uint64_t phase_ = 0;
  unsigned arrived_ = 0;
  HandOver points_[2];
  PhaseClocks clocks_ = {};  ///< of the last arrivals
};

}  // namespace emulator
