#include "emulator/barrier.hpp"

#include "cluster.hpp"
#include "emulator/counters.hpp"
#include "place.hpp"

namespace emulator {

int Block::barrier(bool predicate, std::source_location where) {
  if (skips(where)) return predicate;
  if (arrived_ == 0) {
    first_arrival_ = where;
    same_place_ = true;
  }
  same_place_ = same_place_ && is_same_place(where, first_arrival_);
  running_->state = KernelThread::State::at_barrier;
  running_->where = where;

  const unsigned parity = parity_;
  holds_[parity] += predicate;
  points_[parity].release();
  // Threads that met at different lines stay where they are; so the block gets stuck, which run() reports.
  if (++arrived_ == threads_.size() && same_place_) {
    arrived_ = 0;
    parity_ ^= 1;
    holds_[parity_] = 0;
    ++block_counters.barriers;
    wake_all();
  }
  pause();
  points_[parity].acquire();
  ++running_->block_barriers;
  running_->barrier_line = where.line();
  return holds_[parity];
}

void Block::yield() {
  // While threads look again and again, the block never runs out of threads that can go on.
  if (!cluster_.bulk_loads().empty()) cluster_.finish_awaited_loads();
  ready_.push(running_->number);
  pause();
}

}  // namespace emulator

void __syncthreads(std::source_location where) {
  emulator::Block::current()->barrier(false, where);
}

int __syncthreads_count(int predicate, std::source_location where) {
  return emulator::Block::current()->barrier(predicate != 0, where);
}

int __syncthreads_and(int predicate, std::source_location where) {
  emulator::Block& block = *emulator::Block::current();
  return block.barrier(predicate == 0, where) == 0;
}

int __syncthreads_or(int predicate, std::source_location where) {
  return emulator::Block::current()->barrier(predicate != 0, where) != 0;
}

void __nanosleep(unsigned) {
  emulator::Block::current()->yield();
}
