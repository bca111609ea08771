/// @file
/// Files: dimensions after L are one to the stages and come back in the output; what does not fit is one line.

#include <cstdio>
#include <stdexcept>

#include "06_scan/test/stages.hpp"
#include "common/error.hpp"
#include "common/safetensors.hpp"
#include "common/test/temporary_folder.hpp"

namespace tutorial {
namespace {

class InputTest : public testing::Test {
 protected:
  std::string path(const char* name) const { return folder_ / name; }

  /// Writes zeros of these shapes as x, dy and log_decay.
  std::string write(const Shape& x, const Shape& log_decay) const {
    Tensor first(Dtype::fp32, x), second(Dtype::fp32, log_decay);
    first.fill_bytes(0);
    second.fill_bytes(0);
    write_safetensors(path("in.safetensors"), {{"x", &first}, {"dy", &first}, {"log_decay", &second}}, {});
    return path("in.safetensors");
  }

  /// The chapter's exit status.
  static int run(const std::string& options, std::string& text) {
    FILE* pipe = popen(("'" CHAPTER_EXECUTABLE "' " + options + " 2>&1").c_str(), "r");
    if (!pipe) throw std::runtime_error("cannot run the chapter");
    text.clear();
    for (int c; (c = std::fgetc(pipe)) != EOF;) text += char(c);
    return pclose(pipe) / 256;
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(InputTest, DimensionsAfterLAreFlattened) {
  const Operator& definition = scan_operator();
  const auto sizes = [&](const Shape& x, const Shape& log_decay) {
    const Problem problem = make_problem(definition, {.input_file = write(x, log_decay)});
    return std::pair(problem.sizes.at("D"), problem.sizes.at("Dg"));
  };
  EXPECT_EQ(sizes({2, 1, 7, 3, 2}, {2, 1, 7}), std::pair(std::int64_t{6}, std::int64_t{1}));
  EXPECT_EQ(sizes({2, 1, 7, 3, 2}, {2, 1, 7, 3, 2}), std::pair(std::int64_t{6}, std::int64_t{6}));
  EXPECT_EQ(sizes({2, 1, 7}, {2, 1, 7}), std::pair(std::int64_t{1}, std::int64_t{1}));
  EXPECT_EQ(sizes({2, 1, 7, 6}, {2, 1, 7, 1}), std::pair(std::int64_t{6}, std::int64_t{1}));
}

TEST_F(InputTest, OutputsHaveTheShapesOfTheFile) {
  const std::string out = path("out.safetensors");
  std::string text;
  const std::string options = " --operator scan --stage sequential --repeat 1 --cpu-only --output " + out;
  ASSERT_EQ(run("--input " + write({2, 1, 7, 3, 2}, {2, 1, 7}) + options, text), 0) << text;
  const SafetensorsFile forward(out);
  EXPECT_EQ(forward.shape("sequential.y"), (Shape{2, 1, 7, 3, 2}));
  EXPECT_EQ(forward.shape("sequential.final_state"), (Shape{2, 1, 3, 2}));
  EXPECT_EQ(forward.shape("sequential.final_log_decay"), (Shape{2, 1}));
  ASSERT_EQ(run("--backward --input " + path("in.safetensors") + options, text), 0) << text;
  const SafetensorsFile backward(out);
  EXPECT_EQ(backward.shape("sequential.dx"), (Shape{2, 1, 7, 3, 2}));
  EXPECT_EQ(backward.shape("sequential.dlog_decay"), (Shape{2, 1, 7}));
  EXPECT_EQ(backward.shape("sequential.dinitial_state"), (Shape{2, 1, 3, 2}));
}

TEST_F(InputTest, WhatDoesNotFitIsOneLine) {
  std::string text;
  const auto expect_refused = [&](const std::string& options, const std::string& message) {
    EXPECT_EQ(run("--operator scan " + options, text), 2) << text;
    EXPECT_NE(text.find(message), std::string::npos) << text;
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  };
  expect_refused("--input " + write({2, 1, 7, 6}, {2, 1, 7, 5}), "Dg = 5: log_decay has one gate per step");
  expect_refused("--input " + write({2, 1, 7, 6}, {2, 1, 8}), "L");
  expect_refused("--input " + write({2, 1}, {2, 1}), "dimensions");
  expect_refused("--value-dim 6 --gate-dim 4", "Dg = 4");
  expect_refused("--key-dim 6", "--key-dim: of no use");
}

// The gradient is that of y alone: another one in the file would be left out without a word.
TEST_F(InputTest, BackwardRefusesGradientsThatItDoesNotTake) {
  Tensor x(Dtype::fp32, {2, 1, 7, 6}), state(Dtype::fp32, {2, 1, 6});
  fill(x, -1);
  fill(state, -1);
  write_safetensors(path("in.safetensors"), {{"x", &x}, {"log_decay", &x}, {"dfinal_state", &state}}, {});
  std::string text;
  EXPECT_EQ(run("--operator scan --backward --input " + path("in.safetensors"), text), 2) << text;
  EXPECT_NE(text.find("dfinal_state is of no use to scan --backward: it takes the gradient of y alone"),
            std::string::npos)
      << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
}

TEST_F(InputTest, ValueDimIsTheWidth) {
  std::string text;
  ASSERT_EQ(run("--operator scan --value-dim 3 -L 5 -B 1 -H 1 --repeat 1 --cpu-only", text), 0) << text;
  EXPECT_NE(text.find("D=3 Dg=3"), std::string::npos) << text;
}

}  // namespace
}  // namespace tutorial
