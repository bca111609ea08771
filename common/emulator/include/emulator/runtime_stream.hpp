#pragma once
/// @file
/// Streams, events and graphs. Work given to a stream runs before the call returns, so streams never overlap, events
/// are always complete, and a graph is a list of calls to repeat.
///
/// Functions return cudaSuccess or an error, which cudaGetLastError() gives once more: cudaErrorInvalidValue for a null
/// pointer to a result, a null graph or flags that do not exist, cudaErrorInvalidResourceHandle for a null event or a
/// null stream that is to be destroyed, and the errors of captures. Other handles must be valid, which is not checked.
/// A stream and an event belong to the device that was current when they were made: a launch on a stream of another
/// device, an event that is recorded on one, and a time between events of two devices are
/// cudaErrorInvalidResourceHandle. A stream may wait for an event of any device, and copies may use a stream of any.

#include <cstddef>
#include <functional>

#include "emulator/runtime_error.hpp"

// NOLINTBEGIN(readability-identifier-naming): the names are CUDA's

using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
using cudaGraph_t = struct CUgraph_st*;
using cudaGraphExec_t = struct CUgraphExec_st*;

inline constexpr unsigned cudaStreamDefault = 0;
inline constexpr unsigned cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventDefault = 0;
inline constexpr unsigned cudaEventBlockingSync = 1;
inline constexpr unsigned cudaEventDisableTiming = 2;

enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal = 0,
  cudaStreamCaptureModeThreadLocal = 1,
  cudaStreamCaptureModeRelaxed = 2,
};
enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone = 0,
  cudaStreamCaptureStatusActive = 1,
  cudaStreamCaptureStatusInvalidated = 2,
};

// The flag is cudaStreamDefault or cudaStreamNonBlocking: whether the stream waits for the default stream matters to
// captures alone.
cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
// There is nothing to wait for; captures forbid both, as on a GPU.
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
/// During a capture the event brings `stream` into the capture of the stream that it was recorded on.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);

// Of the flags cudaEventDisableTiming alone matters.
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
// During a capture the event joins it; waiting for it then is cudaErrorCapturedEvent, and the capture is lost.
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
/// Milliseconds from one event to the other by the steady clock: time on this machine, which says nothing about a GPU.
/// cudaErrorInvalidResourceHandle if one was never recorded or was made without timing.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t stop);

/// From here to cudaStreamEndCapture() launches, copies and memsets on `stream` are recorded, not run. The default
/// stream cannot be captured (cudaErrorStreamCaptureUnsupported), nor one that is (cudaErrorIllegalState).
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
/// Gives the graph; null, and cudaErrorStreamCaptureInvalidated, if a call was made that captures forbid.
/// cudaErrorIllegalState for a stream that is not captured, cudaErrorStreamCaptureUnmatched for one that events brought
/// in.
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags = 0);
/// Runs what was recorded, in the order of recording. Stops at the first call that fails, and returns its error.
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);
/// The number of calls alone: `nodes` is left as it is.
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, struct CUgraphNode_st** nodes, std::size_t* count);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);

// NOLINTEND(readability-identifier-naming)
