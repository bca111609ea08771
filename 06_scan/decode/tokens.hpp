#pragma once
/// @file
/// `--tokens`: the time of one token by `dispatch`, for all rules and several batches.

#include "common/chapter/demonstration.hpp"

namespace tutorial::decode {

/// Flushed, in a loop of launches, and in a CUDA graph, on tensors of equal numbers. On the emulator there is nothing
/// to time: the bytes alone. Times are in us, rates in GB/s. CudaError where the GPU fails.
Demonstration tokens();

}  // namespace tutorial::decode
