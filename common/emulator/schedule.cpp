#include "schedule.hpp"

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <mutex>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <utility>

#include "emulator/schedule.hpp"
#include "random.hpp"

namespace emulator {
namespace {

std::mutex schedule_mutex;
std::optional<Schedule> chosen;  // by set_schedule()

/// The number after `prefix` in a text such as "random:7".
std::optional<std::uint64_t> seed_after(const std::string& prefix, const std::string& text) {
  if (!text.starts_with(prefix)) return std::nullopt;
  std::uint64_t seed = 0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data() + prefix.size(), last, seed);
  return error == std::errc() && end == last ? std::optional(seed) : std::nullopt;
}

}  // namespace

Schedule Schedule::parse(const std::string& text) {
  if (text == "forward") return {};
  if (text == "reverse") return {.order = Order::reverse};
  if (text == "warps") return {.order = Order::warps};
  if (text == "warps-reverse") return {.order = Order::warps_reverse};
  if (const auto seed = seed_after("random:", text)) return {.order = Order::random, .seed = *seed};
  if (const auto seed = seed_after("mixed:", text)) return {.order = Order::mixed, .seed = *seed};
  throw std::invalid_argument("the emulator's schedule is '" + text +
                              "': forward, reverse, warps, warps-reverse, random:SEED or mixed:SEED expected");
}

Schedule Schedule::next() {
  Schedule schedule;
  {
    const std::lock_guard lock(schedule_mutex);
    const char* text = std::getenv("EMULATOR_SCHEDULE");
    if (chosen) {
      schedule = *chosen;
    } else if (text) {
      schedule = parse(text);
    }
  }
  if (schedule.order != Order::mixed) return schedule;
  static std::atomic<std::uint64_t> launches = 0;
  std::uint64_t state = schedule.seed + scramble(launches++);
  constexpr Order kOrders[] = {Order::forward, Order::reverse, Order::warps, Order::warps_reverse, Order::random};
  const Order order = kOrders[next_random(state) % std::size(kOrders)];
  return {.order = order, .seed = next_random(state)};
}

std::uint64_t Schedule::cluster(std::uint64_t i, std::uint64_t count) const {
  switch (order) {
    case Order::forward:
    case Order::warps:
      return i;
    case Order::reverse:
    case Order::warps_reverse:
      return count - 1 - i;
    case Order::random:
    case Order::mixed:
      break;
  }
  // i -> step * i + shift modulo count is a permutation if step and count have no common factor. Grids have fewer than
  // 2^63 blocks, so the product needs 128 bits.
  __extension__ using Wide = unsigned __int128;
  std::uint64_t step = scramble(seed) % count;
  while (std::gcd(step, count) != 1) ++step;
  const std::uint64_t shift = scramble(seed + 1) % count;
  return static_cast<std::uint64_t>((static_cast<Wide>(step) * i + shift) % count);
}

ReadyQueue::ReadyQueue(const Schedule& schedule, unsigned capacity)
    : schedule_(schedule),
      descending_(schedule.order == Schedule::Order::reverse || schedule.order == Schedule::Order::warps_reverse),
      last_in_first_out_(schedule.order == Schedule::Order::warps || schedule.order == Schedule::Order::warps_reverse),
      threads_(capacity) {}

void ReadyQueue::push(std::uint16_t thread) {
  if (last_in_first_out_) {
    first_ = first_ > 0 ? first_ - 1 : static_cast<unsigned>(threads_.size()) - 1;
    ++size_;
    threads_[first_] = thread;
  } else {
    threads_[place(size_++)] = thread;
  }
}

void ReadyQueue::restart(std::uint64_t cluster) {
  random_ = scramble(schedule_.seed) ^ scramble(~cluster);
  first_ = size_ = 0;
}

std::uint16_t ReadyQueue::pop() {
  if (last_in_first_out_) return threads_[place(--size_)];
  if (schedule_.order == Schedule::Order::random) {
    std::swap(threads_[first_], threads_[place(static_cast<unsigned>(next_random(random_) % size_))]);
  }
  const std::uint16_t thread = threads_[first_];
  first_ = place(1);
  --size_;
  return thread;
}

void set_schedule(const std::string& text) {
  std::optional<Schedule> schedule;
  if (!text.empty()) schedule = Schedule::parse(text);
  const std::lock_guard lock(schedule_mutex);
  chosen = schedule;
}

}  // namespace emulator
