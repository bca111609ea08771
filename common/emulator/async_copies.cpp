#include "async_copies.hpp"

#include <algorithm>

#include "block.hpp"
#include "latencies.hpp"
#include "sanitizer.hpp"

namespace emulator {

void AsyncCopies::commit() {
  copies_.erase(copies_.begin(), copies_.begin() + static_cast<std::ptrdiff_t>(arrived_));
  arrived_ = 0;
  ++groups_;
}

bool AsyncCopies::pop(unsigned pending, AsyncCopy& copy) {
  if (arrived_ == copies_.size() || copies_[arrived_].group + pending >= groups_) return false;
  copy = copies_[arrived_++].copy;
  return true;
}

void AsyncCopies::reset() {
  copies_.clear();
  arrived_ = 0;
  groups_ = 0;
}

void push_async_copy(const AsyncCopy& copy) {
  const sanitizer::Unwatched unwatched;
  Block::current()->thread().async_copies.push(copy);
}

void commit_async_copies(std::source_location where) {
  const sanitizer::Unwatched unwatched;
  Block& block = *Block::current();
  if (block.skips(where)) return;
  KernelThread& thread = block.thread();
  thread.async_copies.commit();
  if (Recorder* recorder = Recorder::active()) {
    thread.copy_clocks.add(thread.clock + latencies::kCopy);
    thread.copy_clocks.commit();
    recorder->note(thread, Recorder::Kind::commit_copies, where, thread.clock);
  }
}

bool pop_async_copy(unsigned pending, AsyncCopy& copy, std::source_location where) {
  const sanitizer::Unwatched unwatched;
  Block& block = *Block::current();
  if (block.skips(where)) return false;
  if (block.is_weaker(where)) ++pending;
  KernelThread& thread = block.thread();
  if (thread.async_copies.pop(pending, copy)) return true;
  if (Recorder* recorder = Recorder::active()) {  // the wait is over
    const std::int64_t begin = thread.clock;
    thread.clock = std::max(thread.clock, thread.copy_clocks.end_of_all_but(pending));
    recorder->note(thread, Recorder::Kind::wait_copies, where, begin, {.value = pending});
  }
  return false;
}

}  // namespace emulator
