#include "stream.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "devices.hpp"
#include "emulator/host_call.hpp"
#include "error.hpp"
#include "race_detector.hpp"
#include "report.hpp"

namespace emulator {

/// Work of a graph, in the order of its capture.
struct Call {
  std::function<cudaError_t()> run;
  bool is_node = true;  ///< not so an event that orders its streams
};

struct Calls {
  std::vector<Call> list;
  std::set<unsigned> streams;  ///< from which they were captured
};

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
  unsigned number;
  std::shared_ptr<emulator::Capture> capture;
  bool is_stuck = false;

  emulator::Capture* active_capture() const { return capture && !capture->ended ? capture.get() : nullptr; }
};

struct CUevent_st {
  bool timed;
  int device;
  std::optional<std::chrono::steady_clock::time_point> time;
  std::shared_ptr<emulator::Capture> capture;
  /// What comes before it; of one that is captured, when its graph runs.
  std::shared_ptr<emulator::races::StreamClock> order = std::make_shared<emulator::races::StreamClock>();
};

struct CUgraph_st {
  emulator::Calls calls;
};

struct CUgraphExec_st {
  emulator::Calls calls;
};

namespace emulator {

cudaError_t submit(cudaStream_t stream, std::function<cudaError_t()> work, Work kind) {
  const unsigned number = number_of(stream);
  work = [number, kind, work = std::move(work)] {
    const races::CurrentStream current(number);
    if (kind == Work::other) races::Detector::instance().end_overlap();
    return work();
  };
  {
    const std::lock_guard lock(captures_mutex);
    if (stream) {
      if (Capture* capture = stream->active_capture()) {
        if (!capture->valid) return cudaErrorStreamCaptureInvalidated;
        capture->calls.list.push_back({std::move(work)});
        capture->calls.streams.insert(number);
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

unsigned number_of(cudaStream_t stream) {
  return stream ? stream->number : races::Streams::instance().default_of(current_device());
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

/// Runs a graph: what comes before it comes before all of its streams, and its end comes after all of them.
cudaError_t run_all(const Calls& calls) {
  races::Streams& streams = races::Streams::instance();
  const unsigned here = races::CurrentStream::number();
  for (const unsigned stream : calls.streams) streams.wait(stream, streams.clock_of(here));
  for (const Call& call : calls.list) {
    if (const cudaError_t error = call.run(); error != cudaSuccess) return error;
  }
  for (const unsigned stream : calls.streams) streams.wait(here, streams.clock_of(stream));
  return cudaSuccess;
}

/// A call of a graph that orders its streams.
void add_order(Capture& capture, std::function<void()> order) {
  capture.calls.list.push_back({[order = std::move(order)] {
                                  order();
                                  return cudaSuccess;
                                },
                                false});
}

}  // namespace
}  // namespace emulator

using emulator::result;

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  if (!stream || flags > cudaStreamNonBlocking) return result(cudaErrorInvalidValue);
  const int device = emulator::current_device();
  const bool blocking = flags == cudaStreamDefault;
  *stream = new CUstream_st{.blocking = blocking,
                            .device = device,
                            .number = emulator::races::Streams::instance().add(device, blocking),
                            .capture = nullptr};
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
  const cudaError_t error = emulator::forbid_during_capture(stream && stream->active_capture());
  emulator::races::Streams& streams = emulator::races::Streams::instance();
  if (error == cudaSuccess) streams.wait_on_host(streams.clock_of(emulator::number_of(stream)));
  return result(error);
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
    emulator::add_order(*stream->capture, [number = stream->number, order = event->order] {
      emulator::races::Streams::instance().wait(number, *order);
    });
    stream->capture->calls.streams.insert(stream->number);
    return cudaSuccess;
  }
  emulator::races::Streams::instance().wait(emulator::number_of(stream), *event->order);
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
    event->order = std::make_shared<emulator::races::StreamClock>();
    if (event->capture) {
      emulator::add_order(*event->capture, [number = stream->number, order = event->order] {
        *order = emulator::races::Streams::instance().clock_of(number);
      });
      return result(event->capture->valid ? cudaSuccess : cudaErrorStreamCaptureInvalidated);
    }
  }
  return result(emulator::submit(stream, [event] {
    event->time = std::chrono::steady_clock::now();
    *event->order = emulator::races::Streams::instance().clock_of(emulator::races::CurrentStream::number());
    return cudaSuccess;
  }));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (!event) return result(cudaErrorInvalidResourceHandle);
  const std::lock_guard lock(emulator::captures_mutex);
  if (!event->capture || event->capture->ended) {
    emulator::races::Streams::instance().wait_on_host(*event->order);
    return cudaSuccess;
  }
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
  *count = static_cast<std::size_t>(std::ranges::count_if(graph->calls.list, &emulator::Call::is_node));
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
