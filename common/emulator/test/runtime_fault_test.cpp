// What sanitizers, signal handlers and the debugger make of kernels that are wrong: each runs in a process of its own.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <fstream>
#include <ostream>
#include <string>

#ifdef EMULATOR_ASAN
constexpr bool kAddressSanitizer = true;
#else
constexpr bool kAddressSanitizer = false;
#endif
#ifdef EMULATOR_TSAN
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif

namespace emulator::test {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

struct Outcome {
  std::string output;  // standard output and error
  int status = -1;     // as waitpid() gives it
};

Outcome run(const std::string& command) {
  Outcome outcome;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  char text[4096];
  while (const std::size_t read = std::fread(text, 1, sizeof text, pipe)) outcome.output.append(text, read);
  outcome.status = pclose(pipe);
  return outcome;
}

/// Runs a kernel of runtime_faults.cu. Leaks are of no interest, it does not free what it allocates; and
/// ThreadSanitizer need not wait a second for more reports at the end.
Outcome run_fault(const std::string& name) {
  return run("ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS=atexit_sleep_ms=0 exec '" FAULTS_EXECUTABLE "' " + name);
}

/// The line of runtime_faults.cu that is marked with "fault: NAME".
unsigned marked_line(const std::string& name) {
  std::ifstream source(FAULTS_SOURCE);
  std::string line;
  for (unsigned number = 1; std::getline(source, line); ++number) {
    if (line.ends_with("// fault: " + name)) return number;
  }
  ADD_FAILURE() << "no line is marked with " << name;
  return 0;
}

std::string at_mark(const std::string& name) {
  return "runtime_faults.cu:" + std::to_string(marked_line(name));
}

// --- AddressSanitizer and UndefinedBehaviorSanitizer ---

struct StrayAccess {
  const char* fault;
  const char* mark;
  const char* what;  // a regular expression
  const char* who;

  friend void PrintTo(const StrayAccess& access, std::ostream* out) { *out << access.fault; }
};

class AddressSanitizer : public testing::TestWithParam<StrayAccess> {};

TEST_P(AddressSanitizer, NamesLineBlockAndThread) {
  if (!kAddressSanitizer) GTEST_SKIP() << "needs the preset emulator-asan";
  const Outcome outcome = run_fault(GetParam().fault);
  EXPECT_THAT(outcome.output, ContainsRegex(GetParam().what));
  EXPECT_THAT(outcome.output, HasSubstr(at_mark(GetParam().mark)));
  EXPECT_THAT(outcome.output, HasSubstr(GetParam().who));
  EXPECT_THAT(outcome.output, HasSubstr("kernel launched at "));
  EXPECT_NE(outcome.status, 0);
}

// UndefinedBehaviorSanitizer may see the same access first, and in its own words.
#define OVERFLOW_OF(place) place "-buffer-overflow|insufficient space"
INSTANTIATE_TEST_SUITE_P(
    Fault, AddressSanitizer,
    testing::Values(
        StrayAccess{"global", "global", OVERFLOW_OF("heap"), "in block (1,0,0), thread (36,0,0);"},
        StrayAccess{"before_global", "before_global", OVERFLOW_OF("heap"), "in block (0,0,0), thread (0,0,0);"},
        StrayAccess{"dynamic", "dynamic", OVERFLOW_OF("heap"), "in block (0,0,0), thread (37,0,0);"},
        StrayAccess{"static", "static", "global-buffer-overflow", "in block (0,0,0), thread (37,0,0);"},
        StrayAccess{"static_of_template", "static", "global-buffer-overflow", "in block (0,0,0), thread (37,0,0);"},
        StrayAccess{"index", "index", "index 37 out of bounds", "in block (0,0,0), thread (37,0,0);"},
        StrayAccess{"freed", "freed", "heap-use-after-free", "in block (0,0,0), thread (5,0,0);"},
        StrayAccess{"integer", "integer", "signed integer overflow", "in block (0,0,0), thread (9,0,0);"}),
    [](const auto& instance) { return instance.param.fault; });

// --- ThreadSanitizer ---

class ThreadSanitizerRace : public testing::TestWithParam<const char*> {};

TEST_P(ThreadSanitizerRace, IsReportedAtItsLine) {
  if (!kThreadSanitizer) GTEST_SKIP() << "needs the preset emulator-tsan";
  const std::string fault = GetParam();
  const Outcome outcome = run_fault(fault);
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("WARNING: ThreadSanitizer: data race"), HasSubstr(at_mark(fault)),
                                    ContainsRegex("'block \\([0-9],0,0\\), thread \\([0-9]+,0,0\\)'")));
  EXPECT_NE(outcome.status, 0);
}

INSTANTIATE_TEST_SUITE_P(Fault, ThreadSanitizerRace,
                         testing::Values("threads", "rotate", "blocks", "lanes", "warps", "shuffle", "ring_no_full",
                                         "ring_no_empty", "init_unordered", "refill", "store_unordered", "store_over",
                                         "overwrite_stored", "named_half", "product_no_full", "product_released",
                                         "peers", "peers_no_empty", "multicast"),
                         [](const auto& instance) { return std::string(instance.param); });

class RightKernel : public testing::TestWithParam<const char*> {};

TEST_P(RightKernel, IsNotReported) {
  const Outcome outcome = run_fault(GetParam());
  EXPECT_THAT(outcome.output, Not(HasSubstr("Sanitizer")));
  EXPECT_THAT(outcome.output, HasSubstr("cudaSuccess"));
  EXPECT_EQ(outcome.status, 0) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(Fault, RightKernel,
                         testing::Values("threads_right", "rotate_right", "blocks_right", "lanes_right", "warps_right",
                                         "reuse_right", "ring_right", "init_right", "refill_right", "store_right",
                                         "overwrite_right", "store_apart_right", "named_right", "product_right",
                                         "peers_right", "peers_ring_right", "multicast_right", "ended_right"),
                         [](const auto& instance) { return std::string(instance.param); });

// --- barriers and crashes ---

TEST(Crash, AStuckBlockIsReportedAndTheProgramGoesOn) {
  const Outcome outcome = run_fault("early_return");
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("threads 0-49 wait at the barrier "), HasSubstr(at_mark("early_return")),
                    HasSubstr("threads 50-63 have returned from the kernel"), HasSubstr("cudaErrorLaunchFailure")));
  EXPECT_EQ(outcome.status, 0);
}

TEST(Crash, AProducerThatStartsWithTheWrongParityIsStuck) {
  const Outcome outcome = run_fault("ring_parity");
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("threads 0-31 wait at "), HasSubstr(at_mark("ring_parity")),
                                    HasSubstr(" for parity 0; 32 arrivals, 0 bytes missing"),
                                    HasSubstr("threads 32-63 wait at "), HasSubstr("cudaErrorLaunchFailure")));
}

TEST(Crash, AFailedAssertionNamesBlockAndThread) {
  const Outcome outcome = run_fault("assertion");
  EXPECT_THAT(outcome.output, HasSubstr(at_mark("assertion")));
  EXPECT_THAT(outcome.output, HasSubstr("emulator: abort in block (2,0,0), thread (7,0,0); kernel launched at "));
  EXPECT_NE(outcome.status, 0);
}

TEST(Crash, AnAccessToNowhereNamesBlockAndThread) {
  if (kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer catches the signal";
  const Outcome outcome = run_fault("null");
  EXPECT_THAT(outcome.output, HasSubstr("in block (1,0,0), thread (3,0,0); kernel launched at "));
  if (kAddressSanitizer) {
    EXPECT_THAT(outcome.output, HasSubstr(at_mark("null")));
  }
  EXPECT_NE(outcome.status, 0);
}

TEST(Crash, AnAccessToABlockThatHasEndedNamesBothBlocks) {
  const Outcome outcome = run_fault("ended");
  EXPECT_NE(outcome.status, 0);
  if (kThreadSanitizer) {  // it catches the signal
    EXPECT_THAT(outcome.output, AllOf(HasSubstr("SEGV"), HasSubstr(at_mark("ended"))));
    return;
  }
  EXPECT_THAT(outcome.output, AllOf(ContainsRegex("in block \\([02],0,0\\), thread \\(0,0,0\\); kernel launched at "),
                                    ContainsRegex("the shared memory of block \\([13],0,0\\), which has ended"),
                                    HasSubstr(at_mark("address_of_ended"))));
  if (kAddressSanitizer) {
    EXPECT_THAT(outcome.output, AllOf(HasSubstr("use-after-poison"), HasSubstr(at_mark("ended"))));
  }
}

TEST(Crash, AStackOverflowIsNamed) {
  if (kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer catches the signal";
  const Outcome outcome = run_fault("stack");
  EXPECT_THAT(outcome.output, ContainsRegex("stack.overflow"));
  EXPECT_THAT(outcome.output, HasSubstr("in block (0,0,0), thread (5,0,0); kernel launched at "));
  EXPECT_NE(outcome.status, 0);
}

// --- the debugger ---

TEST(Debugger, StopsAtAThreadOfABlockAndPrintsItsIndices) {
#ifndef EMULATOR_DEBUG
  GTEST_SKIP() << "needs the preset emulator-debug";
#endif
  if (run("gdb --version").status != 0) GTEST_SKIP() << "gdb is not installed";
  const std::string line = at_mark("threads");
  const Outcome outcome =
      run("gdb -q -batch -ex 'break " + line + " if threadIdx.x == 37 && blockIdx.x == 1' -ex run " +
          "-ex 'print threadIdx' -ex 'print blockIdx' -ex 'print blockDim' -ex 'print wait' " +
          "-ex 'print values[37]' --args '" FAULTS_EXECUTABLE "' threads_right");
  if (outcome.output.find("ptrace") != std::string::npos) GTEST_SKIP() << "tracing is not allowed here";
  EXPECT_THAT(outcome.output,
              AllOf(ContainsRegex("hit Breakpoint 1,.*swap_halves"), HasSubstr("$1 = {x = 37, y = 0, z = 0}"),
                    HasSubstr("$2 = {x = 1, y = 0, z = 0}"), HasSubstr("$3 = {x = 64, y = 1, z = 1}"),
                    HasSubstr("$4 = true"), HasSubstr("$5 = 1")));
}

}  // namespace
}  // namespace emulator::test
