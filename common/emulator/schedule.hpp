#pragma once
/// @file
/// Which thread of a cluster runs next, and which cluster.

#include <cstdint>
#include <string>
#include <vector>

namespace emulator {

/// The order that EMULATOR_SCHEDULE or set_schedule() asks for.
struct Schedule {
  /// Mixed: each launch has one of the others, drawn from the seed and the number of the launch.
  enum class Order { forward, reverse, warps, warps_reverse, random, mixed };

  Order order = Order::forward;
  std::uint64_t seed = 0;

  /// From the text that set_schedule() takes. @throws std::invalid_argument for any other
  static Schedule parse(const std::string& text);
  /// The one for a launch: what was asked for, or one of the five that `mixed` draws from. @throws
  /// std::invalid_argument
  static Schedule next();

  /// The cluster that is started as the i-th of `count`.
  std::uint64_t cluster(std::uint64_t i, std::uint64_t count) const;
};

/// The threads of a cluster that can run. Forward and reverse: first in, first out, with each batch that becomes ready
/// at once in ascending or descending order; so all warps advance together. Warps and its reverse: the batch that
/// became ready last is first, so a warp gets as far as it can before the next one moves. Random: any of them.
class ReadyQueue {
 public:
  /// Empty. @param capacity threads of a cluster
  ReadyQueue(const Schedule& schedule, unsigned capacity);

  /// Forgets all threads. @param cluster a random order is each cluster's own
  void restart(std::uint64_t cluster);
  bool empty() const { return size_ == 0; }
  unsigned size() const { return size_; }
  /// One thread that lets all the others run first.
  void push(std::uint16_t thread);
  /// The threads first, first + 1, ... first + count - 1, as far as `wanted(thread)` holds, in the schedule's order.
  template <class Wanted>
  void push_batch(unsigned first, unsigned count, Wanted wanted) {
    for (unsigned i = 0; i < count; ++i) {
      // What is taken from the end is put there the other way round.
      const unsigned thread = descending_ != last_in_first_out_ ? first + count - 1 - i : first + i;
      if (wanted(thread)) threads_[place(size_++)] = static_cast<std::uint16_t>(thread);
    }
  }
  /// Takes the thread that is next; the queue is not empty.
  std::uint16_t pop();

 private:
  /// Where the i-th thread of the queue stands in the ring.
  unsigned place(unsigned i) const {
    const unsigned end = first_ + i;
    return end < threads_.size() ? end : end - static_cast<unsigned>(threads_.size());
  }

  Schedule schedule_;
  bool descending_;
  bool last_in_first_out_;
  std::uint64_t random_ = 0;
  std::vector<std::uint16_t> threads_;  // a ring
  unsigned first_ = 0;
  unsigned size_ = 0;
};

/// A cluster's queue as one of its blocks sees it, whose own threads have the numbers from 0 on.
class BlockReadyQueue {
 public:
  /// @param first the number in the cluster of the block's thread 0
  BlockReadyQueue(ReadyQueue& queue, unsigned first) : queue_(queue), first_(first) {}

  /// See ReadyQueue::push().
  void push(unsigned thread) { queue_.push(static_cast<std::uint16_t>(first_ + thread)); }
  /// See ReadyQueue::push_batch().
  template <class Wanted>
  void push_batch(unsigned first, unsigned count, Wanted wanted) {
    queue_.push_batch(first_ + first, count, [&](unsigned i) { return wanted(i - first_); });
  }

 private:
  ReadyQueue& queue_;
  unsigned first_;
};

}  // namespace emulator
