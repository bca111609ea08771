#pragma once
/// @file
/// How calls of the runtime fail.

#include <stdexcept>
#include <string>

#include "emulator/runtime_error.hpp"
#include "report.hpp"

namespace emulator {

/// Remembers an error for cudaGetLastError(), and returns it.
cudaError_t result(cudaError_t error);

/// result() of a call that may throw std::invalid_argument for a bad setting of the user: that is reported and becomes
/// cudaErrorInvalidValue. Other exceptions are passed on.
template <class Call>
cudaError_t checked_result(Call call) {
  try {
    return result(call());
  } catch (const std::invalid_argument& error) {
    report(std::string(error.what()) + "\n");
    return result(cudaErrorInvalidValue);
  }
}

}  // namespace emulator
