#include "counters.hpp"

#include <mutex>

#include "hopper_counters.hpp"

namespace emulator {
namespace {

std::mutex counters_mutex;
Counters sums;

}  // namespace

// Not zero: see threadIdx in cluster.cpp.
constinit thread_local Counters block_counters{.blocks = 1};

void add_to_counters(const Counters& more) {
  const std::lock_guard lock(counters_mutex);
  sums.launches += more.launches;
  sums.blocks += more.blocks;
  sums.threads += more.threads;
  sums.barriers += more.barriers;
  sums.warp_barriers += more.warp_barriers;
  sums.warp_collectives += more.warp_collectives;
  sums.atomics += more.atomics;
  sums.register_changes += more.register_changes;
  sums.global_bytes_read += more.global_bytes_read;
  sums.global_bytes_written += more.global_bytes_written;
}

Counters counters() {
  const std::lock_guard lock(counters_mutex);
  return sums;
}

HopperCounters hopper_counters() {
  return {.arrivals = arrival_count, .products = product_count};
}

void reset_hopper_counters() {
  arrival_count = 0;
  product_count = 0;
}

void reset_counters() {
  const std::lock_guard lock(counters_mutex);
  sums = {};
}

}  // namespace emulator
