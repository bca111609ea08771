/// @file
/// Every barrier of the chapter's kernels is needed, and the emulator notices if one is missing: each is taken out in
/// turn, and both a schedule (by a wrong result) and ThreadSanitizer (by a report) must find out.

#include "06_scan/test/stages.hpp"

#if TUTORIAL_EMULATOR

#include <array>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <vector>

namespace tutorial {
namespace {

struct Kernel {
  const char *definition, *stage;
  const char* file;   // with the barriers, below the project's folder
  const char* begin;  // the name of the kernel whose barriers are meant, and those of functions behind it
  const char* sizes;  // few blocks, but more than one tile: ThreadSanitizer takes a millisecond a thread
};

constexpr Kernel kKernels[] = {
    {"scan", "blelloch_gpu", "06_scan/scan/5_blelloch_gpu.cu", "blelloch_kernel", "-L 1100 --value-dim 1"},
    {"scan", "warp_shuffle", "06_scan/scan/6_warp_shuffle.cu", "shuffle_kernel", "-L 1100 --value-dim 1"},
    {"scan", "single_pass", "06_scan/scan/7_single_pass.cu", "time_kernel", "-L 4500 --value-dim 1"},
    {"scan", "single_pass", "06_scan/scan/7_single_pass.cu", "channels_kernel", "-L 300 --value-dim 8"},
    {"simple_gla", "scan_states", "06_scan/simple_gla/5_scan_states.cu", "outputs_kernel",
     "-L 2 --key-dim 64 --value-dim 128"},
    {"simple_gla", "scan_fused", "06_scan/simple_gla/6_scan_fused.cu", "tiles_kernel",
     "-L 130 --key-dim 16 --value-dim 16"},
    {"delta_rule", "scan_affine", "06_scan/delta_rule/3_scan_affine.cu", "leaves_kernel",
     "-L 100 --key-dim 16 --value-dim 16"},
    {"delta_rule", "scan_affine", "06_scan/delta_rule/3_scan_affine.cu", "outputs_kernel",
     "-L 100 --key-dim 80 --value-dim 16"},
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

/// Seconds; a run with all barriers takes one, with ThreadSanitizer some more.
#if defined(__SANITIZE_THREAD__)
constexpr int kPatience = 30;
#else
constexpr int kPatience = 5;
#endif

class BarriersTest : public testing::TestWithParam<Kernel> {};

/// Runs the stage in the chapter's executable: without a barrier it may crash or wait forever.
/// @param environment NAME=VALUE before the command
/// @returns its exit status; `text` is what it prints
int run_stage(const Kernel& kernel, const std::string& environment, std::string& text) {
  const std::string command = environment + " timeout " + std::to_string(kPatience) +
                              " '" CHAPTER_EXECUTABLE "' --operator " + kernel.definition + " --stage " + kernel.stage +
                              " -B 1 -H 1 --seed 3 " + kernel.sizes + " --repeat 1 --warmup 0 2>&1";
  text.clear();
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) throw std::runtime_error("cannot run " + command);
  for (int c; (c = std::fgetc(pipe)) != EOF;) text += char(c);
  return pclose(pipe);
}

std::string without(const Kernel& kernel, unsigned line) {
  return "EMULATOR_SKIP_BARRIER=" + std::string(kernel.file) + ":" + std::to_string(line);
}

#if !defined(__SANITIZE_THREAD__)
constexpr std::array kSchedules = {"forward", "reverse", "warps", "warps-reverse", "random:1", "random:2"};

TEST_P(BarriersTest, SomeScheduleShowsThatItIsMissing) {
  const std::vector<unsigned> lines = barrier_lines(GetParam());
  ASSERT_FALSE(lines.empty());
  std::string text;
  for (const std::string schedule : kSchedules) {
    EXPECT_EQ(run_stage(GetParam(), "EMULATOR_SCHEDULE=" + schedule, text), 0) << "with all barriers\n" << text;
  }
  for (const unsigned line : lines) {
    bool is_found = false;
    for (const std::string schedule : kSchedules) {
      if (run_stage(GetParam(), "EMULATOR_SCHEDULE=" + schedule + " " + without(GetParam(), line), text) == 0) continue;
      is_found = true;
      std::cout << GetParam().file << ":" << line << " taken out: wrong with " << schedule << "\n";
      break;
    }
    EXPECT_TRUE(is_found) << GetParam().file << ":" << line;
  }
}
#else
TEST_P(BarriersTest, ThreadSanitizerReportsThatItIsMissing) {
  std::string text;
  EXPECT_EQ(run_stage(GetParam(), "", text), 0);
  EXPECT_EQ(text.find("data race"), std::string::npos) << text;
  for (const unsigned line : barrier_lines(GetParam())) {
    run_stage(GetParam(), without(GetParam(), line), text);
    EXPECT_NE(text.find("data race"), std::string::npos) << GetParam().file << ":" << line << "\n" << text;
    EXPECT_NE(text.find("06_scan/"), std::string::npos) << "the report names one of the chapter's files";
  }
}
#endif

INSTANTIATE_TEST_SUITE_P(Kernels, BarriersTest, testing::ValuesIn(kKernels),
                         [](const auto& info) { return std::string(info.param.stage) + "_" + info.param.begin; });

}  // namespace
}  // namespace tutorial

#endif
