/// @file
/// Every plan of the walk, what dispatch chooses, and that every choice is right. The emulator
/// lets a test choose the number of multiprocessors.

#include <cstdlib>

#include "03_gla/gla.hpp"
#include "03_gla/gla/launch_plan.hpp"
#include "03_gla/test/stages.hpp"
#include "common/device/device.hpp"

namespace tutorial::gla {
namespace {

template <auto kWalk, int kColumns, int kSegments>
void plan(const Bf16Arguments& a) {
  kWalk(a, tile::make_launch_plan(a.L, kColumns, kSegments));
}

template <auto kWalk, int kColumns>
void expect_right(std::int64_t L, std::int64_t Dk, std::int64_t Dv) {
  Operator definition = gla_operator();
  const std::size_t before = definition.stages().size();
  definition.stage({.name = "1",
                    .processor = Processor::gpu,
                    .dtype = Dtype::bf16,
                    .run = on<Bf16Arguments>(plan<kWalk, kColumns, 1>)});
  definition.stage({.name = "2",
                    .processor = Processor::gpu,
                    .dtype = Dtype::bf16,
                    .run = on<Bf16Arguments>(plan<kWalk, kColumns, 2>)});
  definition.stage({.name = "3",
                    .processor = Processor::gpu,
                    .dtype = Dtype::bf16,
                    .run = on<Bf16Arguments>(plan<kWalk, kColumns, 3>)});
  definition.stage({.name = "100",
                    .processor = Processor::gpu,
                    .dtype = Dtype::bf16,
                    .run = on<Bf16Arguments>(plan<kWalk, kColumns, 100>)});
  const Problem problem =
      make_problem(definition, {.sizes = {{"B", 1}, {"H", 2}, {"L", L}, {"Dk", Dk}, {"Dv", Dv}}, .seed = 3});
  const Outputs truth = evaluate_reference(definition, problem, Dtype::bf16);
  for (std::size_t i = before; i < definition.stages().size(); ++i) {
    const Stage& stage = definition.stages()[i];
    SCOPED_TRACE(std::to_string(kColumns) + " columns, segments up to " + stage.name);
    expect_close(evaluate(definition, stage, problem), truth, tolerance_of(stage, problem.sizes));
  }
}

TEST(LaunchPlanTest, EveryShapeOfTileInAnyNumberOfSegments) {
  for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{48, 144}, {128, 128}, {112, 208}}) {
    SCOPED_TRACE("Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
    expect_right<walk, 64>(410, Dk, Dv);
    expect_right<walk, 128>(410, Dk, Dv);
  }
  expect_right<walk, 64>(410, 208, 80);
}

TEST(LaunchPlanTest, WarpgroupsInAnyNumberOfSegments) {
  if (const std::string reason = warpgroup_products_missing(); !reason.empty()) GTEST_SKIP() << reason;
  for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{48, 144}, {128, 128}}) {
    SCOPED_TRACE("Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
    expect_right<walk_on_warpgroups, 64>(410, Dk, Dv);
  }
}

template <class T>
Arguments<T> sizes(int B, int H, int L, int Dk, int Dv) {
  Arguments<T> a{};
  a.B = B;
  a.H = H;
  a.L = L;
  a.Dk = Dk;
  a.Dv = Dv;
  return a;
}

std::string choice_fp32(int B, int H, int L, int Dk, int Dv) {
  return dispatch_note(sizes<float>(B, H, L, Dk, Dv));
}

/// @param is_mapped whether bulk copies can take v
std::string choice(int B, int H, int L, int Dk, int Dv, bool is_mapped = false) {
  auto a = sizes<__nv_bfloat16>(B, H, L, Dk, Dv);
  if (is_mapped) a.v = packed<const __nv_bfloat16>(nullptr, H, L, Dv);
  return dispatch_note(a);
}

TEST(DispatchTest, TakesWhatTheRegistersCannotHold) {
  EXPECT_EQ(choice_fp32(1000, 1000, 1, 257, 64), "chunk_gpu");
  EXPECT_NE(choice_fp32(1000, 1000, 1, 256, 64), "chunk_gpu");
  EXPECT_EQ(choice(1, 1, 1, 272, 64).find("chunk_gpu in fp32"), 0u);
  EXPECT_EQ(choice(1, 1, 1, 24, 64).find("recurrent_gpu in fp32"), 0u);
  EXPECT_EQ(choice(1, 1, 1, 256, 64).find("subchunk_walk"), 0u);
}

#if TUTORIAL_EMULATOR
class MultiprocessorsTest : public testing::Test {
 protected:
  static void set(const char* multiprocessors) { setenv("EMULATOR_MULTIPROCESSORS", multiprocessors, 1); }
  void TearDown() override { unsetenv("EMULATOR_MULTIPROCESSORS"); }
};

TEST_F(MultiprocessorsTest, ChoicesFollowTheNumberOfHeadsAndPositions) {
  set("132");
  EXPECT_EQ(choice_fp32(1, 1, 1, 128, 128), "recurrent_gpu") << "a step";
  EXPECT_EQ(choice_fp32(1, 1, 4096, 128, 128), "chunk_gpu") << "chunks for idle multiprocessors";
  EXPECT_EQ(choice_fp32(32, 32, 4096, 128, 128), "recurrent_gpu") << "there are none";
  EXPECT_EQ(choice(4, 8, 64, 128, 128), "subchunk_walk, 64 columns per block");
  EXPECT_EQ(choice(32, 32, 4096, 128, 128), "subchunk_walk, 128 columns per block");
  const std::string long_sequences = choice(4, 8, 16384, 128, 128);
  EXPECT_EQ(long_sequences.find("subchunk_walk, "), 0u) << long_sequences;
  EXPECT_NE(long_sequences.find(" segments, 128 columns"), std::string::npos) << long_sequences;
}

// What was measured to be fastest, or within a few percent of it, with as many multiprocessors as an H200 has.
TEST_F(MultiprocessorsTest, WarpgroupsWalkWhereBulkCopiesCanTakeV) {
  set("132");
  EXPECT_EQ(choice(4, 8, 512, 128, 128, true), "warpgroup_walk, 64 columns per block");
  EXPECT_EQ(choice(4, 8, 2048, 128, 128, true), "warpgroup_walk, 64 columns per block");
  EXPECT_EQ(choice(4, 8, 16384, 128, 128, true), "subchunk_walk, 8 segments, 128 columns per block");
  EXPECT_EQ(choice(1, 8, 16384, 128, 128, true), "warpgroup_walk, 16 segments, 64 columns per block");
  EXPECT_EQ(choice(2, 64, 8192, 128, 128, true), "warpgroup_walk, 64 columns per block");
  EXPECT_EQ(choice(4, 8, 64, 144, 128, true), "subchunk_walk, 64 columns per block") << "a state of 144 rows";
}

// A width for the tensor cores, one that goes through fp32, and rows that are not aligned.
TEST_F(MultiprocessorsTest, EveryChoiceIsRight) {
  Operator definition = gla_operator();
  definition.stage({.name = "fp32", .processor = Processor::gpu, .run = on<FloatArguments>(dispatch)});
  for (const auto& [Dk, layout] : {std::pair<std::int64_t, Layout>{64, {}}, {40, {}}, {64, {.row_padding = 3}}}) {
    const Problem problem = gla_problem(1, 2, 300, Dk, 48);
    for (const char* multiprocessors : {"1", "1000"}) {
      set(multiprocessors);
      for (const char* name : {"dispatch", "fp32"}) {
        const Stage& stage = find_stage(definition, name);
        expect_close(evaluate(definition, stage, problem, layout),
                     evaluate_reference(definition, problem, is_bf16(stage) ? Dtype::bf16 : Dtype::fp32),
                     tolerance_of(stage, problem.sizes));
      }
      EXPECT_EQ(choice_fp32(1, 2, 300, 64, 48),
                *multiprocessors == '1' && !multiprocessors[1] ? "recurrent_gpu" : "chunk_gpu");
    }
  }
}
#endif

}  // namespace
}  // namespace tutorial::gla
