#pragma once
/// @file
/// The OS threads that run blocks.

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

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
  /// have returned. Not to be called by several host threads at once; `work` throws nothing.
  void run(unsigned count, const std::function<void(Stacks&)>& work);

 private:
  void serve(unsigned number);

  std::mutex mutex_;  // guards what follows
  std::condition_variable started_;
  std::condition_variable finished_;
  unsigned threads_ = 0;      // that exist
  std::uint64_t launch_ = 0;  // how many launches there were
  unsigned wanted_ = 0;       // the threads numbered below take part in the present one
  unsigned busy_ = 0;         // those that have not finished it
  const std::function<void(Stacks&)>* work_ = nullptr;
};

}  // namespace emulator
