#pragma once
/// @file
/// The OS threads that run blocks.

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "stacks.hpp"

namespace emulator {

/// How many OS threads run blocks: EMULATOR_THREADS, or as many as the machine has. With AddressSanitizer one, because
/// there all blocks share their static shared memory. @throws std::invalid_argument
unsigned worker_limit();

/// OS threads that wait for work, because starting some for each launch would take longer than a small kernel.
class Workers {
 public:
  /// The only one of this process.
  static Workers& instance();

  /// Calls `work` once on each of `count` threads, at the same time, with stacks to use, and returns when all calls
  /// have returned. Launches of several host threads take turns.
  void run(unsigned count, const std::function<void(Stacks&)>& work);

 private:
  void serve(const std::stop_token& stop, unsigned number);

  std::mutex launches_;  // held during a launch
  std::mutex mutex_;     // guards what follows
  std::condition_variable_any started_;
  std::condition_variable_any finished_;
  std::uint64_t launch_ = 0;  // how many launches there were
  unsigned wanted_ = 0;       // the threads numbered below take part in the present one
  unsigned busy_ = 0;         // those that have not finished it
  const std::function<void(Stacks&)>* work_ = nullptr;
  std::vector<std::jthread> threads_;  // last: their destructors stop the threads, which use all of the above
};

}  // namespace emulator
