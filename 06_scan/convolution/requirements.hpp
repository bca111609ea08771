#pragma once
/// @file
/// Whether a stage of `convolution` can run, the memory that it takes and the bytes that it moves. All throw CudaError
/// if they query the device and the runtime refuses.

#include <cstdint>
#include <string>

#include "06_scan/convolution.hpp"

namespace tutorial::convolution {

// Why a stage cannot run the problem, as a sentence; empty if it can.
std::string direct_unsupported(const Arguments&);
/// Why `scan` does not support the problem; empty if it does.
std::string by_scan_unsupported(
    const Arguments&);  ///< copies the kernel to the host, where there is one, and looks at it

// Bytes of memory that a stage needs beside its inputs and outputs.
std::int64_t fft_memory(const Arguments&);
std::int64_t by_scan_memory(const Arguments&);

/// Bytes that its kernels read from device memory or write to it, without the words that tiles publish for each other.
std::int64_t by_scan_bytes_moved(const Arguments&);

/// What scan's dispatch picks, as text for the report.
std::string by_scan_note(const Arguments&);

}  // namespace tutorial::convolution
