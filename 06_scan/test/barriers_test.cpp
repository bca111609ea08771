/// @file
/// Every barrier of the chapter's kernels is needed, and the emulator notices if one is missing: each is taken out in
/// turn, and both a schedule (by a wrong result) and ThreadSanitizer (by a report) must find out.

#include "06_scan/test/stages.hpp"

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
  const char* file;   // with the barriers, below the project's folder
  const char* begin;  // the name of the kernel whose barriers are meant
  int L, D;           // few blocks, but more than one tile: ThreadSanitizer takes a millisecond a thread
};

constexpr Kernel kKernels[] = {
    {"blelloch_gpu", "06_scan/scan/5_blelloch_gpu.cu", "blelloch_kernel", 1100, 1},
    {"warp_shuffle", "06_scan/scan/6_warp_shuffle.cu", "shuffle_kernel", 1100, 1},
    {"single_pass", "06_scan/scan/7_single_pass.cu", "time_kernel", 4500, 1},
    {"single_pass", "06_scan/scan/7_single_pass.cu", "channels_kernel", 300, 8},
};

/// The lines of a kernel that wait at a block barrier.
std::vector<unsigned> barrier_lines(const Kernel& kernel) {
  std::ifstream source(std::string(CHAPTER_FOLDER "/../") + kernel.file);
  std::vector<unsigned> lines;
  std::string text;
  bool is_inside = false;
  for (unsigned line = 1; std::getline(source, text); ++line) {
    if (text.find("__global__") == 0) is_inside = text.find(kernel.begin) != std::string::npos;
    const std::size_t barrier = text.find("__syncthreads()");
    if (is_inside && barrier != std::string::npos && barrier < text.find("//")) lines.push_back(line);
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
  const Operator& definition = scan_operator();
  const Stage& stage = find_stage(definition, GetParam().stage);
  const Problem problem = drawn(1, 1, GetParam().L, GetParam().D, GetParam().D);
  const Outputs truth = evaluate_reference(definition, problem);
  const auto is_right = [&] {
    try {
      const Outputs outputs = evaluate(definition, stage, problem);
      const double tolerance = tolerance_of(stage, problem.sizes);
      return compare(outputs.at("y"), truth.at("y")).within(tolerance) &&
             compare(outputs.at("final_state"), truth.at("final_state")).within(tolerance);
    } catch (const std::exception&) {
      return false;  // a launch that failed
    }
  };
  const std::vector<unsigned> lines = barrier_lines(GetParam());
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
                              std::string("'" CHAPTER_EXECUTABLE "' --operator scan --stage ") + kernel.stage +
                              " -B 1 -H 1 --seed 3 -L " + std::to_string(kernel.L) + " --value-dim " +
                              std::to_string(kernel.D) + " --repeat 1 --warmup 0 2>&1";
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
  for (const unsigned line : barrier_lines(GetParam())) {
    const std::string report = run_stage(GetParam(), file + ":" + std::to_string(line));
    EXPECT_NE(report.find("data race"), std::string::npos) << file << ":" << line << "\n" << report;
    EXPECT_NE(report.find("06_scan/"), std::string::npos) << "the report names one of the chapter's files";
  }
}
#endif

INSTANTIATE_TEST_SUITE_P(Kernels, BarriersTest, testing::ValuesIn(kKernels),
                         [](const auto& info) { return std::string(info.param.stage) + "_" + info.param.begin; });

}  // namespace
}  // namespace tutorial

#endif
