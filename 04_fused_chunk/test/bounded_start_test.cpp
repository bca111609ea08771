/// @file
/// Starts that need no past: the error of `bounded_start` and of dispatch's walk of it is that of the walk that starts
/// at position 0, whatever the gates.

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <utility>

#include "04_fused_chunk/fused_gla.hpp"
#include "04_fused_chunk/gla/launch_plan.hpp"
#include "04_fused_chunk/simple_gla/bounded_start.hpp"
#include "04_fused_chunk/simple_gla/dispatch/walks.hpp"
#include "04_fused_chunk/test/stages.hpp"
#include "common/device/device.hpp"
#include "common/device/error.hpp"
#include "common/device/workspace.hpp"
#include "common/random.hpp"

namespace tutorial {
namespace {

using simple_gla::Bf16Arguments;
using Walk = void (*)(const Bf16Arguments&);

/// The kernel of the stage in so many segments, where a warm-up may go back to position 0.
template <int kSegments>
void alone(const Bf16Arguments& a) {
  simple_gla::walk_with_bounded_starts(a, tile::make_launch_plan(a.L, 64, kSegments), a.L / 64);
}

/// The walk of dispatch, where a warm-up goes over 32 chunks or a segment.
template <int kSegments>
void with_states(const Bf16Arguments& a) {
  const tile::LaunchPlan plan = tile::make_launch_plan(a.L, 64, kSegments);
  simple_gla::hopper_walk(a, plan, simple_gla::warm_up_reach(plan));
}

/// The same with the states of all segments in memory.
template <int kSegments>
void exact(const Bf16Arguments& a) {
  simple_gla::hopper_walk(a, tile::make_launch_plan(a.L, 64, kSegments), 0);
}

struct Way {
  const char* name;
  Walk run, exact;
};
constexpr Way kWays[] = {{"3 segments", alone<3>, exact<3>},
                         {"17 segments", alone<17>, exact<17>},
                         {"6 segments of dispatch", with_states<6>, exact<6>},
                         {"17 segments of dispatch", with_states<17>, exact<17>}};

/// The gate of position t of a head. @param u uniform in (0, 1)
using Gate = std::function<float(std::int64_t head, std::int64_t t, double u)>;

class BoundedStartTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = warpgroup_products_missing(); !reason.empty()) GTEST_SKIP() << reason;
  }

  static Problem problem_with(const Gate& gate, std::int64_t B, std::int64_t H, std::int64_t L, std::int64_t Dk,
                              std::int64_t Dv) {
    Problem problem = drawn(definition(), B, H, L, Dk, Dv);
    const auto g = problem.inputs.at("g").elements<float>();
    const Random random(2, "gates");
    for (std::size_t i = 0; i < g.size(); ++i) {
      g[i] = gate(std::int64_t(i) / L, std::int64_t(i) % L, random.uniform(i));
    }
    return problem;
  }

  /// What the walk before has left in memory is no number.
  static Outputs outputs_of(Walk run, const Problem& problem) {
    const std::size_t size = workspace_size("simple_gla: states");
    if (size > 0) check(cudaMemset(workspace_bytes("simple_gla: states", size), 0xFF, size));
    Stage stage = find_stage(definition(), "register_scores");
    stage.run = run;
    return evaluate(definition(), stage, problem);
  }

  /// No way is further from the truth than the exact ways, but for a millionth: those are the walk from position 0, and
  /// the same segments with all states in memory.
  static void expect_as_right_as_exact_ways(const Problem& problem) {
    const Outputs truth = evaluate_reference(definition(), problem, Dtype::bf16);
    const Outputs walked = outputs_of(simple_gla::register_scores, problem);
    for (const Way& way : kWays) {
      SCOPED_TRACE(way.name);
      const Outputs outputs = outputs_of(way.run, problem), exact = outputs_of(way.exact, problem);
      for (const auto& [name, out] : outputs) {
        const Comparison own = compare(name, out, truth);
        const double allowed =
            std::max(compare(name, walked.at(name), truth).error, compare(name, exact.at(name), truth).error) + 1e-6;
        EXPECT_LE(own.error, allowed) << describe(own, name);
      }
    }
  }

  static double bytes_of(Walk run, const Problem& problem) {
    Stage stage = find_stage(definition(), "register_scores");
    stage.run = run;
    StageTensors tensors(definition(), problem, stage.processor, storage_of(stage), Dtype::fp32);
    reset_kernel_counts();
    stage.run(tensors.call());
    const KernelCounts counts = kernel_counts();
    return counts.bytes_read + counts.bytes_written;
  }

  static const Operator& definition() { return find_operator("simple_gla"); }
};

constexpr std::int64_t kLong = 4160;  // one chunk more than 64, for segments of unequal length

// Every gate is the same, so that every warm-up of so many chunks leaves just less or just more than 2^-24.
TEST_F(BoundedStartTest, GatesAtTheEdge) {
  for (const int chunks : {1, 5, 32}) {
    for (const double factor : {1 + 1e-4, 1 - 1e-4}) {
      SCOPED_TRACE(std::to_string(chunks) + " chunks, " + std::to_string(factor));
      const auto g = float(-24 * std::log(2) / (64 * chunks) * factor);
      expect_as_right_as_exact_ways(problem_with([=](auto, auto, double) { return g; }, 1, 1, kLong, 64, 64));
    }
  }
}

// What is dropped is much larger than what comes after it: values before position 2000 are a thousand times larger.
TEST_F(BoundedStartTest, StatesThatShrink) {
  for (const int chunks : {1, 9}) {
    const auto g = float(-24 * std::log(2) / (64 * chunks) * (1 + 1e-4));
    Problem problem = problem_with([=](auto, auto, double) { return g; }, 1, 1, kLong, 64, 64);
    const auto v = problem.inputs.at("v").elements<float>();
    for (std::size_t i = 0; i < 2000 * 64; ++i) v[i] *= 1024;
    expect_as_right_as_exact_ways(problem);
  }
}

// Some segments forget, and most do not. The state goes from one of the latter to the next. Gates are 0 or 1, so that the
// rounding of V~ is that of V, in whichever chunk it is decayed.
TEST_F(BoundedStartTest, SomeSegmentsForget) {
  const auto gate = [](std::int64_t head, std::int64_t t, double u) {
    const bool is_closed = head == 0 ? t == 1500 : head == 1 ? t == 700 || t == 1800 : u < 1e-3;
    return is_closed ? -1e4f : 0.0f;
  };
  expect_as_right_as_exact_ways(problem_with(gate, 1, 3, kLong, 64, 64));
}

TEST_F(BoundedStartTest, GatesOfEveryStrength) {
  for (const Gate& gate :
       {Gate([](auto, auto, double) { return 0.0f; }), Gate([](auto, auto, double) { return -3e38f; }),
        Gate([](auto, auto, double u) { return -float(std::pow(10.0, 8 * u - 7)); })}) {
    expect_as_right_as_exact_ways(problem_with(gate, 1, 1, kLong, 64, 64));
  }
}

// One head of four never forgets, and its states alone go through memory.
TEST_F(BoundedStartTest, OneHeadThatNeverForgets) {
  const auto problem_where = [](std::int64_t first, std::int64_t last) {
    return problem_with(
        [=](std::int64_t head, auto, double u) { return head >= first && head < last ? 0 : -0.5f - float(u); }, 2, 2,
        kLong, 64, 64);
  };
  expect_as_right_as_exact_ways(problem_where(2, 3));
  const double none = bytes_of(with_states<17>, problem_where(0, 0)),
               all = bytes_of(with_states<17>, problem_where(0, 4));
  EXPECT_GT(all, 1.5 * none);
  EXPECT_NEAR(bytes_of(with_states<17>, problem_where(2, 3)), none + (all - none) / 4, 1e-9 * all);
}

// Where all heads forget, nothing but gates is read beside a walk and its warm-ups of one chunk.
TEST_F(BoundedStartTest, NoStateInMemoryWhereGatesForget) {
  const Problem problem = problem_with([](auto, auto, double) { return -1.0f; }, 1, 1, kLong, 64, 64);
  const double walked = bytes_of(simple_gla::register_scores, problem);
  const double warm_ups = 16 * 64 * (2 * (64 + 64) + 4), looks = (16 + 16 * 9) * 8 * 64 * 4, gaps = 16 * 4 * 64;
  EXPECT_LE(bytes_of(with_states<17>, problem), walked + warm_ups + looks + gaps);
}

/// gla by the walk of `segments` in so many segments, with starts that read all of a segment or what gates let matter.
template <void (*kWalk)(const gla::Bf16Arguments&, tile::LaunchPlan), int kColumns, int kSegments>
void gla_in(const gla::Bf16Arguments& a) {
  kWalk(a, tile::make_launch_plan(a.L, kColumns, kSegments));
}

class BoundedGlaTest : public BoundedStartTest {
 protected:
  using Gate = std::function<float(std::int64_t head, std::int64_t t, std::int64_t d, double u)>;

  static Problem problem_with(const Gate& gate, std::int64_t H, std::int64_t L, std::int64_t Dk, std::int64_t Dv) {
    Problem problem = drawn(find_operator("gla"), 1, H, L, Dk, Dv);
    const auto g = problem.inputs.at("g").elements<float>();
    const Random random(2, "gates");
    for (std::size_t i = 0; i < g.size(); ++i) {
      const auto row = std::int64_t(i) / Dk;
      g[i] = gate(row / L, row % L, std::int64_t(i) % Dk, random.uniform(i));
    }
    return problem;
  }

  static Stage stage_of(StageFunction<void> run) {
    Stage stage = find_stage(find_operator("gla"), "segments");
    stage.run = std::move(run);
    return stage;
  }

  template <int kColumns, int kSegments>
  static void expect_as_right_as_exact_way(const Problem& problem) {
    const Operator& definition = find_operator("gla");
    const Outputs truth = evaluate_reference(definition, problem, Dtype::bf16);
    const Outputs exact =
        evaluate(definition, stage_of(gla_in<fused_gla::walk_segments, kColumns, kSegments>), problem);
    const Outputs bounded =
        evaluate(definition, stage_of(gla_in<fused_gla::walk_bounded_segments, kColumns, kSegments>), problem);
    for (const auto& [name, out] : bounded) {
      const Comparison own = compare(name, out, truth);
      EXPECT_LE(own.error, compare(name, exact.at(name), truth).error + 1e-6) << describe(own, name);
    }
  }

  static double bytes_of(StageFunction<void> run, const Problem& problem) {
    const Stage stage = stage_of(std::move(run));
    StageTensors tensors(find_operator("gla"), problem, stage.processor, storage_of(stage), Dtype::fp32);
    reset_kernel_counts();
    stage.run(tensors.call());
    const KernelCounts counts = kernel_counts();
    return counts.bytes_read + counts.bytes_written;
  }
};

// The channel that forgets least decides. It is at the edge; the others forget at once.
TEST_F(BoundedGlaTest, GatesAtTheEdge) {
  for (const int chunks : {1, 3}) {
    for (const double factor : {1 + 1e-4, 1 - 1e-4}) {
      SCOPED_TRACE(std::to_string(chunks) + " chunks, " + std::to_string(factor));
      const auto g = float(-24 * std::log(2) / (64 * chunks) * factor);
      expect_as_right_as_exact_way<64, 3>(
          problem_with([=](auto, auto, auto d, double) { return d == 37 ? g : -2.0f; }, 1, 1000, 64, 64));
    }
  }
}

// In one head one channel never forgets: it takes the exact way, alone.
TEST_F(BoundedGlaTest, OneChannelThatNeverForgets) {
  const auto problem_where = [](std::int64_t first, std::int64_t last) {
    return problem_with([=](auto head, auto, auto d,
                            double u) { return d == 5 && head >= first && head < last ? 0.0f : -0.5f - float(u); },
                        4, 1500, 64, 64);
  };
  expect_as_right_as_exact_way<64, 3>(problem_where(1, 2));
  expect_as_right_as_exact_way<64, 100>(problem_where(1, 2));
  const auto bytes = [&](std::int64_t first, std::int64_t last) {
    return bytes_of(gla_in<fused_gla::walk_bounded_segments, 64, 3>, problem_where(first, last));
  };
  const double none = bytes(0, 0), all = bytes(0, 4);
  EXPECT_GT(all, 1.1 * none);
  EXPECT_NEAR(bytes(1, 2), none + (all - none) / 4, 1e-9 * all);
}

TEST_F(BoundedGlaTest, GatesOfEveryStrengthAndAnyShape) {
  const Gate strengths[] = {[](auto, auto, auto, double) { return 0.0f; },
                            [](auto, auto, auto, double) { return -3e38f; },
                            [](auto, auto t, auto, double u) { return t % 300 < 200 ? -float(u) : 0.0f; }};
  for (const Gate& gate : strengths) {
    expect_as_right_as_exact_way<64, 100>(problem_with(gate, 1, 17, 48, 80));
    expect_as_right_as_exact_way<128, 2>(problem_with(gate, 1, 65, 128, 144));
    expect_as_right_as_exact_way<64, 4>(problem_with(gate, 2, 1000, 16, 16));
    expect_as_right_as_exact_way<128, 100>(problem_with(gate, 1, 330, 128, 128));
  }
}

TEST_F(BoundedStartTest, AnyShapeAndStateGivenOrNot) {
  const auto gate = [](auto, std::int64_t t, double u) { return t % 300 < 200 ? -float(u) : -1e-5f; };
  for (const auto& [B, H, L, Dk, Dv] : {std::array<std::int64_t, 5>{1, 1, 1, 128, 128},
                                        {1, 2, 17, 16, 144},
                                        {1, 1, 64, 80, 16},
                                        {2, 1, 65, 64, 64},
                                        {1, 3, 1000, 128, 80},
                                        {16, 3, 130, 48, 16}}) {
    SCOPED_TRACE("L " + std::to_string(L) + ", Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
    Problem problem = problem_with(gate, B, H, L, Dk, Dv);
    expect_as_right_as_exact_ways(problem);
    problem.inputs.erase("initial_state");
    expect_as_right_as_exact_ways(problem);
  }
}

}  // namespace
}  // namespace tutorial
