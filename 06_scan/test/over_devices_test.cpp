/// @file
/// Sequences over several devices: their outputs against the double reference, the bytes that they send, and faults.

#include "06_scan/over_devices.hpp"

#include <cstddef>
#include <cstdlib>
#include <utility>
#include <vector>

#include "05_deltanet_wy/delta_rule.hpp"
#include "06_scan/over_devices/dispatch/variants.hpp"
#include "06_scan/over_devices/measure.hpp"
#include "06_scan/over_devices/model.hpp"
#include "06_scan/over_devices/requirements.hpp"
#include "06_scan/over_devices/shares.hpp"
#include "06_scan/over_devices_backward/requirements.hpp"
#include "06_scan/test/maps_on_one_device.hpp"
#include "06_scan/test/stages.hpp"
#include "common/device/device_group.hpp"
#include "common/test/process.hpp"

#if TUTORIAL_EMULATOR
#include <emulator/link_bytes.hpp>
#endif

namespace tutorial {
namespace {

/// An operator and whether its gradients are meant.
struct Shared {
  const char* rule;
  bool is_backward;

  bool is(const char* other) const { return std::string(rule) == other; }
  const Operator& definition() const { return find_operator(rule, is_backward ? "backward+devices" : "devices"); }
};
constexpr Shared kShared[] = {{"linear_attention", false}, {"simple_gla", false}, {"delta_rule", false},
                              {"linear_attention", true},  {"simple_gla", true},  {"delta_rule", true}};

bool is_shared(const Stage& stage) {
  return static_cast<bool>(stage.share_out);
}

/// A drawn problem, with an initial state, and for gradients with one of the final state. Keys of the delta rule are
/// drawn of length 1.
Problem drawn_for(const Shared& shared, std::int64_t N, std::int64_t L, std::int64_t Dk, std::int64_t Dv,
                  std::int64_t B = 1) {
  const Sizes sizes{{"B", B}, {"H", 2}, {"L", L}, {"Dk", Dk}, {"Dv", Dv}, {"N", N}};
  Problem problem = make_problem(shared.definition(), {.sizes = sizes, .seed = 3});
  if (shared.is_backward) {
    Tensor gradient(Dtype::fp32, {B, 2, Dk, Dv});
    normal()(Random(problem.seed, "dfinal_state"), problem.sizes, gradient);
    problem.inputs.insert_or_assign("dfinal_state", std::move(gradient));
  }
  return problem;
}

/// Runs the stages over several devices and expects their outputs to be as close to the double reference as the runner
/// asks for.
void expect_match(const Shared& shared, const Problem& problem, const Layout& layout = {}) {
  const Operator& definition = shared.definition();
  const Outputs expected = evaluate_reference(definition, problem, Dtype::bf16);
  for (const Stage& stage : definition.stages()) {
    if (!is_shared(stage)) continue;
    SCOPED_TRACE(definition.label() + " " + stage.name + ", N " + std::to_string(problem.sizes.at("N")) + ", L " +
                 std::to_string(problem.sizes.at("L")));
    const std::string reason = why_not(definition, stage, problem, layout);
    if ((stage.name == "states_alone" || stage.name == "overlap") && !reason.empty())
      continue;  // widths or rows that the tensor cores do not take
    ASSERT_EQ(reason, "");
    expect_close(evaluate(definition, stage, problem, layout), expected, tolerance_of(stage, problem.sizes));
  }
}

/// On GPUs there are as many devices as there are; the emulator has five.
class OverDevicesTest : public testing::TestWithParam<Shared> {
 protected:
  static void SetUpTestSuite() { setenv("EMULATOR_DEVICES", "5", 1); }
  static void TearDownTestSuite() { unsetenv("EMULATOR_DEVICES"); }

  void SetUp() override {
    if (!group_unsupported(1).empty()) GTEST_SKIP() << group_unsupported(1);
  }
  static bool has(int N) {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess && N <= count && group_unsupported(N).empty();
  }
  /// Where there are so many devices.
  static void expect(std::int64_t N, std::int64_t L, std::int64_t Dk, std::int64_t Dv, const Layout& layout = {},
                     std::int64_t B = 1) {
    if (has(int(N))) expect_match(GetParam(), drawn_for(GetParam(), N, L, Dk, Dv, B), layout);
  }
};

class OverDevicesShapesTest : public OverDevicesTest {};

TEST_P(OverDevicesShapesTest, Small) {
  expect(2, 5, 16, 16);
}

// Devices with one position each, with different numbers of them, and with more than a chunk.
TEST_P(OverDevicesShapesTest, AnyNumberOfPositionsAndDevices) {
  expect(1, 7, 16, 16);
  expect(2, 2, 16, 16);
  expect(5, 5, 16, 16);
  expect(3, 40, 16, 32);
  expect(4, 67, 32, 16);
  expect(2, 130, 16, 16);
}

// Widths that the tensor cores do not take are computed in fp32.
TEST_P(OverDevicesShapesTest, OddWidths) {
  expect(3, 20, 5, 3);
}

TEST_P(OverDevicesShapesTest, Strides) {
  expect(3, 20, 16, 16, {.heads_inside = true, .row_padding = 3}, 2);
  expect(2, 33, 16, 16, {.heads_inside = true}, 2);
  expect(2, 33, 16, 16, {.heads_inside = false, .row_padding = 8}, 2);
}

class OverDevicesSplitTest : public OverDevicesTest {};

// No initial state is one of zeros, and so is no gradient of the final state. A final state that is not wanted, or a
// gradient of the initial state, changes nothing.
TEST_P(OverDevicesSplitTest, StatesMayBeAbsent) {
  if (!has(2)) GTEST_SKIP() << "there are no two devices that can work together";
  const Operator& definition = GetParam().definition();
  Problem problem = drawn_for(GetParam(), 2, 30, 16, 16);
  for (const char* name : {"initial_state", "dfinal_state"}) {
    if (problem.inputs.contains(name)) fill(problem.inputs.at(name), 0);
  }
  for (const Stage& stage : definition.stages()) {
    if (!is_shared(stage)) continue;
    SCOPED_TRACE(stage.name);
    const Outputs zeros = evaluate(definition, stage, problem);
    StageTensors tensors(definition, problem, stage.processor, Dtype::bf16, Dtype::fp32);
    const Call call = tensors.graph_call();
    stage.share_out(call);
    stage.run(call);
    stage.collect(call);
    const char* not_wanted = GetParam().is_backward ? "dinitial_state" : "final_state";
    expect_close(tensors.download_outputs({not_wanted}), zeros, 1e-6);
  }
}

class OverDevicesNumbersTest : public OverDevicesTest {};

// Gates that let nothing pass, and keys that take everything: what comes before a device must be gone, or stay whole.
TEST_P(OverDevicesNumbersTest, HardGates) {
  if (!has(3)) GTEST_SKIP() << "there are no three devices that can work together";
  for (const float gate : {-1e4f, 0.0f}) {
    Problem problem = drawn_for(GetParam(), 3, 30, 16, 16);
    if (problem.inputs.contains("g")) fill(problem.inputs.at("g"), gate);
    if (problem.inputs.contains("beta")) fill(problem.inputs.at("beta"), gate < 0 ? 1.0f : 0.0f);
    expect_match(GetParam(), problem);
  }
}

#if TUTORIAL_EMULATOR

TEST_P(OverDevicesNumbersTest, BytesOverTheLinksAreWhatIsCounted) {
  const Operator& definition = GetParam().definition();
  const bool is_backward = GetParam().is_backward;
  for (const std::int64_t N : {1, 2, 4}) {
    const Problem problem = drawn_for(GetParam(), N, 20, 16, 32);
    const double state = 4.0 * 2 * 16 * 32, map = GetParam().is("delta_rule")   ? 4.0 * 2 * 16 * (32 + 16)
                                                  : GetParam().is("simple_gla") ? state + 4 * 2
                                                                                : state;
    const double to_next = (is_backward ? 2 : 1) * state * double(N - 1);
    const double to_all = (is_backward ? map + state : map) * double(N * (N - 1));
    for (const Stage& stage : definition.stages()) {
      if (!is_shared(stage)) continue;
      SCOPED_TRACE(stage.name + ", N " + std::to_string(N));
      const bool is_relay = stage.name == "relay" || stage.name == "head_by_head";
      StageTensors tensors(definition, problem, stage.processor, Dtype::bf16, Dtype::fp32);
      const Call call = tensors.call();
      stage.share_out(call);
      const std::uint64_t before = emulator::link_bytes();
      stage.run(call);
      EXPECT_EQ(double(emulator::link_bytes() - before), is_relay ? to_next : to_all);
      if (stage.name == "relay") {
        using namespace over_devices;
        EXPECT_EQ(double(is_backward ? relay_backward_link_bytes(BackwardArguments::bind(call))
                                     : relay_link_bytes(Arguments::bind(call))),
                  to_next);
      }
    }
  }
}

#endif

#define OVER_DEVICES(NAME)                                                                 \
  INSTANTIATE_TEST_SUITE_P(Rules, NAME, testing::ValuesIn(kShared), [](const auto& info) { \
    return std::string(info.param.rule) + (info.param.is_backward ? "_backward" : "");     \
  })
OVER_DEVICES(OverDevicesShapesTest);
OVER_DEVICES(OverDevicesSplitTest);
OVER_DEVICES(OverDevicesNumbersTest);

// --- the maps of several devices on a single one ---

/// Stages with the kernels of those over several devices, on one device.
std::vector<Stage> stages_on_one_device(const Shared& shared) {
  using namespace over_devices;
  constexpr auto kLinear = Rule::linear_attention, kSimple = Rule::simple_gla, kDelta = Rule::delta_rule;
  const auto stage = [](const char* name, StageFunction<void> run) {
    return Stage{.name = name, .processor = Processor::gpu, .dtype = Dtype::bf16, .run = std::move(run)};
  };
  if (shared.is("delta_rule")) {
    if (shared.is_backward) return {stage("passes", maps_of_passes_backward<kDelta>)};
    return {stage("passes", maps_of_passes<kDelta>)};
  }
  if (shared.is("simple_gla")) {
    if (shared.is_backward) {
      return {stage("passes", maps_of_passes_backward<kSimple>), stage("segments", maps_of_segments_backward<kSimple>)};
    }
    return {stage("passes", maps_of_passes<kSimple>), stage("segments", maps_of_segments<kSimple>)};
  }
  if (shared.is_backward) {
    return {stage("passes", maps_of_passes_backward<kLinear>), stage("segments", maps_of_segments_backward<kLinear>)};
  }
  return {stage("passes", maps_of_passes<kLinear>), stage("segments", maps_of_segments<kLinear>)};
}

class OverDevicesMapsTest : public testing::TestWithParam<Shared> {};

// On a GPU also with enough positions for many segments, and with the widest state.
TEST_P(OverDevicesMapsTest, OneDeviceInTheirPlaces) {
  struct Case {
    std::int64_t N, L, Dk, Dv;
    bool on_gpu;
  };
  constexpr Case kCases[] = {{4, 150, 32, 16, false}, {3, 10000, 128, 128, true}, {8, 2100, 64, 256, true}};
#if TUTORIAL_EMULATOR
  constexpr bool kIsOnGpu = false;
#else
  constexpr bool kIsOnGpu = true;
#endif
  for (const auto& [N, L, Dk, Dv, on_gpu] : kCases) {
    if (on_gpu && !kIsOnGpu) continue;
    Problem problem = drawn_for(GetParam(), 1, L, Dk, Dv);
    problem.sizes["N"] = N;
    const Outputs expected = evaluate_reference(GetParam().definition(), problem, Dtype::bf16);
    for (const Stage& stage : stages_on_one_device(GetParam())) {
      SCOPED_TRACE(stage.name + ", N " + std::to_string(N) + ", L " + std::to_string(L));
      const double tolerance = GetParam().is_backward ? 2e-2 : 1e-2;
      expect_close(evaluate(GetParam().definition(), stage, problem), expected, tolerance);
    }
  }
}
OVER_DEVICES(OverDevicesMapsTest);
#undef OVER_DEVICES

// --- the parts ---

TEST(OverDevicesPartsTest, PositionsAreSharedOutEvenly) {
  for (const int L : {1, 2, 5, 64, 1000, 2147483647}) {
    for (const int N : {1, 2, 3, 7}) {
      if (N > L) continue;
      int next = 0;
      for (int n = 0; n < N; ++n) {
        const over_devices::Positions positions = over_devices::positions_of(n, N, L);
        EXPECT_EQ(positions.first, next);
        EXPECT_GE(positions.count, L / N);
        EXPECT_LE(positions.count, (L - 1) / N + 1);
        next += positions.count;
      }
      EXPECT_EQ(next, L);
    }
  }
}

TEST(OverDevicesPartsTest, PartsOfTheHeadsAreAllHeadsOnce) {
  float numbers[70] = {};
  over_devices::Arguments a{};
  a.H = 7;
  a.beta = packed<const float>(numbers, 7, 10, 1);
  for (const int parts : {1, 2, 7}) {
    const float* next = numbers;
    for (int part = 0; part < parts; ++part) {
      const over_devices::Arguments heads = over_devices::heads_of(a, part, parts);
      EXPECT_EQ(heads.beta.data, next);
      EXPECT_GE(heads.H, 7 / parts);
      next += std::ptrdiff_t(10) * heads.H;
    }
    EXPECT_EQ(next, numbers + 70);
  }
}

// By hand, per position and head: q, k, v and o in bf16 and beta; with maps also the values [v | -k] and their outputs.
TEST(OverDevicesPartsTest, MemoryIsThatOfAShare) {
  using over_devices::Rule;
  over_devices::Arguments a{};
  a.B = 1, a.H = 8, a.L = 4096, a.Dk = 128, a.Dv = 128, a.N = 4;
  const std::int64_t rows = 8 * 1024, state = 4 * 8 * 128 * 128;
  EXPECT_EQ(over_devices::share_memory<Rule::linear_attention>(a), rows * 4 * 2 * 128 + 2 * state);
  EXPECT_EQ(over_devices::share_memory<Rule::delta_rule>(a), rows * (4 * 2 * 128 + 4) + 2 * state);
  const std::int64_t values = rows * 2 * 2 * 256, maps = 4 * 2 * state;
  const std::int64_t rest = over_devices::all_gather_memory<Rule::delta_rule>(a) -
                            over_devices::share_memory<Rule::delta_rule>(a) - values - maps - state;
  delta_rule::Bf16Arguments narrow{};  // dispatch's own, for the one of the two passes that takes more
  narrow.B = 1, narrow.H = 8, narrow.L = 1024, narrow.Dk = 128, narrow.Dv = 128;
  delta_rule::Bf16Arguments wide = narrow;
  wide.Dv = 256;
  EXPECT_EQ(rest, std::max(delta_rule::dispatch_memory(narrow), delta_rule::dispatch_memory(wide)));
  over_devices::BackwardArguments g{};
  g.B = 1, g.H = 8, g.L = 4096, g.Dk = 128, g.Dv = 128, g.N = 4;
  EXPECT_EQ(over_devices::share_memory<Rule::simple_gla>(g), rows * (7 * 2 * 128 + 2 * 4) + 3 * state);
}

TEST(OverDevicesPartsTest, WhatIsMeasuredIsDescribed) {
  EXPECT_EQ(over_devices::describe(1, 0, std::nullopt), "1 device: 0 B over the links");
  const over_devices::Measured measured{.all = 2, .one = 3, .part = 1.5, .link_rate = 400e9, .message_rate = 100e9};
  const std::string text = over_devices::describe(2, 1000, measured);
  EXPECT_NE(text.find("(25 % of the 400 GB/s of a long one)"), std::string::npos) << text;
  EXPECT_NE(text.find("efficiency 75 % (strong"), std::string::npos) << text;
  EXPECT_NE(text.find("75 % (weak"), std::string::npos) << text;
}

// The model's own arithmetic: where each stage is the faster one.
TEST(OverDevicesPartsTest, TheModelSaysWhenToSendMaps) {
  using over_devices::Rule;
  constexpr double L = 1 << 25;
  for (const Rule rule : {Rule::linear_attention, Rule::simple_gla, Rule::delta_rule}) {
    EXPECT_EQ(over_devices::relay_ms(rule, 1, L), over_devices::pass_ms(rule, L));
    EXPECT_EQ(over_devices::all_gather_ms(rule, 1, L), over_devices::pass_ms(rule, L));
    EXPECT_GT(over_devices::relay_ms(rule, 8, L), over_devices::pass_ms(rule, L));
    EXPECT_LT(over_devices::all_gather_ms(rule, 8, L), over_devices::relay_ms(rule, 8, L));
  }
  EXPECT_LT(over_devices::states_alone_ms(Rule::simple_gla, 2, L), over_devices::all_gather_ms(Rule::simple_gla, 2, L));
  // Twelve eighths of a pass over L / N against N + 7 of them, one for each head and N - 1 more.
  EXPECT_LT(over_devices::head_by_head_ms(Rule::simple_gla, 4, L),
            over_devices::states_alone_ms(Rule::simple_gla, 4, L));
  EXPECT_GT(over_devices::head_by_head_ms(Rule::simple_gla, 6, L),
            over_devices::states_alone_ms(Rule::simple_gla, 6, L));
  EXPECT_NEAR(over_devices::pass_ms(Rule::delta_rule, L) / over_devices::head_by_head_ms(Rule::delta_rule, 2, L),
              16.0 / 9, 1e-2);
  // Three passes of L / N against N of them.
  EXPECT_LT(over_devices::all_gather_ms(Rule::delta_rule, 4, L), over_devices::relay_ms(Rule::delta_rule, 4, L));
  EXPECT_GE(over_devices::all_gather_ms(Rule::delta_rule, 3, L), over_devices::relay_ms(Rule::delta_rule, 3, L));
}

// --- faults, as a user meets them ---

#if TUTORIAL_EMULATOR

ProcessResult run_simple_gla(const std::vector<std::string>& options, const Environment& environment) {
  std::vector<std::string> command{CHAPTER_EXECUTABLE, "--operator", "simple_gla", "-L", "8",       "--key-dim", "16",
                                   "--value-dim",      "16",         "--repeat",   "1",  "--stage", "relay"};
  command.insert(command.end(), options.begin(), options.end());
  return run_process(command, environment);
}

int lines_with(const std::string& text, const std::string& part) {
  int lines = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++lines;
  return lines;
}

struct BadUse {
  std::vector<std::string> options;
  Environment environment;
  const char* line;
};

TEST(OverDevicesFaultsTest, BadUseIsALine) {
  const BadUse kCases[] = {
      {{"--devices", "3"}, {}, "N = 3 devices: this machine has 2"},
      {{"--devices", "9"}, {{"EMULATOR_DEVICES", "20"}}, "N = 9 devices: there are no more than L = 8 positions"},
      {{"--devices", "0"}, {}, "--devices: 0 is not between 1 and 2147483647"},
      {{"--devices", "two"}, {}, "--devices: 'two' is not a whole number"},
      {{"--devices"},
       {{"DEVICES_TIMEOUT", "soon"}},
       "DEVICES_TIMEOUT is 'soon': seconds from above 0 to 86400 expected"},
      {{"--devices"},
       {{"EMULATOR_NCCL_FAULT", "bang"}},
       "EMULATOR_NCCL_FAULT is 'bang': error:GROUP, hang:GROUP or block:GROUP expected"},
  };
  for (const BadUse& bad : kCases) {
    const ProcessResult result = run_simple_gla(bad.options, bad.environment);
    EXPECT_EQ(result.status, 2) << bad.line;
    EXPECT_NE(result.error.find(bad.line), std::string::npos) << result.error;
    EXPECT_EQ(lines_with(result.error, "\n"), 1) << result.error;
  }
}

TEST(OverDevicesFaultsTest, AllDevicesUnlessANumberIsGiven) {
  const ProcessResult result = run_simple_gla({"--devices"}, {{"EMULATOR_DEVICES", "3"}});
  EXPECT_EQ(result.status, 0) << result.out << result.error;
  EXPECT_NE(result.out.find("3 devices: "), std::string::npos) << result.out;
  const ProcessResult two = run_simple_gla({"--devices", "2"}, {{"EMULATOR_DEVICES", "3"}});
  EXPECT_NE(two.out.find("2 devices: "), std::string::npos) << two.out;
}

TEST(OverDevicesFaultsTest, ATransferThatFailsIsAFailureAndNoHang) {
  const ProcessResult lost = run_simple_gla({"--devices"}, {{"EMULATOR_NCCL_FAULT", "error:1"}});
  EXPECT_EQ(lost.status, 1);
  EXPECT_EQ(lines_with(lost.out, "NCCL: another device has failed or left"), 1) << lost.out;
  const ProcessResult stuck =
      run_simple_gla({"--devices"}, {{"EMULATOR_NCCL_FAULT", "hang:1"}, {"DEVICES_TIMEOUT", "0.1"}});
  EXPECT_EQ(stuck.status, 1);
  EXPECT_EQ(lines_with(stuck.out, "the transfers have not ended in time"), 1) << stuck.out;
  // With three devices `relay` meets the error in the middle of a group. What comes after it has a group of its own.
  const ProcessResult later = run_simple_gla({"--devices", "--stage", "relay,all_gather"},
                                             {{"EMULATOR_DEVICES", "3"}, {"EMULATOR_NCCL_FAULT", "error:1"}});
  EXPECT_EQ(later.status, 1);
  EXPECT_EQ(lines_with(later.out, "NCCL"), 2) << later.out;
  EXPECT_EQ(lines_with(later.out, "never written"), 0) << later.out;
  // In the gradients: the second transfer of `relay` is that of the first gradient.
  const ProcessResult gradients =
      run_simple_gla({"--backward", "--devices"}, {{"EMULATOR_NCCL_FAULT", "hang:2"}, {"DEVICES_TIMEOUT", "0.1"}});
  EXPECT_EQ(gradients.status, 1);
  EXPECT_EQ(lines_with(gradients.out, "the transfers have not ended in time"), 1) << gradients.out;
  // In a call that does not return.
  const ProcessResult blocked =
      run_simple_gla({"--devices"}, {{"EMULATOR_NCCL_FAULT", "block:1"}, {"DEVICES_TIMEOUT", "0.1"}});
  EXPECT_EQ(blocked.status, 1);
  EXPECT_EQ(blocked.error, "NCCL: a call has not returned in time (DEVICES_TIMEOUT sets how long to wait)\n");
  // New communicators after those that were aborted; and a transfer beside the work is watched, too.
  const ProcessResult both = run_simple_gla({"--devices", "--stage", "overlap"},
                                            {{"EMULATOR_NCCL_FAULT", "hang:1"}, {"DEVICES_TIMEOUT", "0.1"}});
  EXPECT_EQ(both.status, 1);
  EXPECT_EQ(lines_with(both.out, "the transfers have not ended in time"), 2) << both.out;
}

#endif

}  // namespace
}  // namespace tutorial
