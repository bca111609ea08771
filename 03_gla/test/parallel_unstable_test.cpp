/// @file
/// The stage that is meant to break: where it holds, where it breaks, and that it says so.

#include <cmath>

#include "03_gla/test/stages.hpp"

namespace tutorial {
namespace {

// exp(-0.25 349) = 1.28e-38 is the last product above the smallest normal number, 1.18e-38.
constexpr float kGate = -0.25f;
constexpr std::int64_t kHolds = 349;

const Stage& unstable() {
  return find_stage(gla_operator(), "parallel_unstable");
}

/// |q| >= 1, so that Q . G holds as long as G does.
Problem problem_of(std::int64_t L) {
  Problem problem = gla_problem(1, 2, L, 16, 16);
  fill(problem.inputs.at("g"), kGate);
  for (float& q : problem.inputs.at("q").elements<float>()) q += std::copysign(1.0f, q);
  return problem;
}

/// The relative error of a position of the first head.
double error_at(std::int64_t t, const Outputs& outputs, const Outputs& truth) {
  const auto o = outputs.at("o").elements<float>(), expected = truth.at("o").elements<float>();
  double difference = 0, size = 0;
  for (auto i = std::size_t(t * 16); i < std::size_t(t * 16 + 16); ++i) {
    difference += std::pow(double(o[i]) - double(expected[i]), 2);
    size += std::pow(double(expected[i]), 2);
  }
  return std::sqrt(difference / size);
}

TEST(ParallelUnstableTest, HoldsToTheLastProductThatIsANormalNumber) {
  const Problem problem = problem_of(kHolds);
  ASSERT_EQ(why_not(gla_operator(), unstable(), problem), "");
  expect_close(evaluate(gla_operator(), unstable(), problem), evaluate_reference(gla_operator(), problem), 1e-5);
}

TEST(ParallelUnstableTest, NamesThePositionAtWhichItBreaks) {
  const std::string reason = why_not(gla_operator(), unstable(), problem_of(kHolds + 1));
  EXPECT_NE(reason.find(": G[0, 0, 349, "), std::string::npos) << reason;
  EXPECT_NE(reason.find("up to L = 349"), std::string::npos) << reason;
}

TEST(ParallelUnstableTest, OneStrongGateIsEnough) {
  Problem problem = problem_of(100);
  fill(problem.inputs.at("g"), 0);
  EXPECT_EQ(why_not(gla_operator(), unstable(), problem), "");
  problem.inputs.at("g").elements<float>()[(100 + 7) * 16 + 3] = -1e4f;  // of the second head
  const std::string reason = why_not(gla_operator(), unstable(), problem);
  EXPECT_NE(reason.find("up to L = 7 here: G[0, 1, 7, 3] = 0 "), std::string::npos) << reason;
  EXPECT_NE(reason.find("makes K / G overflow"), std::string::npos) << reason;
}

// 2^-30 exp(-0.25 266) = 1.23e-38 is the last of q times B that is a normal number. G is one for 83 positions more.
TEST(ParallelUnstableTest, ASmallQueryBreaksIt) {
  constexpr std::int64_t kHoldsForSmall = 266;
  const auto small = [](std::int64_t L) {
    Problem problem = problem_of(L);
    fill(problem.inputs.at("q"), 0x1p-30f);
    return problem;
  };
  const Problem holds = small(kHoldsForSmall), breaks = small(kHolds);
  ASSERT_EQ(why_not(gla_operator(), unstable(), holds), "");
  expect_close(evaluate(gla_operator(), unstable(), holds), evaluate_reference(gla_operator(), holds), 1e-5);
  const std::string reason = why_not(gla_operator(), unstable(), breaks);
  EXPECT_NE(reason.find("up to L = 266 here: G[0, 0, 266, 0] = "), std::string::npos) << reason;
  EXPECT_NE(reason.find("makes Q . G lose its digits"), std::string::npos) << reason;

  const Outputs outputs = evaluate(gla_operator(), unstable(), breaks);  // run all the same
  const Outputs truth = evaluate_reference(gla_operator(), breaks);
  EXPECT_FALSE(error_at(kHoldsForSmall + 40, outputs, truth) <= 1e-4);
  EXPECT_FALSE(error_at(kHolds - 1, outputs, truth) <= 1e-1);
}

TEST(ParallelUnstableTest, AQueryOfZeroHasNoDigitsToLose) {
  Problem problem = problem_of(kHolds);
  fill(problem.inputs.at("q"), 0);
  ASSERT_EQ(why_not(gla_operator(), unstable(), problem), "");
  const Outputs outputs = evaluate(gla_operator(), unstable(), problem);
  for (const float o : outputs.at("o").elements<float>()) ASSERT_EQ(o, 0);
}

// What it would be saved from: run all the same, it is right up to the position that it names and wrong behind.
TEST(ParallelUnstableTest, BreaksWhereItSays) {
  const Problem problem = problem_of(500);
  const Outputs outputs = evaluate(gla_operator(), unstable(), problem);
  const Outputs truth = evaluate_reference(gla_operator(), problem);
  for (std::int64_t t = 0; t < kHolds; ++t) EXPECT_LE(error_at(t, outputs, truth), 1e-4) << t;  // a row may be small
  EXPECT_FALSE(error_at(499, outputs, truth) <= 1e-1);
  EXPECT_FALSE(compare(outputs.at("o"), truth.at("o")).within(1e-1));
}

TEST(ParallelUnstableTest, TheChapterGoesOn) {
  const char* arguments[] = {"gla",
                             "--operator",
                             "gla",
                             "-L",
                             "2500",
                             "-H",
                             "1",
                             "--key-dim",
                             "8",
                             "--value-dim",
                             "8",
                             "--seed",
                             "1",
                             "--repeat",
                             "1",
                             "--stage",
                             "recurrent,parallel_unstable,chunkwise"};
  testing::internal::CaptureStdout();
  const int status = chapter().run(int(std::size(arguments)), arguments);
  const std::string report = testing::internal::GetCapturedStdout();
  EXPECT_EQ(status, 0) << report;
  EXPECT_NE(report.find("meant to break"), std::string::npos) << report;
}

}  // namespace
}  // namespace tutorial
