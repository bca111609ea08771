#pragma once
/// @file
/// Starts a kernel on the emulator.

#include <cstddef>
#include <functional>
#include <source_location>
#include <span>
#include <string>

#include "emulator/runtime_stream.hpp"
#include "emulator/vector_types.hpp"

namespace emulator {

/// Runs `body` once for each thread of the grid and returns when all have finished; on a stream that is being captured
/// the launch is recorded instead. The error is also what cudaGetLastError() returns next:
/// - cudaErrorInvalidValue for a launch that a GPU refuses: too many threads or none, too many blocks or none, too much
///   shared memory (the code that cudaLaunchKernelEx() gave for all of these on an H200 with CUDA 13.0);
/// - cudaErrorInvalidClusterSize for clusters of more than 8 blocks, and for those that do not divide the grid;
/// - cudaErrorNotSupported for clusters of several blocks on a device of compute capability 8.x;
/// - cudaErrorInvalidResourceHandle for a stream of a device that is not the current one;
/// - cudaErrorInvalidValue for a bad setting in the environment, and cudaErrorLaunchFailure for a kernel that went
///   wrong or was given memory of a device that it may not access; last_report() tells more about all of them.
/// @param shared_bytes dynamic shared memory of a block
/// @param where the launch, for reports
/// @param body calls the kernel with its arguments; copied, so it must own them
/// @param kernel the kernel's address: its dynamic shared memory is limited to 48 KB unless cudaFuncSetAttribute()
///   raised the limit. nullptr: only the limit of the device holds.
/// @param cluster blocks of a cluster
/// @param arguments the bytes of the kernel's arguments, in which pointers to memory of other devices are looked for
/// @param starts_early whether it need not wait for the kernel before (early_start.hpp)
cudaError_t launch(dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream, std::source_location where,
                   std::function<void()> body, const void* kernel = nullptr, dim3 cluster = 1,
                   std::span<const std::byte> arguments = {}, bool starts_early = false);

/// What went wrong last, in one or more lines of text; empty if nothing has since the process began.
std::string last_report();

}  // namespace emulator
