#pragma once
/// @file
/// How long a call takes: on the host with a steady clock, on a GPU with events, and in a graph of repeated calls. What
/// the call throws is passed on.

#include <cuda_runtime.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tutorial {

/// Milliseconds of one call over several timed runs.
struct Times {
  double median = 0;
  double min = 0;
  double max = 0;
  int runs = 0;
};

/// How many runs are made; `most` is at least 1.
struct TimingPlan {
  int warmup = 1;       ///< runs that are not timed
  int least = 20;       ///< timed runs at least
  int most = 20;        ///< timed runs at most
  double budget_s = 2;  ///< after `least` runs, those that fit in this time; what `prepare` takes counts, too
};

/// What is timed, and what happens around it.
struct Timed {
  std::function<void()> call;
  std::function<void()> prepare = [] {};                              ///< before every run, not timed
  std::function<void(int run, int runs)> progress = [](int, int) {};  ///< run 1.. of at most `runs`
};

/// Milliseconds of one part of a call (common/parts.hpp).
struct PartTimes {
  std::string name;
  Times times;
};

/// Times calls that have ended when they return.
Times time_on_host(const Timed& timed, const TimingPlan& plan);

/// Times the parts of such calls; none where a call does not say what its parts are. Every call has the same parts, in
/// the same order; std::out_of_range where one has fewer than the first.
std::vector<PartTimes> time_parts_on_host(const Timed& timed, const TimingPlan& plan);

/// Times work that is queued on a stream of a GPU. Its functions throw CudaError where the runtime fails.
class GpuTimer {
 public:
  /// Takes twice the size of the L2 cache of device memory, in bytes; CudaError with cudaErrorMemoryAllocation where it
  /// is not there. The timer's stream becomes current_stream() for its life.
  GpuTimer();
  GpuTimer(const GpuTimer&) = delete;
  GpuTimer& operator=(const GpuTimer&) = delete;
  ~GpuTimer();

  /// Times calls that queue work on current_stream(). Between runs the L2 cache is filled with other data, so that
  /// every run finds its inputs in memory.
  Times time(const Timed& timed, const TimingPlan& plan);

  /// The same runs, with an event after each part. A part finds in the cache what the part before it has left there.
  std::vector<PartTimes> time_parts(const Timed& timed, const TimingPlan& plan);

  /// Milliseconds of one of many calls in a CUDA graph, with no gaps between them and nothing flushed: the median of
  /// several replays over the number of calls. `estimate_ms` is about how long one call takes. Throws CudaError where
  /// the call cannot be captured.
  double time_in_graph(const std::function<void()>& call, double estimate_ms);

 private:
  void flush_l2();
  float elapsed_ms(const std::function<void()>& work);

  cudaStream_t stream_ = nullptr;
  cudaStream_t previous_ = nullptr;
  cudaEvent_t start_ = nullptr;
  cudaEvent_t stop_ = nullptr;
  std::vector<cudaEvent_t> part_ends_;
  void* flush_ = nullptr;
  std::size_t flush_bytes_ = 0;
};

}  // namespace tutorial
