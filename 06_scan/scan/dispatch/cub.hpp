#pragma once
/// @file
/// The scan of CUB with the operator's maps.

#include <cstdint>
#include <string>

#include "06_scan/scan.hpp"

namespace tutorial::scan {

/// GPU, in CUDA builds only. @throws CudaError if the runtime refuses
void cub_scan(const Arguments&);
/// Why it cannot run the problem, as a sentence; empty if it can.
std::string cub_unsupported(const Arguments&);
/// Bytes of memory that it needs beside its inputs and outputs.
std::int64_t cub_memory(const Arguments&);

}  // namespace tutorial::scan
