/// @file
/// Every plan of the launch behind dispatch, and what dispatch chooses.

#include "02_chunkwise/linear_attention.hpp"
#include "02_chunkwise/linear_attention/dispatch/walk.hpp"
#include "02_chunkwise/test/stages.hpp"
#include "common/device/device.hpp"
#include "common/test/on_card.hpp"
#include "common/tile/launch_plan.hpp"

namespace tutorial::linear_attention {
namespace {

using Walk = void(const Bf16Arguments&, const tile::LaunchPlan&, const Normalizer*);

template <Walk kWalk, int kColumns, int kSegments>
void walk_in_segments(const Bf16Arguments& a) {
  kWalk(a, tile::make_launch_plan(a.L, kColumns, kSegments), nullptr);
}

template <Walk kWalk, int kColumns>
void expect_right(std::int64_t L, std::int64_t Dk, std::int64_t Dv) {
  Operator definition = linear_attention_operator();
  const std::size_t before = definition.stages().size();
  definition.stage({.name = "1",
                    .processor = Processor::gpu,
                    .dtype = Dtype::bf16,
                    .run = on<Bf16Arguments>(walk_in_segments<kWalk, kColumns, 1>)});
  definition.stage({.name = "2",
                    .processor = Processor::gpu,
                    .dtype = Dtype::bf16,
                    .run = on<Bf16Arguments>(walk_in_segments<kWalk, kColumns, 2>)});
  definition.stage({.name = "3",
                    .processor = Processor::gpu,
                    .dtype = Dtype::bf16,
                    .run = on<Bf16Arguments>(walk_in_segments<kWalk, kColumns, 3>)});
  definition.stage({.name = "100",
                    .processor = Processor::gpu,
                    .dtype = Dtype::bf16,
                    .run = on<Bf16Arguments>(walk_in_segments<kWalk, kColumns, 100>)});
  const Problem problem =
      make_problem(definition, {.sizes = {{"B", 1}, {"H", 2}, {"L", L}, {"Dk", Dk}, {"Dv", Dv}}, .seed = 3});
  const Outputs truth = evaluate_reference(definition, problem, Dtype::bf16);
  for (std::size_t i = before; i < definition.stages().size(); ++i) {
    const Stage& stage = definition.stages()[i];
    SCOPED_TRACE(std::to_string(kColumns) + " columns, segments up to " + stage.name);
    expect_close(evaluate(definition, stage, problem), truth, tolerance_of(stage, problem.sizes));
  }
}

TEST(WalkTest, EveryShapeOfTileInAnyNumberOfSegments) {
  for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{48, 144}, {128, 128}, {112, 208}}) {
    SCOPED_TRACE("Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
    expect_right<walk, 64>(410, Dk, Dv);
    expect_right<walk, 128>(410, Dk, Dv);
  }
  expect_right<walk, 64>(410, 208, 80);
}

template <RolesLoader kLoader>
void roles_walk_by(const Bf16Arguments& a, const tile::LaunchPlan& plan, const Normalizer*) {
  roles_walk(a, plan, kLoader);
}

TEST(WalkTest, EveryShapeOfTileThatRolesLoadByCpAsync) {
  expect_right<roles_walk_by<RolesLoader::kCpAsync>, 64>(410, 48, 144);
  expect_right<roles_walk_by<RolesLoader::kCpAsync>, 128>(410, 48, 144);
  expect_right<roles_walk_by<RolesLoader::kCpAsync>, 64>(410, 112, 80);
  expect_right<roles_walk_by<RolesLoader::kCpAsync>, 128>(410, 128, 208);
}

TEST(WalkTest, EveryShapeOfTileThatRolesLoadByBulkCopies) {
  if (!bulk_copies_missing().empty()) GTEST_SKIP() << bulk_copies_missing();
  expect_right<roles_walk_by<RolesLoader::kBulkCopies>, 64>(410, 48, 144);
  expect_right<roles_walk_by<RolesLoader::kBulkCopies>, 128>(410, 48, 144);
  expect_right<roles_walk_by<RolesLoader::kBulkCopies>, 64>(410, 112, 80);
  expect_right<roles_walk_by<RolesLoader::kBulkCopies>, 128>(410, 128, 208);
}

TEST(WalkTest, EveryShapeOfWarpgroupTileInAnyNumberOfSegments) {
  if (const std::string reason = warpgroup_products_missing(); !reason.empty()) GTEST_SKIP() << reason;
  for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{48, 144}, {128, 128}, {112, 208}}) {
    SCOPED_TRACE("Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
    expect_right<hopper_walk, 64>(410, Dk, Dv);
  }
}

#if TUTORIAL_EMULATOR

/// Tests on a card that the emulator stands for.
class WalkOnCardTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { setenv("EMULATOR_DEVICE", GetParam(), 1); }
  void TearDown() override { unsetenv("EMULATOR_DEVICE"); }
};

TEST_P(WalkOnCardTest, DispatchIsRightAtAnyLengthAndWidth) {
  const Operator& definition = linear_attention_operator();
  const Stage& stage = find_stage("dispatch");
  const auto expect_right_at = [&](std::int64_t L, std::int64_t Dk, std::int64_t Dv, const Layout& layout = {}) {
    SCOPED_TRACE("L " + std::to_string(L) + ", Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
    const Problem problem = make_problem(
        definition, {.sizes = {{"B", 1}, {"H", 2}, {"L", L}, {"Dk", Dk}, {"Dv", Dv}}, .seed = std::uint64_t(L)});
    expect_close(evaluate(definition, stage, problem, layout), evaluate_reference(definition, problem, Dtype::bf16),
                 tolerance_of(stage, problem.sizes));
  };
  for (const std::int64_t L : {1, 2, 63, 64, 65, 127, 200}) expect_right_at(L, 128, 128);
  expect_right_at(1000, 64, 64);
  for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{16, 256}, {64, 144}, {80, 16}, {112, 80}}) {
    expect_right_at(130, Dk, Dv, {.heads_inside = true, .row_padding = 8});
  }
}

INSTANTIATE_TEST_SUITE_P(Cards, WalkOnCardTest, testing::Values("rtx5090", "rtx4090", "b200", "a100"));

#endif

/// @param is_mapped whether bulk copies can take the tensors
std::string choice(int B, int H, int L, int Dk, int Dv, bool is_mapped = true) {
  Bf16Arguments a{};
  a.B = B;
  a.H = H;
  a.L = L;
  a.Dk = Dk;
  a.Dv = Dv;
  if (is_mapped) {
    a.q = a.k = packed<const __nv_bfloat16>(nullptr, H, L, Dk);
    a.v = packed<const __nv_bfloat16>(nullptr, H, L, Dv);
    a.o = packed<__nv_bfloat16>(nullptr, H, L, Dv);
  }
  return dispatch_note(a);
}

// What was measured to be fastest, or within a few percent of it, with as many multiprocessors as an H200 has.
TEST(DispatchTest, ChoosesByHeadsAndLength) {
  if (!is_an_h200()) GTEST_SKIP() << "the choices are an H200's";
  EXPECT_EQ(choice(4, 8, 512, 128, 128), "queued_products, 64 columns per block");
  EXPECT_EQ(choice(4, 8, 2048, 128, 128), "queued_products, 64 columns per block");
  EXPECT_EQ(choice(4, 8, 16384, 128, 128), "warpgroups, 2 segments, 64 columns per block");
  EXPECT_EQ(choice(1, 8, 16384, 128, 128), "warpgroups, 8 segments, 64 columns per block");
  EXPECT_EQ(choice(1, 1, 65536, 128, 128), "warpgroups, 54 segments, 64 columns per block");
  EXPECT_EQ(choice(2, 64, 8192, 128, 128), "queued_products, 64 columns per block");
  EXPECT_EQ(choice(1, 1, 64, 128, 128), "warpgroup_mma, 64 columns per block");
}

#if TUTORIAL_EMULATOR

// Its memory is slower: what segments read once more would be the limit.
TEST(DispatchTest, AnH100TakesOneSegmentWhereAnH200TakesTwo) {
  const OnCard card("h100");
  EXPECT_EQ(choice(4, 8, 16384, 128, 128), "queued_products, 64 columns per block");
  EXPECT_EQ(choice(1, 8, 16384, 128, 128), "warpgroups, 6 segments, 64 columns per block");
}

#endif

TEST(DispatchTest, TakesMmaByWarpsWhereBulkCopiesCannotTakeTheTensors) {
  if (!is_an_h200()) GTEST_SKIP() << "the choices are an H200's";
  EXPECT_EQ(choice(4, 8, 512, 128, 128, false), "mma by warps, 64 columns per block");
  EXPECT_EQ(choice(4, 8, 2048, 128, 128, false), "mma by warps, 4 segments, 128 columns per block");
  EXPECT_EQ(choice(4, 8, 16384, 128, 128, false), "mma by warps, 8 segments, 128 columns per block");
  EXPECT_EQ(choice(1, 1, 16384, 128, 128, false), "mma by warps, 64 segments, 64 columns per block");
  EXPECT_EQ(choice(8, 32, 2048, 128, 128, false), "mma by warps, 128 columns per block");
  EXPECT_EQ(choice(8, 32, 2048, 256, 128).substr(0, 12), "mma by warps") << "a state of 256 rows";
}

#if TUTORIAL_EMULATOR

// Not measured on these cards.
TEST(DispatchTest, TakesRolesWhereProductsOfWarpgroupsAreMissing) {
  const auto choice_on = [](const char* card, int H, int Dk = 128, bool is_mapped = true) {
    setenv("EMULATOR_DEVICE", card, 1);
    const std::string note = choice(1, H, 2048, Dk, 128, is_mapped);
    unsetenv("EMULATOR_DEVICE");
    return note;
  };
  EXPECT_EQ(choice_on("rtx5090", 512), "roles, bulk copies, 128 columns per block");
  EXPECT_EQ(choice_on("rtx5090", 512, 128, false), "roles, cp.async, 128 columns per block");
  EXPECT_EQ(choice_on("rtx4090", 512), "roles, cp.async, 128 columns per block");
  EXPECT_EQ(choice_on("rtx3060", 512), "roles, cp.async, 128 columns per block");
  EXPECT_EQ(choice_on("a100", 512), "mma by warps, 128 columns per block") << "tiles of 104 KB fit";
  EXPECT_EQ(choice_on("b200", 512), "mma by warps, 128 columns per block") << "two blocks per multiprocessor";
  EXPECT_EQ(choice_on("b200", 512, 256), "mma by warps, 64 columns per block");
}

#endif

TEST(DispatchTest, SaysWhyItFallsBack) {
  EXPECT_EQ(choice(1, 1, 64, 40, 64).substr(0, 14), "fused in fp32:");
  EXPECT_EQ(choice(1, 1, 64, 64, 65).substr(0, 14), "fused in fp32:");
  EXPECT_EQ(choice(1, 1, 64, 272, 64).substr(0, 14), "fused in fp32:");
}

}  // namespace
}  // namespace tutorial::linear_attention
