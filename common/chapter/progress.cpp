#include "common/chapter/progress.hpp"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace tutorial {

Progress::Progress(const Terminal& terminal) : terminal_(terminal) {
  if (terminal.interactive()) thread_ = std::thread([this] { draw_until_stopped(); });
}

Progress::~Progress() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    erase();
  }
  changed_.notify_one();
  thread_.join();
}

void Progress::begin(const std::string& what) {
  const std::lock_guard lock(mutex_);
  what_ = what;
  run_.clear();
  start_ = std::chrono::steady_clock::now();
}

void Progress::at(int run, int runs) {
  if (!thread_.joinable()) return;
  const std::lock_guard lock(mutex_);
  run_ = fmt::format("  run {} of {}", run, runs);
}

void Progress::end() {
  const std::lock_guard lock(mutex_);
  what_.clear();
  erase();
}

void Progress::draw_until_stopped() {
  constexpr std::array<std::string_view, 10> kDots{"⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"};
  constexpr std::array<std::string_view, 4> kBars{"|", "/", "-", "\\"};
  std::unique_lock lock(mutex_);
  for (std::size_t tick = 0; !stopped_; ++tick) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    if (!what_.empty() && seconds > 0.25) {
      const std::string spinner = terminal_.sign(kDots[tick % kDots.size()], kBars[tick % kBars.size()]);
      terminal_.write(fmt::format("\r\x1b[2K{} {}{}", terminal_.paint(Paint::cyan, spinner), what_,
                                  terminal_.paint(Paint::dim, fmt::format("{}  {:.1f} s", run_, seconds))));
      visible_ = true;
    }
    changed_.wait_for(lock, std::chrono::milliseconds(100));
  }
}

void Progress::erase() {
  if (!visible_) return;
  terminal_.write("\r\x1b[2K");
  visible_ = false;
}

}  // namespace tutorial
