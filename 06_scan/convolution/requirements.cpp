#include "06_scan/convolution/requirements.hpp"

#include <cuda_runtime.h>

#include <cmath>
#include <vector>

#include "06_scan/scan/requirements.hpp"
#include "common/device/error.hpp"
#include "common/device/stream.hpp"

namespace tutorial::convolution {
namespace {

constexpr double kRounding = 1e-7;  // of kernel_j <= 1 in fp32, and a little more

/// The sizes of the scan that by_scan() starts.
scan::Arguments scan_of(const Arguments& a) {
  scan::Arguments scan{};
  scan.B = a.B, scan.H = 1, scan.L = a.L, scan.D = a.D, scan.Dg = 1;
  return scan;
}

}  // namespace

std::string direct_unsupported(const Arguments& a) {
  return a.L > 16384 ? "L > 16384: O(L^2) time" : "";
}

std::int64_t fft_memory(const Arguments& a) {
  // The kernel and its spectrum; per thread a sequence, its spectrum and its result, and the memory of the transforms:
  // a table per direction and a copy to work in.
  return 8 * padded_length(a.L) * (4 + 6 * std::int64_t(fft_threads(a)));
}

std::string by_scan_unsupported(const Arguments& a) {
  if (a.kernel) {
    std::vector<float> kernel(std::size_t(a.L), 0.0f);
    check(cudaMemcpyAsync(kernel.data(), a.kernel, kernel.size() * sizeof(float), cudaMemcpyDeviceToHost,
                          current_stream()));
    check(cudaStreamSynchronize(current_stream()));
    const double r = a.L > 1 ? double(kernel[1]) : 1.0;
    const std::string why = ": a scan has one number per channel for the past, enough for kernel_j = r^j, 0 < r <= 1";
    if (!(r > 0 && r <= 1)) return "kernel_1 is not in (0, 1]" + why;
    double power = 1;
    for (int j = 0; j < a.L; ++j, power *= r) {
      if (std::abs(double(kernel[std::size_t(j)]) - power) <= kRounding) continue;
      return "kernel_" + std::to_string(j) + " is not " + (j == 0 ? "1" : "kernel_1^" + std::to_string(j)) + why;
    }
  }
  return scan::dispatch_unsupported(scan_of(a));
}

std::int64_t by_scan_memory(const Arguments& a) {
  return std::int64_t(sizeof(float)) * a.L + scan::dispatch_memory(scan_of(a));
}

std::string by_scan_note(const Arguments& a) {
  return scan::dispatch_note(scan_of(a));
}

std::int64_t by_scan_bytes_moved(const Arguments& a) {
  const std::int64_t gates = std::int64_t(a.L) * (a.L > 1 ? 2 : 1);  // written, and each from kernel_1
  return std::int64_t(sizeof(float)) * gates + scan::dispatch_bytes_moved(scan_of(a));
}

}  // namespace tutorial::convolution
