#include "schedule.hpp"

#include <charconv>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <utility>

#include "emulator/schedule.hpp"

namespace emulator {
namespace {

std::mutex mutex;
std::optional<Schedule> chosen;  // by set_schedule()

/// A permutation of the 64-bit numbers whose output looks random: the finaliser of SplitMix64 (Steele, Lea and Flood,
/// "Fast splittable pseudorandom number generators", 2014).
std::uint64_t scramble(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

std::uint64_t next_random(std::uint64_t& state) {
  return scramble(state += 0x9E3779B97F4A7C15u);
}

}  // namespace

Schedule Schedule::parse(const std::string& text) {
  if (text == "forward") return {};
  if (text == "reverse") return {.order = Order::reverse};
  if (text == "warps") return {.order = Order::warps};
  if (text == "warps-reverse") return {.order = Order::warps_reverse};
  if (text.starts_with("random:")) {
    Schedule schedule{.order = Order::random};
    const char* first = text.data() + 7;
    const char* last = text.data() + text.size();
    const auto [end, error] = std::from_chars(first, last, schedule.seed);
    if (error == std::errc() && end == last) return schedule;
  }
  throw std::invalid_argument("the emulator's schedule is '" + text +
                              "': forward, reverse, warps, warps-reverse or random:SEED expected");
}

Schedule Schedule::current() {
  const std::lock_guard lock(mutex);
  if (chosen) return *chosen;
  const char* text = std::getenv("EMULATOR_SCHEDULE");
  return text ? parse(text) : Schedule{};
}

std::uint64_t Schedule::block(std::uint64_t i, std::uint64_t count) const {
  switch (order) {
    case Order::forward:
    case Order::warps:
      return i;
    case Order::reverse:
    case Order::warps_reverse:
      return count - 1 - i;
    case Order::random:
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

void ReadyQueue::restart(std::uint64_t block) {
  random_ = scramble(schedule_.seed) ^ scramble(~block);
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
  const std::lock_guard lock(mutex);
  chosen = schedule;
}

}  // namespace emulator
