#pragma once
/// @file
/// One thread of a block, and where it stands.

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <vector>

#include "async_copies.hpp"
#include "async_proxy.hpp"
#include "bulk_copies.hpp"
#include "emulator/vector_types.hpp"
#include "fiber.hpp"
#include "recorder.hpp"
#include "warp_function.hpp"
#include "warpgroups.hpp"

namespace emulator {

class Block;

/// One thread of a block. What a switch needs is in one line of the cache.
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
  const void* on = nullptr;    ///< what it waits for: see Wait
  std::source_location where;  ///< the barrier or collective that it waits in

  // What it brings to the collective that it waits in.
  unsigned mask = 0;
  const void* mine = nullptr;
  void* all = nullptr;
  std::size_t size = 0;
  WarpFunction* together = nullptr;  ///< computes with what is at `all`; nullptr: what is at `mine` is handed out

  std::uint32_t barrier_line = 0;  ///< of the last barrier of its block or warp that it has passed
  bool is_warps_barrier = false;   ///< that one was a warp's
  AsyncCopies async_copies;
  BulkStores bulk_stores;
  AsyncProxyWrites async_proxy_writes;
  ThreadProducts products;

  // For a trace (recorder.hpp).
  std::int64_t clock = 0;  ///< logical
  GroupClocks copy_clocks;
  GroupClocks store_clocks;

  // At the barrier of the cluster.
  bool has_arrived = false;          ///< and has not waited since
  std::uint64_t cluster_phase = 0;   ///< that it has arrived at
  std::source_location peer_shared;  ///< where it has last asked for an address in another block

  /// As at the start of a block.
  void reset();
};

/// What a thread waits in.
struct Wait {
  KernelThread::State state;
  std::source_location where;
  const void* on;  ///< the barrier, pool or warp: wake(on) lets the threads go on that wait for it
};

}  // namespace emulator
