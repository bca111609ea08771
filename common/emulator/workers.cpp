#include "workers.hpp"

#include <unistd.h>

#include <algorithm>
#include <thread>

#include "crash.hpp"
#include "environment.hpp"
#include "sanitizer.hpp"

namespace emulator {

unsigned worker_limit() {
  if (sanitizer::kAddress) return 1;
  static const unsigned cores = std::max(1u, std::thread::hardware_concurrency());  // asks the file system
  return threads_from_environment().value_or(cores);
}

Workers& Workers::instance() {
  static std::mutex creation;
  static Workers* workers = nullptr;  // never destroyed: its threads wait for work until the process ends
  static pid_t process = 0;
  const std::lock_guard lock(creation);
  if (process != getpid()) {  // after a fork only the parent has the threads
    workers = new Workers;
    process = getpid();
    watch_for_crashes();
  }
  return *workers;
}

void Workers::run(unsigned count, const std::function<void(Stacks&)>& work) {
  std::unique_lock lock(mutex_);
  while (threads_ < count) std::thread(&Workers::serve, this, threads_++).detach();
  work_ = &work;
  wanted_ = busy_ = count;
  ++launch_;
  started_.notify_all();
  finished_.wait(lock, [this] { return busy_ == 0; });
}

void Workers::serve(unsigned number) {
  const SignalStack signal_stack;
  Stacks stacks;
  std::uint64_t served = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    started_.wait(lock, [&] { return launch_ != served && number < wanted_; });
    served = launch_;
    lock.unlock();
    (*work_)(stacks);
    lock.lock();
    if (--busy_ == 0) finished_.notify_one();
  }
}

}  // namespace emulator
