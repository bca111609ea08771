#include "common/timing.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "common/device/error.hpp"
#include "common/device/stream.hpp"
#include "common/parts.hpp"

namespace tutorial {
namespace {

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Times times_of(const std::vector<double>& milliseconds) {
  const auto [min, max] = std::minmax_element(milliseconds.begin(), milliseconds.end());
  return {median_of(milliseconds), *min, *max, static_cast<int>(milliseconds.size())};
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Warm-up and timed runs of a plan. `measure` makes one run; what it returns is kept of the timed ones.
template <class Measure>
auto run_plan(const Timed& timed, const TimingPlan& plan, Measure measure) {
  for (int run = 0; run < plan.warmup; ++run) {
    timed.prepare();
    measure();
  }
  std::vector<decltype(measure())> measured;
  const auto start = std::chrono::steady_clock::now();
  for (int run = 1; run <= plan.most && (run <= plan.least || seconds_since(start) < plan.budget_s); ++run) {
    timed.progress(run, plan.most);
    timed.prepare();
    measured.push_back(measure());
  }
  return measured;
}

// The parts of one run, in their order.
struct TimedPart {
  std::string name;
  double milliseconds;
};
using Parts = std::vector<TimedPart>;

// One part over all runs, which have the same parts.
std::vector<PartTimes> times_of(const std::vector<Parts>& runs) {
  std::vector<PartTimes> parts;
  for (std::size_t i = 0; i < runs.front().size(); ++i) {
    std::vector<double> milliseconds;
    for (const Parts& run : runs) milliseconds.push_back(run.at(i).milliseconds);
    parts.push_back({runs.front()[i].name, times_of(milliseconds)});
  }
  return parts;
}

// A captured graph, ready to be launched.
class Graph {
 public:
  Graph(cudaStream_t stream, const std::function<void()>& work) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    try {
      work();
    } catch (...) {
      // The capture is void, but has to be ended before the stream works again.
      cudaStreamEndCapture(stream, &graph_);
      if (graph_ != nullptr) cudaGraphDestroy(graph_);
      (void)cudaGetLastError();
      throw;
    }
    check(cudaStreamEndCapture(stream, &graph_));
    check(cudaGraphInstantiate(&executable_, graph_, 0));
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() {
    if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
  }

  void launch(cudaStream_t stream) const { check(cudaGraphLaunch(executable_, stream)); }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace

Times time_on_host(const Timed& timed, const TimingPlan& plan) {
  return times_of(run_plan(timed, plan, [&] {
    const auto start = std::chrono::steady_clock::now();
    timed.call();
    return 1e3 * seconds_since(start);
  }));
}

std::vector<PartTimes> time_parts_on_host(const Timed& timed, const TimingPlan& plan) {
  return times_of(run_plan(timed, plan, [&] {
    Parts parts;
    auto start = std::chrono::steady_clock::now();
    const PartListener listener([&](const char* name) {
      parts.push_back({name, 1e3 * seconds_since(start)});
      start = std::chrono::steady_clock::now();
    });
    timed.call();
    return parts;
  }));
}

GpuTimer::GpuTimer() : previous_(current_stream()) {
  int device = 0;
  check(cudaGetDevice(&device));
  int l2_bytes = 0;
  check(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, device));
  flush_bytes_ = 2 * static_cast<std::size_t>(l2_bytes);
  check(cudaMalloc(&flush_, flush_bytes_));
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  check(cudaEventCreate(&start_));
  check(cudaEventCreate(&stop_));
  set_current_stream(stream_);
}

GpuTimer::~GpuTimer() {
  set_current_stream(previous_);
  for (const cudaEvent_t event : part_ends_) cudaEventDestroy(event);
  cudaEventDestroy(stop_);
  cudaEventDestroy(start_);
  cudaStreamDestroy(stream_);
  cudaFree(flush_);
}

void GpuTimer::flush_l2() {
  check(cudaMemsetAsync(flush_, 0, flush_bytes_, stream_));
}

float GpuTimer::elapsed_ms(const std::function<void()>& work) {
  check(cudaEventRecord(start_, stream_));
  work();
  check(cudaEventRecord(stop_, stream_));
  check(cudaEventSynchronize(stop_));
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, start_, stop_));
  return milliseconds;
}

Times GpuTimer::time(const Timed& timed, const TimingPlan& plan) {
  return times_of(run_plan(timed, plan, [&] {
    flush_l2();
    return static_cast<double>(elapsed_ms(timed.call));
  }));
}

std::vector<PartTimes> GpuTimer::time_parts(const Timed& timed, const TimingPlan& plan) {
  return times_of(run_plan(timed, plan, [&] {
    Parts parts;
    const PartListener listener([&](const char* name) {
      if (parts.size() == part_ends_.size()) check(cudaEventCreate(&part_ends_.emplace_back()));
      check(cudaEventRecord(part_ends_[parts.size()], stream_));
      parts.push_back({name, 0});
    });
    flush_l2();
    elapsed_ms(timed.call);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      float milliseconds = 0;
      check(cudaEventElapsedTime(&milliseconds, i == 0 ? start_ : part_ends_[i - 1], part_ends_[i]));
      parts[i].milliseconds = milliseconds;
    }
    return parts;
  }));
}

double GpuTimer::time_in_graph(const std::function<void()>& call, double estimate_ms) {
  constexpr double kReplayMs = 3;  // long against the launch of a graph and the resolution of events (0.5 us)
  constexpr int kReplays = 11;
  const int calls = static_cast<int>(std::clamp(std::ceil(kReplayMs / std::max(estimate_ms, 1e-6)), 2.0, 1000.0));
  call();  // whatever a first call allocates cannot be allocated during the capture
  check(cudaStreamSynchronize(stream_));
  const Graph graph(stream_, [&] {
    for (int i = 0; i < calls; ++i) call();
  });
  graph.launch(stream_);  // the first launch uploads it
  check(cudaStreamSynchronize(stream_));
  std::vector<double> milliseconds;
  for (int replay = 0; replay < kReplays; ++replay) {
    milliseconds.push_back(elapsed_ms([&] { graph.launch(stream_); }) / calls);
  }
  return median_of(milliseconds);
}

}  // namespace tutorial
