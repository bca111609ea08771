#pragma once
/// @file
/// A block that runs: its threads, its shared memory, and the parts that let its threads wait for each other. Its
/// cluster (cluster.hpp) lets them take turns.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <span>

#include "async_order.hpp"
#include "async_proxy.hpp"
#include "block_barrier.hpp"
#include "device_model.hpp"
#include "emulator/vector_types.hpp"
#include "kernel_thread.hpp"
#include "mbarriers.hpp"
#include "named_barriers.hpp"
#include "race_detector.hpp"
#include "recorder.hpp"
#include "register_pool.hpp"
#include "schedule.hpp"
#include "shared_memory.hpp"
#include "skipped_barrier.hpp"
#include "warpgroups.hpp"
#include "warps.hpp"

namespace emulator {

class Cluster;

/// What all blocks of a launch have in common.
struct Launch {
  dim3 grid;
  dim3 block;
  dim3 cluster;  ///< blocks; a launch without clusters has clusters of one block
  std::size_t shared_bytes;
  std::source_location where;
  DeviceModel device;  ///< that was current at the launch
  const std::function<void()>& body;
  Schedule schedule;
  std::optional<SkippedBarrier> skipped_barrier;
  AsyncOrder async_order;
  bool starts_early;          ///< it need not wait for the launch before
  sanitizer::SyncPoint end;   ///< comes after all that the threads do
  std::uint32_t number;       ///< counted from 1 since the process began
  races::Detector* detector;  ///< of races; nullptr if this launch is not watched
  Recorder* recorder;         ///< of what its warps do; nullptr if this launch is not traced

  unsigned threads_per_block() const { return block.x * block.y * block.z; }
  unsigned blocks_per_cluster() const { return cluster.x * cluster.y * cluster.z; }
  std::uint64_t clusters() const { return std::uint64_t{grid.x} * grid.y * grid.z / blocks_per_cluster(); }
};

/// A block of a cluster. It is used again for later blocks of the launch.
class Block {
 public:
  /// @param rank in the cluster @param threads its part of the cluster's threads
  Block(Cluster& cluster, Launch& launch, unsigned rank, std::span<KernelThread> threads, ReadyQueue& ready);

  /// The block that this OS thread runs; nullptr outside of kernels.
  static Block* current();
  /// The thread of it that runs.
  const KernelThread& thread() const { return *running_; }
  KernelThread& thread() { return *running_; }
  const Launch& launch() const { return launch_; }
  uint3 index() const { return index_; }
  Cluster& cluster() { return cluster_; }
  const Cluster& cluster() const { return cluster_; }
  unsigned rank() const { return rank_; }
  std::span<const KernelThread> threads() const { return threads_; }
  std::span<KernelThread> threads() { return threads_; }
  /// The last one may lack lanes.
  unsigned warp_count() const { return static_cast<unsigned>(threads_.size() + 31) / 32; }
  /// Whether all of its threads have returned.
  bool has_ended() const { return live_ == 0; }
  DynamicSharedMemory& dynamic_shared() { return dynamic_shared_; }
  /// Whether EMULATOR_SKIP_BARRIER names this place.
  bool skips(std::source_location where) const { return has_fault(SkippedBarrier::Fault::skipped, where); }
  /// Whether it makes this place weaker: by one group of copies or products, or by one arrival.
  bool is_weaker(std::source_location where) const { return has_fault(SkippedBarrier::Fault::weaker, where); }
  bool has_fault(SkippedBarrier::Fault fault, std::source_location where) const {
    return launch_.skipped_barrier && launch_.skipped_barrier->fault == fault && launch_.skipped_barrier->is_at(where);
  }

  // Its parts: what its threads do together. Each has reset() and check_at_end(), which for_each_part() calls.
  BlockBarrier& barrier() { return barrier_; }
  Warps& warps() { return warps_; }
  MBarriers& mbarriers() { return mbarriers_; }
  AsyncProxy& async_proxy() { return async_proxy_; }
  NamedBarriers& named_barriers() { return named_barriers_; }
  const NamedBarriers& named_barriers() const { return named_barriers_; }
  RegisterPool& registers() { return registers_; }
  Warpgroups& warpgroups() { return warpgroups_; }

  // What its parts call when threads wait for each other.
  /// From now on the thread that runs waits; it goes on running up to pause(). For a wait that the thread itself may
  /// end, because it is the last to come.
  void begin_wait(const Wait& wait);
  /// Lets the others run until this thread is ready again.
  void pause();
  /// Both: others wake this thread.
  void wait(const Wait& wait);
  /// The threads that wait for this go on.
  void wake(const void* on);
  /// Those of the threads first, first + 1, ... first + count - 1 go on that are chosen.
  template <class Chosen>
  void wake(unsigned first, unsigned count, Chosen is_chosen) {
    ready_.push_batch(first, count, [&](unsigned i) {
      if (!is_chosen(i)) return false;
      make_ready(threads_[i]);
      return true;
    });
  }
  /// Lets the others run first.
  void yield();

  /// See emulator::require().
  void require(Feature feature, const char* instruction, std::source_location where);
  /// See emulator::trap().
  [[noreturn]] void trap(const char* what, std::source_location where);
  /// Ends the launch, as soon as the thread that runs stops, because of what `thread` has done.
  void fail(const char* what, std::source_location where, const KernelThread& thread);

 private:
  friend class Cluster;

  /// The block that this OS thread runs from now on.
  static void set_current(Block* block);
  static void make_ready(KernelThread& thread) {
    thread.state = KernelThread::State::ready;
    thread.on = nullptr;
  }
  template <class Visit>
  void for_each_part(Visit visit) {
    visit(barrier_), visit(warps_), visit(mbarriers_), visit(async_proxy_), visit(named_barriers_);
    visit(registers_), visit(warpgroups_);
  }
  /// Everything is as at the start of the block of this index. @param index within the grid
  void prepare(uint3 index);
  /// What one thread does from its first turn on.
  void run_thread();

  Cluster& cluster_;
  Launch& launch_;
  unsigned rank_;
  DynamicSharedMemory dynamic_shared_;
  uint3 index_{};
  std::span<KernelThread> threads_;
  BlockReadyQueue ready_;
  sanitizer::SyncPoint begin_;  ///< comes before all that the threads do
  KernelThread* running_ = nullptr;
  unsigned live_ = 0;  ///< threads that have not returned

  BlockBarrier barrier_{*this};
  Warps warps_{*this};
  MBarriers mbarriers_{*this};
  AsyncProxy async_proxy_{*this};
  NamedBarriers named_barriers_{*this};
  RegisterPool registers_{*this};
  Warpgroups warpgroups_{*this};
};

}  // namespace emulator
