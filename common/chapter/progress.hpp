#pragma once
/// @file
/// The line that shows what a slow stage is doing.

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "common/terminal.hpp"

namespace tutorial {

/// A line on a terminal that draws itself over, with what is under way, the run and the seconds since, and disappears
/// when it is done. What takes less than a quarter of a second is not shown. Where no one is looking nothing is
/// written.
class Progress {
 public:
  /// Shows nothing where standard error is no terminal.
  explicit Progress(const Terminal& terminal);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  /// Something begins, and may take a while.
  void begin(const std::string& what);
  /// Timed run `run` of at most `runs`.
  void at(int run, int runs);
  /// Removes the line, so that others can be written.
  void end();

 private:
  void draw_until_stopped();
  void erase();

  const Terminal& terminal_;
  std::mutex mutex_;  // for all that follows
  std::condition_variable changed_;
  bool stopped_ = false;
  bool visible_ = false;
  std::string what_;  // empty: nothing is under way
  std::string run_;
  std::chrono::steady_clock::time_point start_;
  std::thread thread_;
};

}  // namespace tutorial
