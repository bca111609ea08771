#pragma once
/// @file
/// A test for every chapter: each barrier of its kernels is needed, and the emulator notices if one is missing. Each is
/// taken out in turn, and both a schedule (by a wrong result) and ThreadSanitizer (by a report) must find out.
///
/// A chapter's barriers_test.cpp includes this once, and instantiates the tests with its kernels:
///
///     constexpr KernelWithBarriers kKernels[] = {{"gla", "chunk_gpu", "03_gla/gla/6_chunk_gpu.cu", 128, 16}};
///     INSTANTIATE_TEST_SUITE_P(Kernels, BarriersTest, testing::ValuesIn(kKernels), name_of_kernel);
///
/// It is compiled with CHAPTER_FOLDER and CHAPTER_EXECUTABLE, and linked with the chapter's main.cpp.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <emulator/barrier.hpp>
#include <emulator/schedule.hpp>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/chapter/chapter.hpp"
#include "common/chapter/evaluate.hpp"
#include "common/chapter/run_operator.hpp"
#include "common/compare.hpp"

namespace tutorial {

struct KernelWithBarriers {
  const char *definition, *stage;  ///< that run the kernel: the operator's label, as "delta_rule --normalize-keys"
  const char* file;                ///< with the barriers, below the project's folder
  int Dk, Dv;  ///< few blocks, but more than one slice of what they walk: ThreadSanitizer takes a millisecond a thread
  int L = 70;  ///< long enough that shared memory is used again
};

inline std::string name_of_kernel(const testing::TestParamInfo<KernelWithBarriers>& info) {
  const KernelWithBarriers& kernel = info.param;
  std::string name = std::string(kernel.definition) + "_" + kernel.stage + "_" + std::to_string(kernel.Dk) + "_" +
                     std::to_string(kernel.Dv) + "_" + std::to_string(info.index);
  std::ranges::replace_if(
      name, [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name;
}

/// The lines of a source file that wait at a block barrier.
inline std::vector<unsigned> barrier_lines(const std::string& file) {
  std::ifstream source(std::string(CHAPTER_FOLDER "/../") + file);
  std::vector<unsigned> lines;
  std::string text;
  for (unsigned line = 1; std::getline(source, text); ++line) {
    const std::size_t barrier = text.find("__syncthreads()");
    if (barrier != std::string::npos && barrier < text.find("//")) lines.push_back(line);
  }
  return lines;
}

class BarriersTest : public testing::TestWithParam<KernelWithBarriers> {
 protected:
  void TearDown() override {
    emulator::skip_no_barrier();
    emulator::set_schedule("");
  }
};

#if !defined(__SANITIZE_THREAD__)
TEST_P(BarriersTest, SomeScheduleShowsThatItIsMissing) {
  constexpr std::array kSchedules = {"forward", "reverse", "warps", "warps-reverse", "random:1", "random:2"};
  const KernelWithBarriers& kernel = GetParam();
  const Chapter all = chapter();
  const Operator& definition = *std::ranges::find(all.operators(), kernel.definition, &Operator::label);
  const Stage& stage = *std::ranges::find(definition.stages(), kernel.stage, &Stage::name);
  const Problem problem = make_problem(
      definition, {.sizes = {{"B", 1}, {"H", 1}, {"L", kernel.L}, {"Dk", kernel.Dk}, {"Dv", kernel.Dv}}, .seed = 1});
  const Outputs truth = evaluate_reference(definition, problem, stage.dtype);
  const auto is_right = [&] {
    const Outputs outputs = evaluate(definition, stage, problem);
    const double tolerance = tolerance_of(stage, problem.sizes);
    return std::ranges::all_of(
        outputs, [&](const auto& output) { return compare(output.second, truth.at(output.first)).within(tolerance); });
  };
  const std::vector<unsigned> lines = barrier_lines(kernel.file);
  ASSERT_FALSE(lines.empty());
  for (const char* schedule : kSchedules) {
    emulator::set_schedule(schedule);
    EXPECT_TRUE(is_right()) << "with all barriers, " << schedule;
  }
  for (const unsigned line : lines) {
    emulator::skip_barrier(kernel.file, line);
    int wrong = 0;
    std::cout << kernel.file << ":" << line << " taken out:";
    for (const char* schedule : kSchedules) {
      emulator::set_schedule(schedule);
      const bool right = is_right();
      wrong += !right;
      std::cout << "  " << schedule << (right ? " right" : " WRONG");
    }
    std::cout << "\n";
    EXPECT_GT(wrong, 0) << kernel.file << ":" << line;
  }
}
#else
/// What the chapter's executable prints when it runs the stage with this barrier taken out ("": none). The problem is
/// that of the schedules.
inline std::string run_without_barrier(const KernelWithBarriers& kernel, const std::string& skip) {
  const std::string command = (skip.empty() ? "" : "EMULATOR_SKIP_BARRIER=" + skip + " ") +
                              std::string("'" CHAPTER_EXECUTABLE "' --operator ") + kernel.definition + " --stage " +
                              kernel.stage + " -B 1 -H 1 --seed 1 -L " + std::to_string(kernel.L) + " --key-dim " +
                              std::to_string(kernel.Dk) + " --value-dim " + std::to_string(kernel.Dv) +
                              " --repeat 1 --warmup 0 2>&1";
  std::string text;
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) throw std::runtime_error("cannot run " + command);
  for (int c; (c = std::fgetc(pipe)) != EOF;) text += char(c);
  pclose(pipe);
  return text;
}

TEST_P(BarriersTest, ThreadSanitizerReportsThatItIsMissing) {
  const std::string folder(CHAPTER_FOLDER), chapter = folder.substr(folder.rfind('/') + 1), file = GetParam().file;
  EXPECT_EQ(run_without_barrier(GetParam(), "").find("data race"), std::string::npos);
  for (const unsigned line : barrier_lines(file)) {
    const std::string report = run_without_barrier(GetParam(), file + ":" + std::to_string(line));
    EXPECT_NE(report.find("data race"), std::string::npos) << file << ":" << line << "\n" << report;
    EXPECT_NE(report.find(chapter + "/"), std::string::npos) << "the report names one of the chapter's files";
  }
}
#endif

}  // namespace tutorial
