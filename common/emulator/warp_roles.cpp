#include "warp_roles.hpp"

#include <algorithm>
#include <cstdio>

#include "block.hpp"
#include "emulator/warp.hpp"
#include "emulator/warp_roles.hpp"

namespace emulator {
namespace {

constexpr unsigned kNamedBarriers = 16;

}  // namespace

void Registers::reset(unsigned warps) {
  // Granted in steps of 8 per thread, and 256 at most.
  const unsigned most = kRegisters / (warps * kWarpSize) / 8 * 8;
  of_warp.assign(warps, std::min(most, 256u));
  free = 0;
}

void Block::arrive(unsigned id, unsigned threads, std::source_location where) {
  if (id == 0 || id >= kNamedBarriers) {
    trap("a named barrier has a number between 1 and 15; number 0 is that of __syncthreads()", where);
  }
  if (threads == 0 || threads % kWarpSize != 0) trap("a named barrier is for a multiple of 32 threads", where);
  NamedBarrier& barrier = named_barriers_[id];
  if (barrier.arrived == 0) barrier.threads = threads;
  if (barrier.threads != threads) {
    char text[120];
    std::snprintf(text, sizeof text, "named barrier %u is for %u threads here, and for %u where others have come", id,
                  threads, barrier.threads);
    trap(text, where);
  }
  barrier.points[barrier.parity].release();
  ++barrier.lanes[running_->number / kWarpSize];
  if (++barrier.arrived < threads) return;
  if (std::ranges::any_of(barrier.lanes, [](unsigned lanes) { return lanes % kWarpSize != 0; })) {
    trap("a warp has come to a named barrier with a part of its lanes", where);
  }
  barrier.arrived = 0;
  barrier.lanes.fill(0);
  barrier.parity ^= 1;
  wake(KernelThread::State::at_named_barrier, id);
}

void Block::wait(unsigned id, unsigned threads, std::source_location where) {
  running_->state = KernelThread::State::at_named_barrier;  // before it arrives, because the last one wakes itself, too
  running_->where = where;
  running_->resource = id;
  const unsigned parity = id < kNamedBarriers ? named_barriers_[id].parity : 0;
  arrive(id, threads, where);
  pause();
  named_barriers_[id].points[parity].acquire();
}

void Block::wake(KernelThread::State state, unsigned resource) {
  ready_.push_batch(0, static_cast<unsigned>(threads_.size()), [&](unsigned i) {
    KernelThread& thread = threads_[i];
    if (thread.state != state || thread.resource != resource) return false;
    thread.state = KernelThread::State::ready;
    return true;
  });
}

void Block::change_registers(unsigned count, bool increase, std::source_location where) {
  unsigned counts[kWarpSize];
  exchange(~0u, &count, sizeof count, counts, where);  // all lanes are here
  const unsigned warp = running_->number / kWarpSize;
  const bool is_first = running_->number % kWarpSize == 0;
  unsigned& held = registers_.of_warp[warp];
  if (is_first && (increase ? count < held : count > held)) {
    char text[120];
    std::snprintf(text, sizeof text, "the warp's threads have %u registers, which cannot %s to %u", held,
                  increase ? "increase" : "decrease", count);
    trap(text, where);
  }
  if (is_first && !increase) {
    registers_.free += held - count;
    held = count;
    wake(KernelThread::State::at_registers, 0);
  }
  while (is_first && held < count) {
    if (registers_.free >= count - held) {
      registers_.free -= count - held;
      held = count;
    } else {
      running_->state = KernelThread::State::at_registers;
      running_->where = where;
      running_->resource = 0;
      pause();
    }
  }
  exchange(~0u, &count, sizeof count, counts, where);  // the other lanes wait for the first
}

void Block::check_registers_at_end() {
  for (unsigned warp = 0; warp < registers_.of_warp.size(); ++warp) {
    if (registers_.of_warp[warp] == registers_.of_warp[warp / 4 * 4]) continue;
    fail("the warps of a warpgroup have changed their registers to different numbers", launch_.where,
         threads_[warp * kWarpSize]);
  }
}

void named_barrier_sync(unsigned id, unsigned threads, std::source_location where) {
  Block& block = *Block::current();
  if (!block.skips(where)) block.wait(id, threads, where);
}

void named_barrier_arrive(unsigned id, unsigned threads, std::source_location where) {
  Block& block = *Block::current();
  if (!block.skips(where)) block.arrive(id, threads, where);
}

void change_registers(unsigned registers, bool increase, std::source_location where) {
  Block& block = *Block::current();
  block.require(Feature::warpgroup_products, "setmaxnreg", where);
  block.change_registers(registers, increase, where);
}

}  // namespace emulator
