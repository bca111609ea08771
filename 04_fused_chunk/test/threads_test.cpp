/// @file
/// Host threads that call at the same time, each on a stream of its own, as docs/use.md allows: nobody's results depend on
/// what the others do. The kernels that `dispatch` takes here pass states and flags through the workspace.

#include <cuda_runtime.h>

#include <cstdint>
#include <thread>
#include <vector>

#include "04_fused_chunk/test/stages.hpp"
#include "common/device/error.hpp"
#include "common/device/stream.hpp"

namespace tutorial {
namespace {

/// What a thread computes, as often as the others: the gradients, or outputs, of a problem of its own.
struct Task {
  const Operator& definition;
  std::int64_t H, L, Dk, Dv;

  Outputs run() const {
    Problem problem = drawn(definition, 1, H, L, Dk, Dv);
    fill(problem.inputs.at("g"), -0.001f);  // so that segments get states from those before them
    return evaluate(definition, find_stage(definition, "dispatch"), problem);
  }
};

/// The results of four calls, on a stream of this thread's own.
std::vector<Outputs> on_own_stream(const Task& task) {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  set_current_stream(stream);
  std::vector<Outputs> found;
  for (int call = 0; call < 4; ++call) found.push_back(task.run());
  set_current_stream(nullptr);
  check(cudaStreamDestroy(stream));
  return found;
}

/// Expects the same results from threads that run at the same time as from one that runs alone.
void expect_same_together(const std::vector<Task>& tasks) {
  std::vector<std::vector<Outputs>> together(tasks.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      threads.emplace_back([&, i] { together[i] = on_own_stream(tasks[i]); });
    }
  }
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const Outputs alone = tasks[i].run();
    EXPECT_EQ(together[i].size(), 4u);
    for (const Outputs& found : together[i]) {
      for (const auto& [name, out] : found) EXPECT_EQ(compare(name, out, alone).error, 0) << i << " " << name;
    }
  }
}

TEST(Threads, Outputs) {
  const Operator& definition = find_operator("gla");
  expect_same_together({{definition, 1, 500, 64, 64}, {definition, 1, 450, 64, 64}, {definition, 1, 400, 64, 64}});
}

TEST(Threads, Gradients) {
  const Operator& definition = find_operator("simple_gla", "backward");
  expect_same_together({{definition, 1, 500, 64, 64}, {definition, 1, 300, 64, 128}, {definition, 2, 400, 64, 64}});
}

}  // namespace
}  // namespace tutorial
