/// @file
/// Every barrier of the chapter's kernels is needed, and the emulator notices if one is missing: each is taken out in
/// turn, and both a schedule (by a wrong result) and ThreadSanitizer (by a report) must find out.

#include "05_deltanet_wy/test/stages.hpp"

#if TUTORIAL_EMULATOR

#include <emulator/barrier.hpp>
#include <emulator/schedule.hpp>

#include <array>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <vector>

namespace tutorial {
namespace {

struct Kernel {
  const char* stage;
  const char* file;  // with the barriers, below the project's folder
  int Dk, Dv;        // few blocks, but more than one slice of the state: ThreadSanitizer takes a millisecond a thread
};

constexpr Kernel kKernels[] = {
    {"recurrent_gpu", "05_deltanet_wy/delta_rule/5_recurrent_gpu.cu", 128, 16},
    {"chunk_gpu", "05_deltanet_wy/delta_rule/6_chunk_gpu.cu", 80, 16},
    {"tensor_core", "05_deltanet_wy/delta_rule/prepare.cu", 16, 16},
    {"tensor_core", "05_deltanet_wy/delta_rule/7_tensor_core.cu", 80, 16},
    {"fused", "common/device/block_barrier.cuh", 16, 16},
};

/// The lines of a source file that wait at a block barrier.
std::vector<unsigned> barrier_lines(const std::string& file) {
  std::ifstream source(std::string(CHAPTER_FOLDER "/../") + file);
  std::vector<unsigned> lines;
  std::string text;
  for (unsigned line = 1; std::getline(source, text); ++line) {
    const std::size_t barrier = text.find("__syncthreads()");
    if (barrier != std::string::npos && barrier < text.find("//")) lines.push_back(line);
  }
  return lines;
}

class BarriersTest : public testing::TestWithParam<Kernel> {
 protected:
  void TearDown() override {
    emulator::skip_no_barrier();
    emulator::set_schedule("");
  }
};

#if !defined(__SANITIZE_THREAD__)
constexpr std::array kSchedules = {"forward", "reverse", "warps", "warps-reverse", "random:1", "random:2"};

TEST_P(BarriersTest, SomeScheduleShowsThatItIsMissing) {
  const Operator& definition = delta_rule_operator();
  const Stage& stage = find_stage(definition, GetParam().stage);
  const Problem problem = make_problem(
      definition, {.sizes = {{"B", 1}, {"H", 1}, {"L", 70}, {"Dk", GetParam().Dk}, {"Dv", GetParam().Dv}}, .seed = 1});
  const Outputs truth = evaluate_reference(definition, problem, stage.dtype);
  const auto is_right = [&] {
    const Outputs outputs = evaluate(definition, stage, problem);
    const double tolerance = tolerance_of(stage, problem.sizes);
    return compare(outputs.at("o"), truth.at("o")).within(tolerance) &&
           compare(outputs.at("final_state"), truth.at("final_state")).within(tolerance);
  };
  const std::vector<unsigned> lines = barrier_lines(GetParam().file);
  ASSERT_FALSE(lines.empty());
  for (const char* schedule : kSchedules) {
    emulator::set_schedule(schedule);
    EXPECT_TRUE(is_right()) << "with all barriers, " << schedule;
  }
  for (const unsigned line : lines) {
    emulator::skip_barrier(GetParam().file, line);
    int wrong = 0;
    std::cout << GetParam().file << ":" << line << " taken out:";
    for (const char* schedule : kSchedules) {
      emulator::set_schedule(schedule);
      const bool right = is_right();
      wrong += !right;
      std::cout << "  " << schedule << (right ? " right" : " WRONG");
    }
    std::cout << "\n";
    EXPECT_GT(wrong, 0) << GetParam().file << ":" << line;
  }
}
#else
/// What the chapter's executable prints when it runs the stage with this barrier taken out ("": none). The problem is
/// that of the schedules.
std::string run_stage(const Kernel& kernel, const std::string& skip) {
  const std::string command = (skip.empty() ? "" : "EMULATOR_SKIP_BARRIER=" + skip + " ") +
                              std::string("'" CHAPTER_EXECUTABLE "' --stage ") + kernel.stage +
                              " -B 1 -H 1 -L 70 --seed 1 --key-dim " + std::to_string(kernel.Dk) + " --value-dim " +
                              std::to_string(kernel.Dv) + " --repeat 1 --warmup 0 2>&1";
  std::string text;
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) throw std::runtime_error("cannot run " + command);
  for (int c; (c = std::fgetc(pipe)) != EOF;) text += char(c);
  pclose(pipe);
  return text;
}

TEST_P(BarriersTest, ThreadSanitizerReportsThatItIsMissing) {
  EXPECT_EQ(run_stage(GetParam(), "").find("data race"), std::string::npos);
  const std::string file = GetParam().file;
  for (const unsigned line : barrier_lines(GetParam().file)) {
    const std::string report = run_stage(GetParam(), file + ":" + std::to_string(line));
    EXPECT_NE(report.find("data race"), std::string::npos) << file << ":" << line << "\n" << report;
    EXPECT_NE(report.find("_deltanet_wy/"), std::string::npos) << "the report names one of the chapter's files";
  }
}
#endif

INSTANTIATE_TEST_SUITE_P(Kernels, BarriersTest, testing::ValuesIn(kKernels), [](const auto& info) {
  return std::string(info.param.stage) + "_" + std::to_string(info.index) + "_" + std::to_string(info.param.Dk) + "_" +
         std::to_string(info.param.Dv);
});

}  // namespace
}  // namespace tutorial

#endif
