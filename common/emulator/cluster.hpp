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

  /// How many blocks it has.
  unsigned size() const { return static_cast<unsigned>(blocks_.size()); }
  Block& block(unsigned rank) { return *blocks_[rank]; }
  const Block& block(unsigned rank) const { return *blocks_[rank]; }
  const Stacks& stacks() const { return stacks_; }
  /// Loads into the shared memory of all blocks that are under way.
  std::vector<BulkLoad>& bulk_loads() { return bulk_loads_; }
  /// The block that has ended and whose dynamic shared memory this address lies in; nullptr if there is none.
  const Block* ended_block_at(const void* address) const;

  // What the blocks call: in cluster.cpp,
  /// Makes the next thread that is ready the one that runs; without one it is the scheduler's turn, in run().
  Fiber& next();
  /// Called when a block's last thread has returned. From now on an access to its shared memory is an error.
  void end_block(Block& block);
  /// Ends the launch, as soon as the thread that runs stops, unless something else has gone wrong before.
  void fail(std::string report);
  /// Whether something has gone wrong, so that next() picks no thread any more.
  bool has_failed() const { return !failure_.empty(); }
  // in bulk_copy.cpp,
  /// A number for the choices of EMULATOR_ASYNC=random.
  std::uint64_t next_async_random();
  /// Finishes loads that threads wait for until one of the threads can go on.
  void finish_awaited_loads();
  // in cluster_barrier.cpp,
  /// See cluster_arrive().
  void arrive(KernelThread& thread, std::source_location where);
  /// See cluster_wait().
  void wait(KernelThread& thread, std::source_location where);
  /// Threads that have not arrived in the current phase.
  unsigned missing() const { return static_cast<unsigned>(threads_.size()) - arrived_; }
  // and in peers.cpp.
  /// The barrier at this address, in whichever block it is; nullptr if none has been initialised there.
  MBarrier* find_mbarrier(const Block& asking, const void* address);
  /// See peer_address().
  void* peer_address(KernelThread& thread, const void* mine, unsigned rank, std::source_location where);

 private:
  void prepare(std::uint64_t number);
  /// Control goes to a thread of this block.
  void enter(Block& block);
  /// Looks for loads that blocks leave behind.
  void check_copies_at_end();

  Launch& launch_;
  Stacks& stacks_;
  StaticSharedMemory static_shared_;
  std::vector<KernelThread> threads_;  ///< of all blocks, one block after the other
  ReadyQueue ready_;
  std::vector<std::unique_ptr<Block>> blocks_;  ///< by rank
  Block* entered_ = nullptr;                    ///< that the thread that runs belongs to
  std::vector<BulkLoad> bulk_loads_;
  std::uint64_t async_random_ = 0;
  Fiber scheduler_;      ///< the OS thread, in run()
  std::string failure_;  ///< the report of what went wrong

  // The barrier of the cluster. Consecutive phases alternate between two points, as those of a block's barrier do.
  std::uint64_t phase_ = 0;
  unsigned arrived_ = 0;
  sanitizer::SyncPoint points_[2];
};

}  // namespace emulator
