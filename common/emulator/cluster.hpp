#pragma once
/// @file
/// Blocks that run together: the threads of a cluster take turns on one OS thread. A launch without clusters has
/// clusters of one block.

#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "block.hpp"
#include "bulk_copies.hpp"
#include "cluster_barrier.hpp"
#include "fiber.hpp"
#include "schedule.hpp"
#include "shared_memory.hpp"
#include "stacks.hpp"

namespace emulator {

/// Runs clusters of one launch, one after the other.
class Cluster {
 public:
  /// Called on the OS thread that will call run().
  Cluster(Launch& launch, Stacks& stacks);

  /// Runs one cluster to its end. Returns the report of what went wrong, if anything has.
  std::string run(std::uint64_t number);

  const Launch& launch() const { return launch_; }
  /// How many blocks it has.
  unsigned size() const { return static_cast<unsigned>(blocks_.size()); }
  unsigned thread_count() const { return static_cast<unsigned>(threads_.size()); }
  Block& block(unsigned rank) { return *blocks_[rank]; }
  const Block& block(unsigned rank) const { return *blocks_[rank]; }
  const Stacks& stacks() const { return stacks_; }
  ClusterBarrier& barrier() { return barrier_; }
  const ClusterBarrier& barrier() const { return barrier_; }
  /// Those into the shared memory of all blocks.
  BulkLoads& loads() { return loads_; }
  /// The block that has ended and whose dynamic shared memory this address lies in; nullptr if there is none.
  const Block* ended_block_at(const void* address) const;

  /// Lets others run until it is this fiber's turn again.
  void pause(Fiber& self);
  /// The threads of all blocks that wait for this go on.
  void wake(const void* on);
  /// How many threads can run.
  unsigned ready_count() const { return ready_.size(); }
  /// Ends the launch, as soon as the thread that runs stops, unless something else has gone wrong before.
  void fail(std::string report);
  /// Whether something has gone wrong, so that pause() does not return any more.
  bool has_failed() const { return !failure_.empty(); }

  // In peers.cpp:
  /// The barrier at this address, in whichever block it is; nullptr if none has been initialised there.
  MBarrier* find_mbarrier(const Block& asking, const void* address);
  /// See peer_address().
  void* peer_address(KernelThread& thread, const void* mine, unsigned rank, std::source_location where);

 private:
  /// What the fiber of a thread runs.
  static void run_thread(void* thread);
  void prepare(std::uint64_t number);
  /// Control goes to a thread of this block.
  void enter(Block& block);
  /// Makes the next thread that is ready the one that runs; without one it is the scheduler's turn, in run().
  Fiber& next();
  /// Called when a block's last thread has returned. From now on an access to its shared memory is an error.
  void end_block(Block& block);

  Launch& launch_;
  Stacks& stacks_;
  StaticSharedMemory static_shared_;
  std::vector<KernelThread> threads_;  ///< of all blocks, one block after the other
  ReadyQueue ready_;
  std::vector<std::unique_ptr<Block>> blocks_;  ///< by rank
  Block* entered_ = nullptr;                    ///< that the thread that runs belongs to
  ClusterBarrier barrier_{*this};
  BulkLoads loads_{*this};
  Fiber scheduler_;      ///< the OS thread, in run()
  std::string failure_;  ///< the report of what went wrong
};

}  // namespace emulator
