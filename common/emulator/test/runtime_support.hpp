#pragma once
/// @file
/// What the tests of the emulator's runtime share.

#include <cuda_runtime.h>
#include <emulator/launch.hpp>

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <optional>
#include <source_location>
#include <string>
#include <utility>

namespace emulator::test {

/// Runs `body` as a kernel on the default stream.
inline cudaError_t run(dim3 grid, dim3 block, std::size_t shared_bytes, std::function<void()> body,
                       std::source_location where = std::source_location::current()) {
  return launch(grid, block, shared_bytes, nullptr, where, std::move(body));
}

/// The index of this thread among all of a one-dimensional grid.
inline unsigned global_thread() {
  return blockIdx.x * blockDim.x + threadIdx.x;
}

/// Sets an environment variable for as long as it lives.
class Environment {
 public:
  Environment(std::string name, const std::string& value) : name_(std::move(name)) {
    if (const char* before = std::getenv(name_.c_str())) before_ = before;
    setenv(name_.c_str(), value.c_str(), 1);
  }
  ~Environment() {
    if (before_) {
      setenv(name_.c_str(), before_->c_str(), 1);
    } else {
      unsetenv(name_.c_str());
    }
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::string name_;
  std::optional<std::string> before_;
};

}  // namespace emulator::test
