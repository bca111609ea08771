/// @file
/// The operator `convolution`: every stage over odd shapes, what the stage `scan` refuses, and the worked example.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <vector>

#include "06_scan/convolution.hpp"
#include "06_scan/convolution/example.hpp"
#include "06_scan/convolution/requirements.hpp"
#include "06_scan/test/stages.hpp"
#include "common/chapter/machine.hpp"
#include "common/safetensors.hpp"
#include "common/test/peak_memory.hpp"

namespace tutorial {
namespace {

const Operator& convolution_operator() {
  static const Chapter contents = chapter();
  for (const Operator& definition : contents.operators()) {
    if (definition.name() == "convolution") return definition;
  }
  throw std::logic_error("no operator convolution");
}

Problem drawn_convolution(std::int64_t B, std::int64_t L, std::int64_t D) {
  return make_problem(convolution_operator(), {.sizes = {{"B", B}, {"L", L}, {"D", D}}, .seed = 3});
}

/// Whether the stage is one that this build has.
bool is_built(const Stage& stage) {
  return stage.name != "cufft" || !kEmulated;
}

/// Sets the kernel to these numbers, and to 0 behind them.
void set_kernel(Problem& problem, const std::vector<float>& numbers) {
  const auto kernel = problem.inputs.at("kernel").elements<float>();
  std::fill(kernel.begin(), kernel.end(), 0.0f);
  std::copy_n(numbers.begin(), std::min(numbers.size(), kernel.size()), kernel.begin());
}

void set_powers(Problem& problem, float r) {
  double power = 1;
  for (float& element : problem.inputs.at("kernel").elements<float>()) {
    element = float(power);
    power *= double(r);
  }
}

std::string scan_refuses(const Problem& problem) {
  return why_not(convolution_operator(), find_stage(convolution_operator(), "scan"), problem);
}

/// Runs every stage, `scan` among them if `by_scan`.
void expect_convolutions_match(const Problem& problem, bool by_scan) {
  const Operator& definition = convolution_operator();
  const Outputs expected = evaluate_reference(definition, problem);
  for (const Stage& stage : definition.stages()) {
    SCOPED_TRACE(stage.name);
    if (!is_built(stage) || (stage.name == "scan" && !by_scan)) {
      EXPECT_NE(why_not(definition, stage, problem), "");
      continue;
    }
    ASSERT_EQ(why_not(definition, stage, problem), "");
    expect_close(evaluate(definition, stage, problem), expected, tolerance_of(stage, problem.sizes));
  }
}

TEST(ConvolutionShapesTest, Small) {
  expect_convolutions_match(drawn_convolution(1, 40, 3), true);
}

class ConvolutionLengthsTest : public testing::TestWithParam<std::int64_t> {};

TEST_P(ConvolutionLengthsTest, AreAllRight) {
  for (const std::int64_t D : {1, 3, 40}) {
    SCOPED_TRACE("D " + std::to_string(D));
    expect_convolutions_match(drawn_convolution(2, GetParam(), D), true);
  }
}

INSTANTIATE_TEST_SUITE_P(AroundPowersOfTwo, ConvolutionLengthsTest,
                         testing::Values(1, 2, 3, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 513, 1000,
                                         1025));

// The reference of long sequences is the product of spectra.
TEST(ConvolutionShapesTest, LongSequences) {
  expect_convolutions_match(drawn_convolution(1, 4097, 2), true);
  expect_convolutions_match(drawn_convolution(1, 5000, 1), true);
}

TEST(ConvolutionShapesTest, AnyKernelBySpectra) {
  for (const std::int64_t L : {2, 65, 300}) {
    Problem problem = drawn_convolution(2, L, 5);
    const Random random(5, "kernel");
    std::vector<float> numbers(static_cast<std::size_t>(L));
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = float(random.normal(i));
    numbers[0] = 2;
    set_kernel(problem, numbers);
    expect_convolutions_match(problem, false);
  }
}

// Zeros behind the sequences: without them the last number would come in again at the start.
TEST(ConvolutionNumbersTest, NothingComesRoundTheEnd) {
  const Operator& definition = convolution_operator();
  Problem problem = drawn_convolution(1, 64, 1);
  const auto u = problem.inputs.at("u").elements<float>();
  std::fill(u.begin(), u.end(), 0.0f);
  u.back() = 1e6f;
  for (const Stage& stage : definition.stages()) {
    if (!is_built(stage)) continue;
    SCOPED_TRACE(stage.name);
    const Outputs outputs = evaluate(definition, stage, problem);
    const auto y = outputs.at("y").elements<float>();
    EXPECT_NEAR(y.back(), 1e6, 1);
    for (std::size_t t = 0; t + 1 < y.size(); ++t) ASSERT_NEAR(y[t], 0, 1) << t;
  }
}

// The drawn kernel is remembered for a while: what the first number leaves is seen at the end.
TEST(ConvolutionNumbersTest, TheDrawnKernelIsRemembered) {
  const Problem problem = drawn_convolution(1, 300, 1);
  const auto kernel = problem.inputs.at("kernel").elements<float>();
  EXPECT_EQ(kernel[0], 1);
  EXPECT_NEAR(kernel[100], 0.366, 1e-3);
  EXPECT_NEAR(kernel[299], 0.0495, 1e-3);
}

TEST(ConvolutionNumbersTest, IsAScanWithAConstantGate) {
  for (const float r : {1.0f, 0.999f, 0.5f, 1e-3f}) {
    SCOPED_TRACE(r);
    Problem problem = drawn_convolution(2, 200, 6);
    set_powers(problem, r);
    expect_convolutions_match(problem, true);

    Problem recurrence = drawn(2, 1, 200, 6, 1);
    recurrence.inputs.erase("initial_state");
    Tensor x = problem.inputs.at("u").to(Dtype::fp32);
    x.reshape({2, 1, 200, 6});
    recurrence.inputs.insert_or_assign("x", std::move(x));
    for (float& g : recurrence.inputs.at("log_decay").elements<float>()) g = float(std::log(double(r)));
    Outputs expected = evaluate_reference(scan_operator(), recurrence);
    expected.at("y").reshape({2, 200, 6});
    for (const Stage& stage : convolution_operator().stages()) {
      if (!is_built(stage)) continue;
      expect_close(evaluate(convolution_operator(), stage, problem), expected, 1e-5);
    }
  }
}

TEST(ConvolutionNumbersTest, AScanTakesPowersAlone) {
  const std::string why = ": a scan has one number per channel for the past, enough for kernel_j = r^j, 0 < r <= 1";
  Problem problem = drawn_convolution(1, 8, 2);
  EXPECT_EQ(scan_refuses(problem), "");
  const auto refuses = [&](const std::vector<float>& numbers) {
    set_kernel(problem, numbers);
    return scan_refuses(problem);
  };
  EXPECT_EQ(refuses({2, 1, 0.5f, 0.25f}), "kernel_0 is not 1" + why);
  EXPECT_EQ(refuses({1, 0.5f, 0.25f, 0.126f}), "kernel_3 is not kernel_1^3" + why);
  EXPECT_EQ(refuses({1, 0.5f, 0.25f, 0.125f}), "kernel_4 is not kernel_1^4" + why);
  for (const float r : {0.0f, -0.5f, 1.5f}) EXPECT_EQ(refuses({1, r}), "kernel_1 is not in (0, 1]" + why);
  Problem one = drawn_convolution(1, 1, 2);
  EXPECT_EQ(scan_refuses(one), "") << "there is no r";
  set_kernel(one, {3});
  EXPECT_EQ(scan_refuses(one), "kernel_0 is not 1" + why);
}

TEST(ConvolutionNumbersTest, DirectIsForPatience) {
  convolution::Arguments a{};
  a.L = 16384;
  EXPECT_EQ(convolution::direct_unsupported(a), "");
  a.L = 16385;
  EXPECT_EQ(convolution::direct_unsupported(a), "L > 16384: O(L^2) time");
}

TEST(ConvolutionNumbersTest, PaddedLengths) {
  EXPECT_EQ(convolution::padded_length(1), 2);
  EXPECT_EQ(convolution::padded_length(64), 128);
  EXPECT_EQ(convolution::padded_length(65), 256);
}

#if TUTORIAL_EMULATOR
TEST(ConvolutionMovedTest, IsWhatIsCounted) {
  const Stage& stage = find_stage(convolution_operator(), "scan");
  for (const auto& [L, D] : {std::pair<std::int64_t, std::int64_t>{1, 3}, {20, 1}, {700, 40}, {5000, 1}}) {
    SCOPED_TRACE("L " + std::to_string(L));
    const Problem problem = drawn_convolution(2, L, D);
    StageTensors tensors(convolution_operator(), problem, Processor::gpu, Dtype::fp32, Dtype::fp32);
    const Call call = tensors.call();
    reset_kernel_counts();
    stage.run(call);
    const KernelCounts counts = kernel_counts();
    EXPECT_EQ(double(stage.bytes_moved(call)), counts.bytes_read + counts.bytes_written);
  }
}
#endif

class ConvolutionGoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(ConvolutionGoldenTest, EveryStageAgrees) {
  const Operator& definition = convolution_operator();
  const std::string path = std::string(GOLDEN_FOLDER "/") + GetParam() + ".safetensors";
  const Problem problem = make_problem(definition, {.input_file = path});
  const Tensor expected = SafetensorsFile(path).read("y");
  for (const Stage& stage : definition.stages()) {
    SCOPED_TRACE(stage.name);
    if (!is_built(stage) || stage.name == "scan") continue;  // these kernels are no powers
    ASSERT_EQ(why_not(definition, stage, problem), "");
    const Outputs outputs = evaluate(definition, stage, problem);
    const Comparison c = compare(outputs.at("y"), expected);
    EXPECT_TRUE(c.within(1e-5)) << "error " << c.error << ", " << describe(c, "y");
  }
  EXPECT_NE(scan_refuses(problem), "");
}

INSTANTIATE_TEST_SUITE_P(PyTorch, ConvolutionGoldenTest,
                         testing::Values("causal_convolution", "causal_convolution_d64", "causal_convolution_len1",
                                         "causal_convolution_strong"),
                         [](const auto& info) { return std::string(info.param); });

std::string run_chapter(const std::string& options) {
  FILE* pipe = popen(("'" CHAPTER_EXECUTABLE "' " + options + " 2>&1").c_str(), "r");
  if (!pipe) throw std::runtime_error("cannot run the chapter");
  std::string text;
  for (int c; (c = std::fgetc(pipe)) != EOF;) text += char(c);
  pclose(pipe);
  return text;
}

TEST(ConvolutionInputTest, TheWorkedExample) {
  const Demonstration shown = convolution::worked_example();
  EXPECT_TRUE(shown.passed);
  const std::string lines = R"(
u               1        2        3        4
kernel          1      0.5     0.25    0.125
direct          1      2.5     4.25    6.125
fft             1      2.5     4.25    6.125
scan            1      2.5     4.25    6.125
)";
  EXPECT_NE(shown.text.find(lines), std::string::npos) << shown.text;
  const std::string stage = "--operator convolution --stage direct -L 8 --repeat 1 --cpu-only";
  EXPECT_NE(run_chapter(stage + " --example").find(lines), std::string::npos);
  EXPECT_EQ(run_chapter(stage).find("convolution_example"), std::string::npos);
}

#if TUTORIAL_EMULATOR
TEST(ConvolutionInputTest, CuFftIsSkippedWithTheReason) {
  const std::string text = run_chapter("--operator convolution --variants -L 8 --repeat 1");
  EXPECT_NE(text.find("cufft   skipped: cuFFT is for GPUs: build with the backend cuda"), std::string::npos) << text;
}
#endif

TEST(ConvolutionTest, FftTakesTheMemoryThatItSays) {
  expect_stated_memory(convolution_operator(), "fft", {{"B", 1}, {"L", 100000}, {"D", 4}});
}

}  // namespace
}  // namespace tutorial
