#include "06_scan/over_devices/measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/device_group.hpp"
#include "common/device/error.hpp"
#include "common/device/stream.hpp"
#include "common/units.hpp"

namespace tutorial::over_devices {

#if TUTORIAL_CUDA

namespace {

constexpr int kRuns = 7;
constexpr std::size_t kLongMessage = std::size_t{256} << 20;

/// Milliseconds of a call that returns when its work is done.
double median_ms(const std::function<void()>& call) {
  std::vector<double> milliseconds;
  call();
  for (int run = 0; run < kRuns; ++run) {
    const auto start = std::chrono::steady_clock::now();
    call();
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    milliseconds.push_back(time.count());
  }
  std::nth_element(milliseconds.begin(), milliseconds.begin() + kRuns / 2, milliseconds.end());
  return milliseconds[kRuns / 2];
}

/// Bytes per second of a message from the first device to the second. @throws CudaError where there is no memory for it
double rate_of(DeviceGroup& group, std::size_t bytes) {
  DeviceBuffer<float> from, to;
  const std::size_t count = bytes / sizeof(float);
  group.on(0, [&] { from = DeviceBuffer<float>(count); });
  group.on(1, [&] { to = DeviceBuffer<float>(count); });
  const double ms = median_ms([&] { group.run([&] { group.send(from.data(), 0, to.data(), 1, count); }); });
  return 1e3 * double(bytes) / ms;
}

}  // namespace

std::optional<Measured> measure(int N, const std::function<void()>& all, const std::function<void()>& one,
                                const std::function<void()>& part, std::int64_t message_bytes) {
  if (N < 2) return std::nullopt;
  const auto on_first = [&](const std::function<void()>& run) {
    return median_ms([&] {
      run();
      check(cudaStreamSynchronize(current_stream()));
    });
  };
  DeviceGroup& group = DeviceGroup::of(N);
  try {
    static const double link_rate = rate_of(group, kLongMessage);
    return Measured{.all = median_ms(all),
                    .one = on_first(one),
                    .part = on_first(part),
                    .link_rate = link_rate,
                    .message_rate = rate_of(group, std::size_t(message_bytes))};
  } catch (const CudaError& error) {
    if (error.code() != cudaErrorMemoryAllocation) throw;
    (void)cudaGetLastError();
    return std::nullopt;  // the stage itself was right
  }
}

#else

std::optional<Measured> measure(int, const std::function<void()>&, const std::function<void()>&,
                                const std::function<void()>&, std::int64_t) {
  return std::nullopt;
}

#endif

std::string describe(int N, std::int64_t link_bytes, const std::optional<Measured>& measured) {
  std::string text =
      fmt::format("{} device{}: {} over the links", N, N == 1 ? "" : "s", format_quantity(double(link_bytes), "B"));
  if (!measured) return text;
  const Measured& m = *measured;
  return text + fmt::format(
                    ", by messages at {} ({:.0f} % of the {} of a long one); efficiency {:.0f} % (strong, {} for "
                    "{} on one), {:.0f} % (weak, {} for its share)",
                    format_quantity(m.message_rate, "B/s"), 100 * m.message_rate / m.link_rate,
                    format_quantity(m.link_rate, "B/s"), 100 * m.one / (N * m.all), format_time(m.all),
                    format_time(m.one), 100 * m.part / m.all, format_time(m.part));
}

}  // namespace tutorial::over_devices
