#pragma once
/// @file
/// Whether a scan of simple_gla can run, the memory that it takes and the bytes that it moves.

#include <cstdint>
#include <string>

#include "06_scan/simple_gla.hpp"

namespace tutorial::scan {

// Why a stage cannot run the problem, as a sentence; empty if it can.
std::string scan_states_unsupported(const simple_gla::FloatArguments&);
std::string scan_tiles_unsupported(const simple_gla::FloatArguments&);
std::string scan_fused_unsupported(const simple_gla::FloatArguments&);

// Bytes of memory that a stage needs beside its inputs and outputs.
std::int64_t scan_states_memory(const simple_gla::FloatArguments&);
std::int64_t scan_tiles_memory(const simple_gla::FloatArguments&);
std::int64_t scan_fused_memory(const simple_gla::FloatArguments&);

// Bytes that a stage's kernels read from device memory or write to it, even if a cache serves them.
std::int64_t scan_states_bytes_moved(const simple_gla::FloatArguments&);
std::int64_t scan_tiles_bytes_moved(const simple_gla::FloatArguments&);
std::int64_t scan_fused_bytes_moved(const simple_gla::FloatArguments&);  ///< without the states that look-back reads

}  // namespace tutorial::scan
