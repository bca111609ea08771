#pragma once
/// @file
/// A test for every chapter: each barrier of its kernels is needed, and the emulator notices if one is missing. Each is
/// taken out in turn, and both a schedule (by a wrong result) and ThreadSanitizer (by a report) must find out. The same
/// holds for arrivals, waits, commits and fences (barrier_lines.hpp), but for them a wrong result or a kernel that
/// never ends is enough for ThreadSanitizer's build, too. In the build with the emulator's detector of races each of them is
/// removed, weakened and moved, and the detector must notice, in one schedule, but for harmless_mutants.hpp.
///
/// A chapter's barriers_test.cpp includes this once, and instantiates the tests with its kernels:
///
///     constexpr KernelWithBarriers kKernels[] = {{"gla", "chunk_gpu", "03_gla/gla/5_chunk_gpu.cu", 128, 16}};
///     INSTANTIATE_TEST_SUITE_P(Kernels, BarriersTest, testing::ValuesIn(kKernels), name_of_kernel);
///     INSTANTIATE_TEST_SUITE_P(Kernels, WholeKernelsTest, testing::ValuesIn(distinct_runs(kKernels)), name_of_kernel);
///
/// It is compiled with CHAPTER_FOLDER and CHAPTER_EXECUTABLE. A stage runs in the chapter's executable: without a
/// barrier it may crash, or wait forever.

#include <gtest/gtest.h>

#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iostream>
#include <regex>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/test/barrier_lines.hpp"
#include "common/test/harmless_mutants.hpp"

namespace tutorial {

struct KernelWithBarriers {
  const char *definition, *stage;  ///< that run the kernel, as on the command line: "delta_rule --normalize-keys"
  const char* file;                ///< with the barriers, below the project's folder
  int Dk, Dv;  ///< few blocks, but more than one slice of what they walk: ThreadSanitizer takes a millisecond a thread.
               ///< Dk is 0 where the operator has none
  int L = 70;  ///< long enough that shared memory is used again
  /// Of a file with several: the name of the one that is meant, with the functions between it and the next.
  const char* kernel = "";
  const char* environment = "";  ///< NAME=VALUE: what makes the stage choose this kernel
  /// A regular expression for calls whose loss the emulator cannot show; the test's file says why.
  const char* unseen = nullptr;
  /// A file of inputs below the project's folder, in the place of random ones of the sizes above.
  const char* input = nullptr;
};

inline std::string name_of_kernel(const testing::TestParamInfo<KernelWithBarriers>& info) {
  const KernelWithBarriers& kernel = info.param;
  std::string name = std::string(kernel.definition) + "_" + kernel.stage + "_" + std::to_string(kernel.Dk) + "_" +
                     std::to_string(kernel.Dv) + "_" + std::to_string(info.index);
  std::ranges::replace_if(
      name, [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name;
}

/// The kernels of a table without those of which another one has the same run: other files, or other kernels of a file.
inline std::vector<KernelWithBarriers> distinct_runs(std::span<const KernelWithBarriers> table) {
  std::vector<KernelWithBarriers> distinct;
  std::set<std::string> runs;
  for (const KernelWithBarriers& kernel : table) {
    std::string run;
    for (const char* text : {kernel.definition, kernel.stage, kernel.environment, kernel.input ? kernel.input : ""})
      run += text + std::string("\n");
    for (const int size : {kernel.Dk, kernel.Dv, kernel.L}) run += std::to_string(size) + "\n";
    if (runs.insert(run).second) distinct.push_back(kernel);
  }
  return distinct;
}

/// The lines of the kernel's file, or of the kernel, that can be taken out and whose loss shows.
inline std::vector<BarrierLine> barrier_lines(const KernelWithBarriers& kernel) {
  std::ifstream source(std::string(CHAPTER_FOLDER "/../") + kernel.file);
  std::vector<BarrierLine> lines = barrier_lines(source, kernel.kernel);
  if (kernel.unseen) {
    const std::regex unseen(kernel.unseen);
    std::erase_if(lines, [&](const BarrierLine& line) { return std::regex_search(line.code, unseen); });
  }
  return lines;
}

/// How a run ended.
struct StageRun {
  bool is_right = false;  ///< it ended in time, with status 0: every output is near the reference
  std::string text;       ///< what it printed
};

/// Runs the stage once.
/// @param schedule the order of threads and blocks, and other variables after it
/// @param skip the line of a barrier that is taken out; 0: none
/// @param fault ":relaxed" and its like: what is done to the barrier instead
inline StageRun run_stage(const KernelWithBarriers& kernel, const std::string& schedule, unsigned skip = 0,
                          const std::string& fault = "") {
#if defined(EMULATOR_TSAN) || defined(EMULATOR_RACES_BUILD)
  const std::string patience = "120";  // seconds; a run with all barriers takes up to 10
#else
  const std::string patience = "20";  // seconds; a run with all barriers takes one, on a busy machine some
#endif
  std::string command = "EMULATOR_SCHEDULE=" + schedule;
  if (skip != 0) command += " EMULATOR_SKIP_BARRIER=" + std::string(kernel.file) + ":" + std::to_string(skip) + fault;
  if (*kernel.environment) command += std::string(" ") + kernel.environment;
  command += " timeout " + patience + " '" CHAPTER_EXECUTABLE "' --operator " + kernel.definition + " --stage " +
             kernel.stage + " --repeat 0";
  if (kernel.input) {
    command += " --input '" CHAPTER_FOLDER "/../" + std::string(kernel.input) + "'";
  } else {
    command += " -B 1 -H 1 --seed 1 -L " + std::to_string(kernel.L) + " --value-dim " + std::to_string(kernel.Dv);
    if (kernel.Dk != 0) command += " --key-dim " + std::to_string(kernel.Dk);
  }
  command += " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) throw std::runtime_error("cannot run " + command);
  StageRun run;
  for (int c; (c = std::fgetc(pipe)) != EOF;) run.text += char(c);
  const int status = pclose(pipe);
  run.is_right = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return run;
}

class BarriersTest : public testing::TestWithParam<KernelWithBarriers> {};

/// Each run of these once. With a sanitizer or the detector of races it has no tests.
class WholeKernelsTest : public testing::TestWithParam<KernelWithBarriers> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(WholeKernelsTest);

#if defined(EMULATOR_RACES_BUILD)
/// What is done to a line: it hands over nothing (relaxed), or as if it stood before or after the accesses around it
/// (early, late), while threads run as ever, so that nothing but the detector can notice; or it is taken out, or counts
/// one more group or one arrival less (weaker), and then the result may tell, too. An arrival that comes later and a wait
/// that comes earlier are no mistakes.
inline std::vector<std::string> faults_of(const std::string& code) {
  const auto has = [&](const char* expression) { return std::regex_search(code, std::regex(expression)); };
  if (has("__syncthreads|wait_at_named_barrier|cluster_sync|fence_async")) return {":relaxed", ":early", ":late"};
  if (has(R"(\.wait\(|wait_cluster\(|cluster_wait\()")) return {":relaxed", ":late"};
  if (has(R"(\.arrive\(|arrive_at\(|cluster_arrive\(|arrive_at_named_barrier\()")) return {":relaxed", ":early"};
  if (has("_wait<|wait_stores")) return {"", ":weaker"};
  if (has(R"(\.init\()"))
    return has(R"(\.init\((?!1\)))") ? std::vector<std::string>{":weaker"} : std::vector<std::string>{};
  return {""};
}

/// The line before, the line and the line after.
inline std::string lines_around(const std::vector<std::string>& source, unsigned number) {
  const auto line = [&](unsigned i) { return i >= 1 && i <= source.size() ? source[i - 1] : std::string(); };
  return line(number - 1) + "\n" + line(number) + "\n" + line(number + 1);
}

// All mutants of a kernel that the table of a chapter names, in one order of threads: the detector needs no other.
TEST_P(BarriersTest, TheDetectorOfRacesNoticesEachMutant) {
  const StageRun whole = run_stage(GetParam(), "forward");
  ASSERT_TRUE(whole.is_right) << whole.text;
  const std::string file = GetParam().file;
  std::ifstream stream(std::string(CHAPTER_FOLDER "/../") + file);
  std::vector<std::string> source;
  for (std::string line; std::getline(stream, line);) source.push_back(line);
  std::ifstream again(std::string(CHAPTER_FOLDER "/../") + file);
  int mutants = 0;
  for (const BarrierLine& line : barrier_lines(again, GetParam().kernel, true)) {
    for (const std::string& fault : faults_of(line.code)) {
      const StageRun run = run_stage(GetParam(), "forward", line.number, fault);
      if (run.text.find("no kernel came to a barrier") != std::string::npos) continue;  // of another branch
      ++mutants;
      if (!run.is_right) continue;
      const std::string name = file + ":" + std::to_string(line.number) + (fault.empty() ? ":removed" : fault);
      const char* why = why_harmless(file, lines_around(source, line.number), fault.empty() ? "" : fault.substr(1));
      // Of a commit or a wait whose loss no schedule shows, or for which a given problem is too short: the chapter's
      // table says why.
      const bool is_unseen = GetParam().unseen && std::regex_search(line.code, std::regex(GetParam().unseen));
      if (!why && is_unseen && (fault.empty() || fault == ":weaker" || GetParam().input))
        why = "its loss is not to be seen";
      EXPECT_TRUE(why) << name << line.code << " is not noticed";
      if (why) std::cout << name << " is harmless: " << why << "\n";
    }
  }
  std::cout << file << ": " << mutants << " mutants\n";
}

// A hand-over that is missing shows in one order. But another order may take another branch: who comes first, what has been
// announced by then.
TEST_P(BarriersTest, TheDetectorOfRacesHasNothingToSayInOtherOrders) {
  for (const char* schedule : {"warps", "random:1"}) {
    const StageRun run = run_stage(GetParam(), schedule);
    EXPECT_TRUE(run.is_right) << schedule << "\n" << run.text;
  }
}

/// The chapter's files that hand something over, as paths below the project's folder, and are in none of its tables.
inline std::vector<std::string> files_without_mutants(
    std::initializer_list<std::span<const KernelWithBarriers>> tables) {
  const std::filesystem::path chapter = CHAPTER_FOLDER;
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(chapter)) {
    const std::string extension = entry.path().extension();
    const std::string file = std::filesystem::relative(entry.path(), chapter.parent_path());
    if ((extension != ".cu" && extension != ".cuh") || file.find("/test/") != std::string::npos) continue;
    std::ifstream source(entry.path());
    if (barrier_lines(source, "", true).empty()) continue;
    const bool is_there = std::ranges::any_of(tables, [&](const auto& table) {
      return std::ranges::any_of(table, [&](const KernelWithBarriers& kernel) { return file == kernel.file; });
    });
    if (!is_there) files.push_back(file);
  }
  std::ranges::sort(files);
  return files;
}
#elif !defined(EMULATOR_TSAN)
// Those that find most come first: of 502 losses in chapters 03 and 05 the first one found 444, and the next two 36.
constexpr std::array kSchedules = {"forward", "warps", "reverse",
                                   // Tiles and products that are there at once let threads run further ahead.
                                   "warps-reverse EMULATOR_ASYNC=early", "random:1 EMULATOR_ASYNC=random:1",
                                   "forward EMULATOR_ASYNC=early", "warps-reverse", "reverse EMULATOR_ASYNC=early",
                                   "random:2 EMULATOR_ASYNC=random:2", "random:3 EMULATOR_ASYNC=random:3",
                                   "random:6 EMULATOR_ASYNC=early", "warps EMULATOR_ASYNC=early", "random:1",
                                   "random:2"};

/// Whether no other tests have it: those of shapes have the kernels in all orders of threads.
inline bool is_asynchronous(const std::string& schedule) {
  return schedule.find("ASYNC") != std::string::npos;
}

// Without which SomeScheduleShowsThatItIsMissing would show nothing.
TEST_P(WholeKernelsTest, AreRightWhenCopiesAndProductsAreEarlyOrLate) {
  for (const char* schedule : kSchedules) {
    if (!is_asynchronous(schedule)) continue;
    const StageRun run = run_stage(GetParam(), schedule);
    EXPECT_TRUE(run.is_right) << "with all barriers, " << schedule << "\n" << run.text;
  }
}

TEST_P(BarriersTest, SomeScheduleShowsThatItIsMissing) {
  const std::vector<BarrierLine> lines = barrier_lines(GetParam());
  ASSERT_FALSE(lines.empty());
  std::set<std::string> tried;
  const auto expect_whole_to_be_right = [&](const char* schedule) {
    if (is_asynchronous(schedule) || !tried.insert(schedule).second) return;
    const StageRun run = run_stage(GetParam(), schedule);
    EXPECT_TRUE(run.is_right) << "with all barriers, " << schedule << "\n" << run.text;
  };
  for (const BarrierLine& line : lines) {
    bool is_found = false;
    for (const char* schedule : kSchedules) {
      if (run_stage(GetParam(), schedule, line.number).is_right) continue;
      is_found = true;
      expect_whole_to_be_right(schedule);
      std::cout << GetParam().file << ":" << line.number << " taken out: wrong with " << schedule << "\n";
      break;
    }
    EXPECT_TRUE(is_found) << GetParam().file << ":" << line.number;
  }
}
#else
TEST_P(BarriersTest, ThreadSanitizerReportsThatItIsMissing) {
  const std::string folder(CHAPTER_FOLDER), chapter = folder.substr(folder.rfind('/') + 1);
  const StageRun whole = run_stage(GetParam(), "forward");
  EXPECT_TRUE(whole.is_right) << whole.text;
  EXPECT_EQ(whole.text.find("data race"), std::string::npos) << whole.text;
  for (const BarrierLine& line : barrier_lines(GetParam())) {
    if (!line.is_block_barrier) continue;  // the others show without ThreadSanitizer, in much less time
    const StageRun run = run_stage(GetParam(), "forward", line.number);
    const std::string& report = run.text;
    EXPECT_FALSE(run.is_right) << GetParam().file << ":" << line.number << "\n" << report;
    EXPECT_NE(report.find("data race"), std::string::npos) << GetParam().file << ":" << line.number << "\n" << report;
    EXPECT_NE(report.find(chapter + "/"), std::string::npos) << "the report names one of the chapter's files";
  }
}
#endif

}  // namespace tutorial
