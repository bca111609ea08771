#include "named_barriers.hpp"

#include <algorithm>
#include <cstdio>

#include "block.hpp"
#include "emulator/warp.hpp"
#include "emulator/warp_roles.hpp"
#include "latencies.hpp"

namespace emulator {

void NamedBarriers::reset() {
  for (NamedBarrier& barrier : barriers_) {
    barrier.threads = barrier.arrived = barrier.parity = 0;
    barrier.clocks = {};
    barrier.opened = 0;
    barrier.lanes.fill(0);
  }
}

NamedBarrier& NamedBarriers::usable(unsigned id, unsigned threads, std::source_location where) {
  if (id == 0 || id >= barriers_.size()) {
    block_.trap("a named barrier has a number between 1 and 15; number 0 is that of __syncthreads()", where);
  }
  if (threads == 0 || threads % kWarpSize != 0) block_.trap("a named barrier is for a multiple of 32 threads", where);
  NamedBarrier& barrier = barriers_[id];
  if (barrier.arrived == 0) barrier.threads = threads;
  if (barrier.threads != threads) {
    char text[120];
    std::snprintf(text, sizeof text, "named barrier %u is for %u threads here, and for %u where others have come", id,
                  threads, barrier.threads);
    block_.trap(text, where);
  }
  return barrier;
}

void NamedBarriers::arrive(NamedBarrier& barrier, std::source_location where) {
  barrier.points[barrier.parity].release(where);
  std::int64_t& last = barrier.clocks[barrier.parity];
  last = std::max(last, block_.thread().clock);
  ++barrier.lanes[block_.thread().number / kWarpSize];
  if (++barrier.arrived < barrier.threads) return;
  if (std::ranges::any_of(barrier.lanes, [](unsigned lanes) { return lanes % kWarpSize != 0; })) {
    block_.trap("a warp has come to a named barrier with a part of its lanes", where);
  }
  barrier.arrived = 0;
  barrier.lanes.fill(0);
  barrier.parity ^= 1;
  barrier.clocks[barrier.parity] = 0;
  ++barrier.opened;
  block_.wake(&barrier);
}

void NamedBarriers::arrive(unsigned id, unsigned threads, std::source_location where) {
  NamedBarrier& barrier = usable(id, threads, where);
  if (Recorder* recorder = Recorder::active()) {
    KernelThread& thread = block_.thread();
    recorder->note(thread, Recorder::Kind::named_arrive, where, thread.clock,
                   {.number = id, .phase = barrier.opened, .value = threads});
  }
  arrive(barrier, where);
}

void NamedBarriers::wait(unsigned id, unsigned threads, std::source_location where) {
  NamedBarrier& barrier = usable(id, threads, where);
  const unsigned parity = barrier.parity;
  const std::int64_t phase = barrier.opened;
  // Before it arrives, because the last one wakes itself, too.
  block_.begin_wait({KernelThread::State::at_named_barrier, where, &barrier});
  arrive(barrier, where);
  block_.pause();
  barrier.points[parity].acquire(where);
  if (Recorder* recorder = Recorder::active()) {
    KernelThread& thread = block_.thread();
    const std::int64_t begin = thread.clock;
    thread.clock = std::max(thread.clock, barrier.clocks[parity]) + latencies::kWarpgroupBarrier;
    recorder->note(thread, Recorder::Kind::named_wait, where, begin, {.number = id, .phase = phase, .value = threads});
  }
}

[[gnu::flatten]] void named_barrier_sync(unsigned id, unsigned threads, std::source_location where) {
  Block& block = *Block::current();
  if (!block.skips(where)) block.named_barriers().wait(id, threads, where);
}

void named_barrier_arrive(unsigned id, unsigned threads, std::source_location where) {
  Block& block = *Block::current();
  if (!block.skips(where)) block.named_barriers().arrive(id, threads, where);
}

}  // namespace emulator
