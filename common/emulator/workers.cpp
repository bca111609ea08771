#include "workers.hpp"

#include <unistd.h>

#include <algorithm>
#include <memory>

#include "crash.hpp"
#include "environment.hpp"
#include "sanitizer.hpp"

namespace emulator {

unsigned worker_limit() {
  if (sanitizer::kAddress) return 1;
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  return static_cast<unsigned>(number_from_environment("EMULATOR_THREADS").value_or(cores));
}

Workers& Workers::instance() {
  static std::mutex creation;
  static std::unique_ptr<Workers> workers;
  static pid_t process = 0;
  const std::lock_guard lock(creation);
  if (process != getpid()) {
    (void)workers.release();  // after a fork only the parent has these threads
    workers = std::make_unique<Workers>();
    watch_for_crashes();
    process = getpid();
  }
  return *workers;
}

void Workers::run(unsigned count, const std::function<void(Stacks&)>& work) {
  const std::lock_guard one_at_a_time(launches_);
  std::unique_lock lock(mutex_);
  while (threads_.size() < count) {
    const auto number = static_cast<unsigned>(threads_.size());
    threads_.emplace_back([this, number](const std::stop_token& stop) { serve(stop, number); });
  }
  work_ = &work;
  wanted_ = busy_ = count;
  ++launch_;
  started_.notify_all();
  finished_.wait(lock, [this] { return busy_ == 0; });
}

void Workers::serve(const std::stop_token& stop, unsigned number) {
  const SignalStack signal_stack;
  Stacks stacks;
  std::uint64_t served = 0;
  std::unique_lock lock(mutex_);
  while (started_.wait(lock, stop, [&] { return launch_ != served && number < wanted_; })) {
    served = launch_;
    lock.unlock();
    (*work_)(stacks);
    lock.lock();
    if (--busy_ == 0) finished_.notify_one();
  }
}

}  // namespace emulator
