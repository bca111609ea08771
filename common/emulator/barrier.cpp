#include "emulator/barrier.hpp"

#include <algorithm>

#include "block.hpp"
#include "emulator/counters.hpp"
#include "latencies.hpp"
#include "place.hpp"

namespace emulator {

void BlockBarrier::reset() {
  arrived_ = 0;
  holds_[0] = holds_[1] = 0;
  clocks_ = {};
  opened_ = 0;
}

int BlockBarrier::wait(bool predicate, std::source_location where) {
  if (block_.skips(where)) return predicate;
  if (arrived_ == 0) {
    first_arrival_ = where;
    same_place_ = true;
  }
  same_place_ = same_place_ && is_same_place(where, first_arrival_);
  block_.begin_wait({KernelThread::State::at_barrier, where, this});

  const unsigned parity = parity_;
  holds_[parity] += predicate;
  points_[parity].release();
  const std::int64_t phase = opened_;
  clocks_[parity] = std::max(clocks_[parity], block_.thread().clock);
  // Threads that met at different lines stay where they are; so the block gets stuck, which run() reports.
  if (++arrived_ == block_.threads().size() && same_place_) {
    arrived_ = 0;
    parity_ ^= 1;
    holds_[parity_] = 0;
    clocks_[parity_] = 0;
    ++opened_;
    ++block_counters.barriers;
    if (races::Detector* detector = races::active()) detector->meet_block(block_, where);
    block_.wake(this);
  }
  block_.pause();
  points_[parity].acquire();
  if (Recorder* recorder = Recorder::active()) {
    KernelThread& thread = block_.thread();
    const std::int64_t begin = thread.clock;
    thread.clock = std::max(thread.clock, clocks_[parity]) + latencies::kBlockBarrier;
    recorder->note(thread, Recorder::Kind::block_wait, where, begin, {.phase = phase});
  }
  block_.thread().barrier_line = where.line();
  block_.thread().is_warps_barrier = false;
  return holds_[parity];
}

}  // namespace emulator

[[gnu::flatten]] void __syncthreads(std::source_location where) {
  emulator::Block::current()->barrier().wait(false, where);
}

int __syncthreads_count(int predicate, std::source_location where) {
  return emulator::Block::current()->barrier().wait(predicate != 0, where);
}

int __syncthreads_and(int predicate, std::source_location where) {
  return emulator::Block::current()->barrier().wait(predicate == 0, where) == 0;
}

int __syncthreads_or(int predicate, std::source_location where) {
  return emulator::Block::current()->barrier().wait(predicate != 0, where) != 0;
}

void __nanosleep(unsigned) {
  emulator::Block::current()->yield();
}
