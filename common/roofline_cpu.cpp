#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "common/parallel.hpp"
#include "common/roofline.hpp"

namespace tutorial {
namespace {

// The shortest of several runs, in seconds: the one that other programs disturbed least.
template <class F>
double best_seconds(int runs, F work) {
  double best = 1e300;
  for (int run = 0; run < runs; ++run) {
    const auto start = std::chrono::steady_clock::now();
    work();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

// Instrumented code takes seconds where other code takes milliseconds, and nobody believes its times.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kShorter = 32;
#else
constexpr int kShorter = 1;
#endif

double copy_bytes_s(std::size_t available) {
  constexpr int kRuns = 4;  // the first one also maps the pages
  const auto bytes = static_cast<std::int64_t>(copied_bytes(available));
  const auto from = std::make_unique_for_overwrite<std::byte[]>(bytes);
  const auto to = std::make_unique_for_overwrite<std::byte[]>(bytes);
  parallel_for(bytes, [&](std::int64_t begin, std::int64_t end) { std::memset(&from[begin], 1, end - begin); });
  const double seconds = best_seconds(kRuns, [&] {
    parallel_for(bytes,
                 [&](std::int64_t begin, std::int64_t end) { std::memcpy(&to[begin], &from[begin], end - begin); });
  });
  return 2.0 * static_cast<double>(bytes) / seconds;
}

// One register of floats.
#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif
using Vector = float __attribute__((vector_size(kLanes * sizeof(float))));

double fma_flops_s() {
  constexpr int kChains = 10;  // independent sums: latency of 4 or 5 times two units, and registers enough for them
  constexpr int kSteps = (1 << 20) / kShorter;
  const int threads = processor_count();
  std::vector<Vector> results(threads);  // so that the sums are not left out
  const double seconds = best_seconds(4, [&] {
    parallel_for(
        threads,
        [&](std::int64_t thread, std::int64_t) {
          const Vector factor = Vector{} + 0.999f;
          const Vector term = Vector{} + 0.001f;
          Vector sums[kChains];
          // Values that the compiler does not know: it would merge equal chains and drop one that stays the same.
          for (int chain = 0; chain < kChains; ++chain) sums[chain] = Vector{} + static_cast<float>(thread + chain);
          for (int step = 0; step < kSteps; ++step) {
            for (Vector& sum : sums) sum = sum * factor + term;
          }
          Vector total{};
          for (const Vector& sum : sums) total += sum;
          results[thread] = total;
        },
        1);
  });
  return 2.0 * kLanes * kChains * kSteps * threads / seconds;
}

}  // namespace

std::size_t copied_bytes(std::size_t available) {
  constexpr std::size_t kMost = (256 << 20) / kShorter;
  constexpr std::size_t kLeast = 1 << 20;
  return std::clamp(available / 8, kLeast, kMost);
}

Roofline measure_cpu_roofline(std::size_t available) {
  return {.copy_bytes_s = copy_bytes_s(available), .fma_flops_s = fma_flops_s()};
}

}  // namespace tutorial
