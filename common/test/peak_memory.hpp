#pragma once
/// @file
/// The memory that a stage or a reference takes, against what it says.

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <thread>

#include "common/chapter/operator.hpp"
#include "common/chapter/problem.hpp"
#include "common/chapter/stage_tensors.hpp"

namespace tutorial {

/// The most bytes that large arrays take while `work` runs, looked at every fraction of a millisecond.
template <class F>
double peak_bytes(F work) {
  mallopt(M_MMAP_THRESHOLD, 1 << 16);  // each array is mapped by itself, and counted
  const std::size_t before = mallinfo2().hblkhd;
  std::size_t peak = before;
  std::jthread watcher([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) peak = std::max(peak, mallinfo2().hblkhd);
  });
  work();
  watcher.request_stop();
  watcher.join();
  return static_cast<double>(peak - before);
}

/// Expects that a CPU stage, or the reference where there is none of this name, takes at most the memory that it says,
/// and at least a third of that.
inline void expect_stated_memory(const Operator& definition, const std::string& stage_name, const Sizes& sizes) {
#if defined(EMULATOR_ASAN) || defined(EMULATOR_TSAN)
  GTEST_SKIP() << "a sanitizer has an allocator of its own";
#endif
  const Stage* stage = definition.find(stage_name);
  const Problem problem = make_problem(definition, {.sizes = sizes, .seed = 1});
  StageTensors tensors(definition, problem, Processor::cpu, Dtype::fp32, Dtype::fp32);
  const Call call = tensors.call();
  const auto stated = static_cast<double>(stage ? stage->memory(call) : definition.reference_memory(call));
  const double peak = peak_bytes([&] {
    if (stage) {
      stage->run(call);
    } else {
      definition.compute_reference(call, Dtype::fp32);
    }
  });
  // Eigen's products copy tiles, some on each thread; on 16 threads these took 1.8 MB.
  const double tiles = (1 << 20) + std::thread::hardware_concurrency() * (1 << 17);
  EXPECT_LE(peak, stated + tiles) << stage_name;
  EXPECT_GE(peak, stated / 3) << stage_name;
}

}  // namespace tutorial
