#include "common/timing.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "common/chapter/chapter.hpp"
#include "common/chapter/evaluate.hpp"
#include "common/device/error.hpp"
#include "common/device/stream.hpp"
#include "common/parts.hpp"
#include "common/roofline.hpp"

namespace tutorial {
namespace {

using std::chrono::milliseconds;

TEST(Roofline, TheCopyTakesAQuarterOfTheMemory) {
  for (const std::size_t available : {std::size_t{8} << 20, std::size_t{1} << 30, std::size_t{1} << 40}) {
    EXPECT_LE(8 * copied_bytes(available), available);
    EXPECT_GE(copied_bytes(available), std::size_t{1} << 20);
  }
}

TEST(Timing, MedianMinimumAndMaximum) {
  int call = 0;
  const std::vector<int> sleeps{1, 40, 5, 5, 5};  // the first is the warm-up
  const Times times = time_on_host({.call = [&] { std::this_thread::sleep_for(milliseconds(sleeps[call++])); }},
                                   {.warmup = 1, .least = 4, .most = 4});
  EXPECT_EQ(call, 5);
  EXPECT_EQ(times.runs, 4);
  EXPECT_GE(times.min, 5);
  EXPECT_LE(times.min, times.median);
  EXPECT_LE(times.median, times.max);
  EXPECT_GE(times.max, 40);
}

TEST(Timing, StopsWhenTheBudgetIsSpent) {
  const auto slow = [] { std::this_thread::sleep_for(milliseconds(20)); };
  EXPECT_EQ(time_on_host({.call = slow}, {.warmup = 0, .least = 3, .most = 20, .budget_s = 0.01}).runs, 3);
  const int runs = time_on_host({.call = slow}, {.warmup = 0, .least = 1, .most = 100, .budget_s = 1}).runs;
  EXPECT_GE(runs, 2);  // a busy machine may take its time with each
  EXPECT_LE(runs, 50);
}

TEST(Timing, PreparationIsNotTimed) {
  int prepared = 0;
  std::vector<int> reported;
  const Times times = time_on_host({.call = [] {},
                                    .prepare =
                                        [&] {
                                          ++prepared;
                                          std::this_thread::sleep_for(milliseconds(20));
                                        },
                                    .progress = [&](int run, int) { reported.push_back(run); }},
                                   {.warmup = 1, .least = 2, .most = 2});
  EXPECT_EQ(prepared, 3);
  EXPECT_EQ(reported, (std::vector<int>{1, 2}));
  EXPECT_LT(times.min, 10);
}

TEST(Timing, PartsFollowOneAnother) {
  int calls = 0;
  const auto call = [&] {
    ++calls;
    std::this_thread::sleep_for(milliseconds(20));
    end_part("long");
    std::this_thread::sleep_for(milliseconds(1));
    end_part("short");
    std::this_thread::sleep_for(milliseconds(100));  // belongs to no part
  };
  const std::vector<PartTimes> parts = time_parts_on_host({.call = call}, {.warmup = 1, .least = 3, .most = 3});
  EXPECT_EQ(calls, 4);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].name, "long");
  EXPECT_EQ(parts[0].times.runs, 3);
  EXPECT_GE(parts[0].times.min, 20);
  EXPECT_EQ(parts[1].name, "short");
  EXPECT_GE(parts[1].times.min, 1);
  EXPECT_LT(parts[1].times.min, 20);
  call();  // nobody listens any more
  EXPECT_TRUE(time_parts_on_host({.call = [] {}}, {.warmup = 0, .least = 1, .most = 1}).empty());
}

TEST(Timing, PartsOnAStream) {
  GpuTimer timer;
  const auto parts = timer.time_parts({.call =
                                           [] {
                                             end_part("first");
                                             end_part("second");
                                           }},
                                      {.warmup = 1, .least = 3, .most = 3});
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[1].name, "second");
  EXPECT_EQ(parts[1].times.runs, 3);
  EXPECT_GE(parts[1].times.min, 0);
  EXPECT_LT(parts[1].times.median, 100);
}

// A kernel of the toy chapter: what the GPU timer measures is what the stage computes, in a graph, too.
TEST(Timing, GpuTimerRunsTheStageOnItsStream) {
  const Chapter toys = chapter();
  const Operator& definition = toys.operators()[0];
  const Stage& kernel = *definition.find("kernel");
  const Problem problem = make_problem(definition, {.sizes = {{"B", 1}, {"H", 1}, {"L", 4}}, .seed = 1});
  StageTensors placement(definition, problem, Processor::gpu, Dtype::fp32, Dtype::fp32);
  int calls = 0;
  const auto call = [&] {
    ++calls;
    kernel.run(placement.call());
  };
  {
    GpuTimer timer;
    EXPECT_NE(current_stream(), nullptr);
    const Times times = timer.time({.call = call}, {.warmup = 1, .least = 3, .most = 3});
    EXPECT_EQ(times.runs, 3);
    EXPECT_EQ(calls, 4);
    EXPECT_GE(times.min, 0);

    placement.poison_outputs();
    calls = 0;
    const double graph_ms = timer.time_in_graph([&] { call(); }, 1.0);
    EXPECT_EQ(calls, 1 + 3);  // once before, then captured: 3 ms of calls
    EXPECT_GT(graph_ms, 0);
    const double o = placement.download_outputs().find("o")->second.value(0);
    EXPECT_EQ(o, evaluate(definition, kernel, problem).find("o")->second.value(0));
  }
  EXPECT_EQ(current_stream(), nullptr);
}

TEST(Timing, ACallThatCannotBeCapturedThrows) {
  GpuTimer timer;
  int calls = 0;
  EXPECT_THROW(timer.time_in_graph(
                   [&] {
                     if (++calls > 1) throw CudaError(cudaErrorInvalidValue, "test", std::source_location::current());
                   },
                   1.0),
               CudaError);
  check(cudaStreamSynchronize(current_stream()));  // the stream still works
}

TEST(Roofline, OfTheProcessor) {
  const Roofline roofline = measure_cpu_roofline(std::size_t{8} << 30);
  EXPECT_GT(roofline.copy_bytes_s, 1e8);
  EXPECT_LT(roofline.copy_bytes_s, 1e13);
  EXPECT_GT(roofline.fma_flops_s, 1e7);
  EXPECT_LT(roofline.fma_flops_s, 1e15);
}

#if TUTORIAL_CUDA
TEST(Roofline, OfTheGpu) {
  const Roofline roofline = measure_gpu_roofline({.fma = true, .tensor = true, .exponentials = true});
  EXPECT_GT(roofline.copy_bytes_s, 5e10);
  EXPECT_LT(roofline.copy_bytes_s, 5e13);
  EXPECT_GT(roofline.fma_flops_s, 1e12);
  EXPECT_GT(roofline.tensor_flops_s, 2 * roofline.fma_flops_s);
  EXPECT_LT(roofline.exponentials_s, roofline.fma_flops_s / 2);
  EXPECT_GT(roofline.exponentials_s, roofline.fma_flops_s / 64);
  EXPECT_EQ(measure_gpu_roofline({}).tensor_flops_s, 0);  // what is not asked for is not measured
}
#endif

}  // namespace
}  // namespace tutorial
