#pragma once
/// @file
/// Whether a scan of the delta rule can run, the memory that it takes and the bytes that it moves.

#include <cstdint>
#include <string>

#include "06_scan/delta_rule.hpp"

namespace tutorial::scan {

// Why a stage cannot run the problem, as a sentence; empty if it can.
std::string affine_chain_unsupported(const delta_rule::FloatArguments&);
std::string scan_affine_unsupported(const delta_rule::FloatArguments&);

// Bytes of memory that a stage needs beside its inputs and outputs.
std::int64_t affine_chain_memory(const delta_rule::FloatArguments&);
std::int64_t scan_affine_memory(const delta_rule::FloatArguments&);

// Bytes that a stage's kernels read from device memory or write to it, even if a cache serves them.
std::int64_t affine_chain_bytes_moved(const delta_rule::FloatArguments&);
std::int64_t scan_affine_bytes_moved(const delta_rule::FloatArguments&);

}  // namespace tutorial::scan
