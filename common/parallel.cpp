#include "common/parallel.hpp"

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace tutorial {

int processor_count() {
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

void parallel_for(std::int64_t count, const std::function<void(std::int64_t, std::int64_t)>& body, std::int64_t grain) {
  const std::int64_t threads = std::min<std::int64_t>(processor_count(), count / std::max<std::int64_t>(grain, 1));
  if (threads <= 1) {
    if (count > 0) body(0, count);
    return;
  }
  std::exception_ptr failure;
  std::mutex mutex;
  std::vector<std::jthread> workers;
  for (std::int64_t i = 0; i < threads; ++i) {
    // count * (i + 1) could overflow; this cannot, and the parts differ by at most one.
    const auto edge = [&](std::int64_t part) { return count / threads * part + std::min(part, count % threads); };
    workers.emplace_back([&, begin = edge(i), end = edge(i + 1)] {
      try {
        body(begin, end);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
      }
    });
  }
  workers.clear();  // joins
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tutorial
