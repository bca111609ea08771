#include "async_copies.hpp"

#include "block.hpp"
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
  if (!block.skips(where)) block.thread().async_copies.commit();
}

bool pop_async_copy(unsigned pending, AsyncCopy& copy, std::source_location where) {
  const sanitizer::Unwatched unwatched;
  Block& block = *Block::current();
  return !block.skips(where) && block.thread().async_copies.pop(pending, copy);
}

}  // namespace emulator
