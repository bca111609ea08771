#include "common/device/error.hpp"

#include <sstream>

#if TUTORIAL_EMULATOR
#include <emulator/launch.hpp>
#endif

namespace tutorial {
namespace {

std::string describe(cudaError_t code, const std::string& what_failed, std::source_location where) {
  std::ostringstream text;
  text << what_failed << ": " << cudaGetErrorString(code) << " (" << cudaGetErrorName(code) << "), at "
       << where.file_name() << ":" << where.line() << " in " << where.function_name();
#if TUTORIAL_EMULATOR
  if (code == cudaErrorLaunchFailure) text << "\n" << emulator::last_report();
#endif
  return text.str();
}

}  // namespace

CudaError::CudaError(cudaError_t code, const std::string& what_failed, std::source_location where)
    : std::runtime_error(describe(code, what_failed, where)), code_(code) {}

void check(cudaError_t status, std::source_location where) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();  // reported here, so that the next check does not report it again
  throw CudaError(status, "CUDA call failed", where);
}

}  // namespace tutorial
