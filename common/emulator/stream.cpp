#include "stream.hpp"

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "devices.hpp"
#include "emulator/host_call.hpp"
#include "error.hpp"
#include "race_detector.hpp"
#include "report.hpp"

namespace emulator {

using Calls = std::vector<std::function<cudaError_t()>>;

/// What is recorded between cudaStreamBeginCapture() and cudaStreamEndCapture(). Events bring further streams into it.
struct Capture {
  cudaStream_t origin;
  cudaStreamCaptureMode mode;
  bool blocking;  ///< whether its stream waits for the default stream
  bool valid = true;
  bool ended = false;
  Calls calls;
};

namespace {

std::mutex captures_mutex;  // guards all captures
std::vector<std::shared_ptr<Capture>> captures;

}  // namespace
}  // namespace emulator

struct CUstream_st {
  bool blocking;
  int device;
  std::shared_ptr<emulator::Capture> capture;
  bool is_stuck = false;

  emulator::Capture* active_capture() const { return capture && !capture->ended ? capture.get() : nullptr; }
};

struct CUevent_st {
  bool timed;
  int device;
  std::optional<std::chrono::steady_clock::time_point> time;
  std::shared_ptr<emulator::Capture> capture;
};

struct CUgraph_st {
  emulator::Calls calls;
};

struct CUgraphExec_st {
  emulator::Calls calls;
};

namespace emulator {

cudaError_t submit(cudaStream_t stream, std::function<cudaError_t()> work, Work kind) {
  if (kind == Work::other) {
    work = [work = std::move(work)] {
      races::Detector::instance().end_overlap();
      return work();
    };
  }
  {
    const std::lock_guard lock(captures_mutex);
    if (stream) {
      if (Capture* capture = stream->active_capture()) {
        if (!capture->valid) return cudaErrorStreamCaptureInvalidated;
        capture->calls.push_back(std::move(work));
        return cudaSuccess;
      }
    } else {
      for (const auto& capture : captures) {
        if (!capture->blocking) continue;
        capture->valid = false;
        return cudaErrorStreamCaptureImplicit;
      }
    }
  }
  return work();
}

cudaError_t host_call(cudaStream_t stream, std::function<void()> work) {
  return result(submit(stream, [work = std::move(work)] {
    work();
    return cudaSuccess;
  }));
}

cudaError_t refuse(cudaStream_t stream, cudaError_t error) {
  const std::lock_guard lock(captures_mutex);
  if (stream && stream->active_capture()) stream->active_capture()->valid = false;
  return error;
}

int device_of(cudaStream_t stream) {
  return stream ? stream->device : current_device();
}

void set_stuck(cudaStream_t stream, bool is_stuck) {
  if (stream) stream->is_stuck = is_stuck;
}

cudaError_t forbid_during_capture(bool relaxed_too) {
  const std::lock_guard lock(captures_mutex);
  for (const auto& capture : captures) {
    if (capture->mode == cudaStreamCaptureModeRelaxed && !relaxed_too) continue;
    capture->valid = false;
    return cudaErrorStreamCaptureUnsupported;
  }
  return cudaSuccess;
}

namespace {

cudaError_t begin_capture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (!stream) return cudaErrorStreamCaptureUnsupported;
  const std::lock_guard lock(captures_mutex);
  if (stream->active_capture()) return cudaErrorIllegalState;
  stream->capture =
      std::make_shared<Capture>(Capture{.origin = stream, .mode = mode, .blocking = stream->blocking, .calls = {}});
  captures.push_back(stream->capture);
  return cudaSuccess;
}

cudaError_t end_capture(cudaStream_t stream, cudaGraph_t* graph) {
  if (!graph) return cudaErrorInvalidValue;
  *graph = nullptr;
  const std::lock_guard lock(captures_mutex);
  if (!stream || !stream->active_capture()) return cudaErrorIllegalState;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture->origin != stream) return cudaErrorStreamCaptureUnmatched;
  capture->ended = true;
  std::erase(captures, capture);
  if (!capture->valid) return cudaErrorStreamCaptureInvalidated;
  *graph = new CUgraph_st{std::move(capture->calls)};
  return cudaSuccess;
}

cudaError_t run_all(const Calls& calls) {
  for (const auto& call : calls) {
    if (const cudaError_t error = call(); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace
}  // namespace emulator

using emulator::result;

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  if (!stream || flags > cudaStreamNonBlocking) return result(cudaErrorInvalidValue);
  *stream =
      new CUstream_st{.blocking = flags == cudaStreamDefault, .device = emulator::current_device(), .capture = nullptr};
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (!stream) return result(cudaErrorInvalidResourceHandle);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream && stream->is_stuck) {
    emulator::report("a host thread waits for a stream whose transfer never ends: a GPU would hang here\n");
    return result(cudaErrorLaunchFailure);
  }
  return result(emulator::forbid_during_capture(stream && stream->active_capture()));
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (stream && stream->is_stuck) return cudaErrorNotReady;
  return cudaStreamSynchronize(stream);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (!event) return result(cudaErrorInvalidResourceHandle);
  const std::lock_guard lock(emulator::captures_mutex);
  if (event->capture && !event->capture->ended) {
    if (!stream) return result(cudaErrorStreamCaptureImplicit);
    stream->capture = event->capture;
  }
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  if (!event) return result(cudaErrorInvalidValue);
  *event = new CUevent_st{.timed = (flags & cudaEventDisableTiming) == 0,
                          .device = emulator::current_device(),
                          .time = std::nullopt,
                          .capture = nullptr};
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (!event) return result(cudaErrorInvalidResourceHandle);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (!event || event->device != emulator::device_of(stream)) return result(cudaErrorInvalidResourceHandle);
  {
    const std::lock_guard lock(emulator::captures_mutex);
    event->capture = stream && stream->active_capture() ? stream->capture : nullptr;
    if (event->capture) return result(event->capture->valid ? cudaSuccess : cudaErrorStreamCaptureInvalidated);
  }
  return result(emulator::submit(stream, [event] {
    event->time = std::chrono::steady_clock::now();
    return cudaSuccess;
  }));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (!event) return result(cudaErrorInvalidResourceHandle);
  const std::lock_guard lock(emulator::captures_mutex);
  if (!event->capture || event->capture->ended) return cudaSuccess;
  event->capture->valid = false;
  return result(cudaErrorCapturedEvent);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return cudaEventSynchronize(event);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t stop) {
  if (!milliseconds) return result(cudaErrorInvalidValue);
  if (!start || !stop || !start->timed || !stop->timed || !start->time || !stop->time ||
      start->device != stop->device) {
    return result(cudaErrorInvalidResourceHandle);
  }
  *milliseconds = std::chrono::duration<float, std::milli>(*stop->time - *start->time).count();
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return result(emulator::begin_capture(stream, mode));
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return result(emulator::end_capture(stream, graph));
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  if (!status) return result(cudaErrorInvalidValue);
  const std::lock_guard lock(emulator::captures_mutex);
  const emulator::Capture* capture = stream ? stream->active_capture() : nullptr;
  *status = !capture         ? cudaStreamCaptureStatusNone
            : capture->valid ? cudaStreamCaptureStatusActive
                             : cudaStreamCaptureStatusInvalidated;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  if (!executable || !graph) return result(cudaErrorInvalidValue);
  *executable = new CUgraphExec_st{graph->calls};
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  if (!executable) return result(cudaErrorInvalidValue);
  return emulator::checked_result(
      [&] { return emulator::submit(stream, [calls = executable->calls] { return emulator::run_all(calls); }); });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, CUgraphNode_st**, std::size_t* count) {
  if (!graph || !count) return result(cudaErrorInvalidValue);
  *count = graph->calls.size();
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  if (!graph) return result(cudaErrorInvalidValue);
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  if (!executable) return result(cudaErrorInvalidValue);
  delete executable;
  return cudaSuccess;
}
