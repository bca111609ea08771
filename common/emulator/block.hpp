#pragma once
/// @file
/// A block that runs: its threads, its shared memory and its barriers. Its cluster (cluster.hpp) lets them take turns.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include "async_copies.hpp"
#include "async_order.hpp"
#include "bulk_copies.hpp"
#include "device_model.hpp"
#include "emulator/vector_types.hpp"
#include "fiber.hpp"
#include "mbarriers.hpp"
#include "schedule.hpp"
#include "shared_memory.hpp"
#include "skipped_barrier.hpp"
#include "stacks.hpp"
#include "warp_roles.hpp"
#include "warpgroup.hpp"

namespace emulator {

class Block;
class Cluster;
struct KernelThread;

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
  sanitizer::SyncPoint end;  ///< comes after all that the threads do
  std::uint32_t number;      ///< counted from 1 since the process began

  unsigned threads_per_block() const { return block.x * block.y * block.z; }
  unsigned blocks_per_cluster() const { return cluster.x * cluster.y * cluster.z; }
  std::uint64_t clusters() const { return std::uint64_t{grid.x} * grid.y * grid.z / blocks_per_cluster(); }
};

/// A write to shared memory that bulk copies and products do not see before its thread's next fence.
struct AsyncProxyWrite {
  void* address;
  std::size_t bytes;
  std::byte data[16];
};

/// The last time that a thread has read some 16 bytes of shared memory by itself, not by a copy.
struct SharedRead {
  const KernelThread* reader = nullptr;  ///< nullptr if none has
  std::uint32_t fences = 0;              ///< of the block before it
  std::source_location where;
};
inline constexpr std::size_t kSharedReadBytes = 16;  ///< that a SharedRead stands for

/// One thread of a block, and where it stands. What a switch needs is in one line of the cache.
struct alignas(64) KernelThread {
  enum class State {
    ready,
    at_barrier,
    at_cluster_barrier,
    at_mbarrier,
    at_named_barrier,
    at_registers,
    in_collective,
    returned
  };

  uint3 index{};
  unsigned number = 0;     ///< x first, then y, then z, as the hardware counts
  Block* block = nullptr;  ///< that it belongs to
  Fiber fiber;
  State state = State::ready;
  std::source_location where;        ///< the barrier or collective that it waits in
  std::uint32_t block_barriers = 0;  ///< that it has passed
  std::uint32_t warp_barriers = 0;   ///< calls of __syncwarp() that it has passed
  std::uint32_t barrier_line = 0;    ///< of the last of both
  AsyncCopies async_copies;
  BulkStores bulk_stores;
  std::vector<AsyncProxyWrite> async_proxy_writes;
  std::uint32_t last_fence = 0;        ///< of the async proxy: the block's how manieth; 0 if none
  const MBarrier* mbarrier = nullptr;  ///< that it waits for, in the state at_mbarrier

  // At the barrier of the cluster.
  bool has_arrived = false;          ///< and has not waited since
  std::uint64_t cluster_phase = 0;   ///< that it has arrived at
  std::source_location peer_shared;  ///< where it has last asked for an address in another block

  unsigned resource = 0;  ///< the number of the barrier that it waits for, in the state at_named_barrier
  ThreadProducts products;

  // What it brings to the collective that it waits in.
  unsigned mask = 0;
  const void* mine = nullptr;
  void* all = nullptr;
  std::size_t size = 0;
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
  /// Whether all of its threads have returned.
  bool has_ended() const { return live_ == 0; }
  DynamicSharedMemory& dynamic_shared() { return dynamic_shared_; }
  AsyncCopies& async_copies() { return running_->async_copies; }
  BulkStores& bulk_stores() { return running_->bulk_stores; }
  std::vector<AsyncProxyWrite>& async_proxy_writes() { return running_->async_proxy_writes; }
  MBarriers& mbarriers() { return mbarriers_; }
  /// Whether EMULATOR_SKIP_BARRIER names this place.
  bool skips(std::source_location where) const {
    return launch_.skipped_barrier && launch_.skipped_barrier->is_at(where);
  }

  // What the threads call: in barrier.cpp,
  int barrier(bool predicate, std::source_location where);  ///< returns for how many threads the predicate holds
  /// Lets the others run first.
  void yield();
  // in warp.cpp,
  /// See warp_exchange().
  void exchange(unsigned mask, const void* mine, std::size_t size, void* all, std::source_location where);
  /// See __syncwarp().
  void sync_warp(unsigned mask, std::source_location where);
  // in mbarrier.cpp,
  /// The barrier at this address. Ends the launch with a report if it cannot be used. @param mark what its bytes hold
  MBarrier& usable_mbarrier(const std::uint64_t* address, std::uint64_t mark, std::source_location where);
  /// See mbarrier_arrive().
  void arrive(MBarrier& barrier, unsigned bytes, std::source_location where);
  /// See mbarrier_wait() and mbarrier_wait_cluster().
  void wait(MBarrier& barrier, unsigned parity, bool of_cluster, std::source_location where);
  // in bulk_copy.cpp,
  /// Starts a load into this block or another one of the cluster: the one of its barrier.
  void issue_load(BulkLoad load);
  /// Ends the launch with a report if a copy that is issued now may be faster than a thread's read. @param barrier of the
  /// block to which the copy goes
  void check_reads_before(const MBarrier& barrier, const void* address, std::size_t bytes, std::source_location where);
  /// Whether a copy or a product that is issued now happens at once.
  bool next_copy_is_early();
  // in async_proxy.cpp,
  /// Reads shared memory as bulk copies see it. Static arrays have no image and are read themselves.
  void read_async_image(const void* address, std::byte* data, std::size_t bytes);
  /// Writes the image alone.
  void write_async_image(const void* address, const void* data, std::size_t bytes);
  /// Whether bulk copies see there what threads do.
  bool is_fenced(const void* address, std::size_t bytes);
  /// See emulator::note_shared_read().
  void note_shared_read(const void* address, std::source_location where);
  /// A read of these bytes after which neither its thread nor `writer` has called fence_async_proxy(); nullptr if there
  /// is none.
  const SharedRead* unfenced_read(const void* address, std::size_t bytes, const KernelThread& writer);
  /// The thread that runs has called fence_async_proxy().
  void count_fence() { running_->last_fence = ++fences_; }
  // in warp_roles.cpp,
  /// See named_barrier_arrive().
  void arrive(unsigned id, unsigned threads, std::source_location where);
  /// See named_barrier_sync().
  void wait(unsigned id, unsigned threads, std::source_location where);
  /// See emulator::change_registers().
  void change_registers(unsigned count, bool increase, std::source_location where);
  const NamedBarrier& named_barrier(unsigned id) const { return named_barriers_[id]; }
  const Registers& registers() const { return registers_; }
  // in warpgroup.cpp,
  /// See emulator::meet_at_wgmma().
  void call_warpgroup(const WgmmaCall& call, std::source_location where);
  /// See awaited_wgmma().
  bool find_awaited_product(unsigned i, unsigned pending, WgmmaProduct& product) const;
  // and in block.cpp.
  /// See emulator::require().
  void require(Feature feature, const char* instruction, std::source_location where);
  /// See emulator::trap().
  [[noreturn]] void trap(const char* what, std::source_location where);

 private:
  friend class Cluster;

  struct Warp {
    unsigned existing = 0;  ///< a bit for each lane that the block has
    unsigned waiting = 0;   ///< that waits in a collective
    unsigned parity = 0;    ///< for each lowest lane of a mask, which of its points is next
    /// Of __syncwarp, by the lowest lane of the mask; two, as for the block's barrier.
    sanitizer::SyncPoint points[32][2];
    WarpProducts products;
  };

  static void run_thread(void* block);
  /// Everything is as at the start of the block of this index. @param index within the grid
  void prepare(uint3 index);
  /// Lets the others run until this thread is ready again.
  void pause();
  void wake_all();
  /// Whether the lanes of the warp that starts at thread `first` all wait in the same collective as `one`, one of them.
  bool agree(const KernelThread& one, unsigned first, unsigned lanes) const;
  /// Hands out what the lanes brought.
  void deliver(unsigned first, unsigned lanes);
  /// Begins the next phase, and wakes those that wait for this one, once nothing is missing.
  void end_phase_if_complete(MBarrier& barrier);
  /// The place in the image that stands for this part of dynamic shared memory; nullptr for other memory.
  std::byte* async_image(const void* address, std::size_t bytes);
  /// What is known of reads from this address on; nullptr for memory of which nothing is noted.
  SharedRead* shared_reads(const void* address, std::size_t bytes);
  /// Writes the tile, and lets the barrier count its bytes.
  void finish_load(BulkLoad& load);
  /// Whether a thread waits for this load and for nothing else.
  bool is_awaited(const BulkLoad& load) const;
  /// Finishes the stores of the thread that ends.
  void finish_stores();
  /// The threads in this state that wait for this resource go on.
  void wake(KernelThread::State state, unsigned resource);
  /// Looks for warpgroups whose warps differ.
  void check_registers_at_end();
  /// What the first lane that goes on does for its warp: it makes the warp's call.
  void make_call(unsigned warp, const WgmmaCall& call, std::source_location where);
  /// That is: it starts a product,
  void issue_product(unsigned warp, std::source_location where);
  /// makes sure that its factors lie in shared memory,
  bool has_its_factors(const WgmmaProduct& product) const;
  /// computes the warp's rows of it, unless that is done,
  void multiply_warp(unsigned warp, ProductUnderWay& under_way);
  /// and gives the lanes their sums.
  void wait_for_products(unsigned warp, unsigned pending, std::source_location where);
  /// Looks for products that the block leaves behind, and for warps that lack some calls of their warpgroup.
  void check_products_at_end();
  /// Ends the launch, as soon as the thread that runs stops, because of what `thread` has done.
  void fail(const char* what, std::source_location where, const KernelThread& thread);

  Cluster& cluster_;
  Launch& launch_;
  unsigned rank_;
  DynamicSharedMemory dynamic_shared_;
  uint3 index_{};
  std::span<KernelThread> threads_;
  std::vector<Warp> warps_;
  std::vector<WarpgroupCalls> warpgroups_;
  MBarriers mbarriers_;
  NamedBarrier named_barriers_[16];
  Registers registers_;
  std::vector<std::byte> async_image_;    ///< dynamic shared memory as bulk copies see it; empty until it is needed
  std::vector<SharedRead> shared_reads_;  ///< of dynamic shared memory; empty until a bulk load writes there
  std::uint32_t fences_ = 0;              ///< calls of fence_async_proxy()
  BlockReadyQueue ready_;
  sanitizer::SyncPoint begin_;  ///< comes before all that the threads do
  KernelThread* running_ = nullptr;
  unsigned live_ = 0;  ///< threads that have not returned

  // The barrier of the block. Consecutive ones alternate between two sets, because the first threads may come to the
  // next one before the last have left this one.
  unsigned arrived_ = 0;
  std::source_location first_arrival_;
  bool same_place_ = true;  ///< as the first
  unsigned parity_ = 0;
  int holds_[2] = {};  ///< threads whose predicate holds
  sanitizer::SyncPoint points_[2];
};

}  // namespace emulator
