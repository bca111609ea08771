#pragma once
/// @file
/// Work given to streams.

#include <functional>

#include "emulator/runtime_stream.hpp"

namespace emulator {

/// Only a kernel may start while the kernel before it runs.
enum class Work { kernel, other };

/// Runs `work` and returns its error, or records it if the stream is being captured. A capture that is lost:
/// cudaErrorStreamCaptureInvalidated; work for the default stream beside the capture of one that waits for it:
/// cudaErrorStreamCaptureImplicit, and that capture is lost.
cudaError_t submit(cudaStream_t stream, std::function<cudaError_t()> work, Work kind = Work::other);

/// Returns the error of work that is not fit to be submitted; a capture of the stream is lost.
cudaError_t refuse(cudaStream_t stream, cudaError_t error);

/// The device that the stream belongs to; for the default stream the current one.
int device_of(cudaStream_t stream);

/// Its number for the detector of races.
unsigned number_of(cudaStream_t stream);

/// A stream that is stuck waits for a transfer that never comes: it is never ready, until it is released.
void set_stuck(cudaStream_t stream, bool is_stuck);

/// For calls that captures forbid, such as cudaMalloc(): cudaErrorStreamCaptureUnsupported if there is one, which is
/// lost then, else cudaSuccess.
/// @param relaxed_too whether those with cudaStreamCaptureModeRelaxed forbid it as well
cudaError_t forbid_during_capture(bool relaxed_too = false);

}  // namespace emulator
