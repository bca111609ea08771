#pragma once
/// @file
/// Whether a stage of `scan` can run, the memory that it takes and the bytes that it moves. All throw CudaError if they
/// query the device and the runtime refuses.

#include <cstdint>
#include <string>

#include "06_scan/scan.hpp"
#include "06_scan/scan_backward.hpp"

namespace tutorial::scan {

// Why a stage cannot run the problem, as a sentence; empty if it can.
std::string sequential_gpu_unsupported(const Arguments&);
std::string blelloch_gpu_unsupported(const Arguments&);
std::string warp_shuffle_unsupported(const Arguments&);
std::string single_pass_unsupported(const Arguments&);  ///< and of warp_look_back
std::string wide_tiles_unsupported(const Arguments&);
std::string channel_lanes_unsupported(const Arguments&);
std::string dispatch_unsupported(const Arguments&);
std::string sequential_gpu_backward_unsupported(const BackwardArguments&);
std::string dispatch_backward_unsupported(const BackwardArguments&);
std::string gate_gradient_unsupported(const BackwardArguments&);  ///< of gate_gradient(), a part of both

// Bytes of memory that a stage needs beside its inputs and outputs.
std::int64_t hillis_steele_memory(const Arguments&);
std::int64_t blelloch_memory(const Arguments&);
std::int64_t single_pass_memory(const Arguments&);  ///< and of warp_look_back
std::int64_t wide_tiles_memory(const Arguments&);
std::int64_t channel_lanes_memory(const Arguments&);
std::int64_t dispatch_memory(const Arguments&);
std::int64_t sequential_gpu_backward_memory(const BackwardArguments&);
std::int64_t dispatch_backward_memory(const BackwardArguments&);
std::int64_t recomputed_y_memory(const BackwardArguments&);  ///< of recomputed_y(), a part of both

// Bytes that a stage's kernels read from device memory or write to it, even if a cache serves them, without the words
// that tiles publish for each other.
/// Of `sequential_gpu`, and of all stages from `single_pass` to `channel_lanes`.
std::int64_t channel_bytes_moved(const Arguments&);
/// Of `dispatch`.
std::int64_t dispatch_bytes_moved(const Arguments&);

/// What dispatch picks, as text for the report.
std::string dispatch_note(const Arguments&);

}  // namespace tutorial::scan
