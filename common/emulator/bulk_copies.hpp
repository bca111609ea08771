#pragma once
/// @file
/// Bulk copies that are under way.

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <vector>

#include "emulator/bulk_copy.hpp"
#include "mbarriers.hpp"

namespace emulator {

class Block;
class Cluster;
struct KernelThread;

/// A load that has been issued, or a push. What a load will write is read when it is issued. A push reads its source at
/// the end.
struct BulkLoad {
  void* shared;  ///< where it goes, in the block of the barrier
  std::vector<std::byte> tile;
  const void* source = nullptr;   ///< of a push
  Block* source_block = nullptr;  ///< of a push
  MBarrier* barrier;
  std::uint64_t phase;   ///< of the barrier, when the load was issued: the phase that expects its bytes
  KernelThread* thread;  ///< that has issued it
  std::source_location where;
  std::int64_t arrival = 0;  ///< on the logical clock of a trace
  bool is_finished = false;
};

/// A store that has been issued. It reads shared memory and writes device memory when it is waited for, or, if early,
/// it has done both when it was issued.
struct BulkStore {
  TileMap map;
  TileStart start;
  const void* shared;
  std::vector<std::byte> tile;  ///< what it has read
  unsigned group;               ///< its number, or that of the next group to be closed
  bool is_early;
  std::source_location where;
  bool is_waited_for = false;  ///< so it has read shared memory
  bool is_written = false;

  /// Writes to device memory what it has read.
  void write();
};

/// A thread's stores in the order of issue.
class BulkStores {
 public:
  /// Adds it as the newest. Its group is set here.
  void push(BulkStore store);
  /// Closes a group, which may be empty.
  void commit() { ++groups_; }
  /// See next_bulk_store().
  bool next_unread(unsigned pending, BulkStoreSource& source);
  /// See write_bulk_stores().
  void write(unsigned pending);
  /// Writes what has been read: no wait is needed for that before the thread ends. Returns a store that was not waited
  /// for at all, nullptr if there is none.
  const BulkStore* finish();
  /// Forgets all of them.
  void reset();

 private:
  bool belongs_to_older(const BulkStore& store, unsigned pending) const { return store.group + pending < groups_; }

  std::vector<BulkStore> stores_;
  unsigned groups_ = 0;  ///< closed so far
};

/// The loads and pushes of a cluster that are under way.
class BulkLoads {
 public:
  explicit BulkLoads(Cluster& cluster) : cluster_(cluster) {}

  /// As at the start of a cluster. @param number of the cluster
  void reset(std::uint64_t number);
  /// Looks for loads that blocks leave behind.
  void check_at_end();
  /// Looks for pushes that have not read the shared memory of a block that ends.
  void check_at_end_of(const Block& block);
  bool empty() const { return loads_.empty(); }
  /// Starts a load into the block of its barrier.
  void issue(BulkLoad load);
  /// Finishes loads that threads wait for until one of the threads can go on.
  void finish_awaited();
  /// A load that the current phase of this barrier counts; nullptr if there is none.
  const BulkLoad* find(const MBarrier& barrier) const;
  /// Whether a copy or a product that is issued now happens at once.
  bool next_is_early();

 private:
  /// Writes the tile, and lets the barrier count its bytes.
  void finish(BulkLoad& load);
  /// Whether a thread waits for this load and for nothing else.
  static bool is_awaited(const BulkLoad& load);

  Cluster& cluster_;
  std::vector<BulkLoad> loads_;
  std::uint64_t random_ = 0;  ///< for the choices of EMULATOR_ASYNC=random
};

}  // namespace emulator
