/// @file
/// Every plan of simple_gla's walk, and what its dispatch chooses.

#include "04_fused_chunk/fused_gla.hpp"
#include "04_fused_chunk/gla/launch_plan.hpp"
#include "04_fused_chunk/packed_gla.hpp"
#include "04_fused_chunk/packed_simple_gla.hpp"
#include "04_fused_chunk/simple_gla/dispatch/roles_walk.hpp"
#include "04_fused_chunk/simple_gla/dispatch/walks.hpp"
#include "04_fused_chunk/test/stages.hpp"
#include "common/chapter/machine.hpp"
#include "common/device/device.hpp"
#include "common/test/on_card.hpp"

namespace tutorial {
namespace {

using Walk = void(const simple_gla::Bf16Arguments&, tile::LaunchPlan);

template <Walk kWalk, int kColumns, int kSegments>
void walk_of(const simple_gla::Bf16Arguments& a) {
  kWalk(a, tile::make_launch_plan(a.L, kColumns, kSegments));
}

template <Walk kWalk, int kColumns, int kSegments>
void add_walk(Operator& definition) {
  definition.stage({.name = std::to_string(kColumns) + " columns, " + std::to_string(kSegments) + " segments",
                    .processor = Processor::gpu,
                    .dtype = Dtype::bf16,
                    .run = walk_of<kWalk, kColumns, kSegments>});
}

template <Walk kWalk, int kColumns>
void expect_right(std::int64_t Dk, std::int64_t Dv) {
  SCOPED_TRACE("Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
  Operator definition = find_operator("simple_gla");
  const std::size_t before = definition.stages().size();
  add_walk<kWalk, kColumns, 1>(definition);
  add_walk<kWalk, kColumns, 2>(definition);
  add_walk<kWalk, kColumns, 3>(definition);
  add_walk<kWalk, kColumns, 100>(definition);
  const Problem problem = drawn(definition, 1, 2, 410, Dk, Dv);
  const Outputs truth = evaluate_reference(definition, problem, Dtype::bf16);
  for (std::size_t i = before; i < definition.stages().size(); ++i) {
    const Stage& stage = definition.stages()[i];
    SCOPED_TRACE(stage.name);
    expect_close(evaluate(definition, stage, problem), truth, tolerance_of(stage, problem.sizes));
  }
}

TEST(LaunchPlanTest, EveryShapeOfTileInAnyNumberOfSegments) {
  for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{48, 144}, {128, 128}, {112, 208}}) {
    expect_right<simple_gla::walk, 64>(Dk, Dv);
    expect_right<simple_gla::walk, 128>(Dk, Dv);
  }
  expect_right<simple_gla::walk, 64>(208, 80);
}

using simple_gla::RolesLoader;

template <RolesLoader kLoader>
void roles_walk_by(const simple_gla::Bf16Arguments& a, tile::LaunchPlan plan) {
  simple_gla::roles_walk(a, plan, kLoader);
}

/// The walk with roles for warps, by one of its loaders.
class RolesLaunchPlanTest : public testing::TestWithParam<RolesLoader> {
 protected:
  void SetUp() override {
    if (is_bulk() && !bulk_copies_missing().empty()) GTEST_SKIP() << bulk_copies_missing();
  }
  static bool is_bulk() { return GetParam() == RolesLoader::kBulkCopies; }

  /// A stage that takes tiles of so many columns, and up to two segments.
  template <int kColumns>
  static Stage stage() {
    Stage stage = find_stage(find_operator("simple_gla"), "dispatch");
    if (is_bulk()) {
      stage.run = walk_of<roles_walk_by<RolesLoader::kBulkCopies>, kColumns, 2>;
    } else {
      stage.run = walk_of<roles_walk_by<RolesLoader::kCpAsync>, kColumns, 2>;
    }
    return stage;
  }

  /// Tiles of both widths.
  static void expect_right_outputs(const Problem& problem, const Layout& layout = {}) {
    const Operator& definition = find_operator("simple_gla");
    const Outputs truth = evaluate_reference(definition, problem, Dtype::bf16);
    for (const Stage& stage : {stage<64>(), stage<128>()}) {
      expect_close(evaluate(definition, stage, problem, layout), truth, tolerance_of(stage, problem.sizes));
    }
  }
};

TEST_P(RolesLaunchPlanTest, EveryShapeOfTileInAnyNumberOfSegments) {
  for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{48, 144}, {128, 208}}) {
    if (is_bulk()) {
      expect_right<roles_walk_by<RolesLoader::kBulkCopies>, 64>(Dk, Dv);
      expect_right<roles_walk_by<RolesLoader::kBulkCopies>, 128>(Dk, Dv);
    } else {
      expect_right<roles_walk_by<RolesLoader::kCpAsync>, 64>(Dk, Dv);
      expect_right<roles_walk_by<RolesLoader::kCpAsync>, 128>(Dk, Dv);
    }
  }
}

TEST_P(RolesLaunchPlanTest, AnyLengthWidthAndLayout) {
  const Operator& definition = find_operator("simple_gla");
  for (const auto& [L, Dk, Dv] : {std::array<std::int64_t, 3>{1, 128, 128},
                                  {2, 16, 256},
                                  {63, 80, 16},
                                  {64, 128, 128},
                                  {65, 64, 144},
                                  {130, 128, 112},
                                  {200, 112, 80},
                                  {1000, 64, 64}}) {
    SCOPED_TRACE("L " + std::to_string(L) + ", Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
    const Problem problem = drawn(definition, 1, 2, L, Dk, Dv);
    expect_right_outputs(problem);
    expect_right_outputs(problem, {.heads_inside = true, .row_padding = 8});
  }
  Problem from_zero = drawn(definition, 1, 1, 130, 128, 128);
  from_zero.inputs.erase("initial_state");
  expect_right_outputs(from_zero);
}

TEST_P(RolesLaunchPlanTest, GatesOfEveryStrength) {
  using Gate = float(std::int64_t t, float drawn);
  for (Gate* gate : {+[](std::int64_t, float) { return -1e4f; }, +[](std::int64_t, float) { return 0.0f; },
                     +[](std::int64_t t, float drawn) { return t % 7 == 3 ? -1e4f : drawn; },
                     +[](std::int64_t t, float) { return t / 64 % 2 == 1 ? -3e38f : 0.0f; }}) {
    Problem problem = drawn(find_operator("simple_gla"), 1, 1, 330, 128, 80);
    std::int64_t t = 0;
    for (float& g : problem.inputs.at("g").elements<float>()) g = gate(t++, g);
    expect_right_outputs(problem);
  }
}

INSTANTIATE_TEST_SUITE_P(Loaders, RolesLaunchPlanTest, testing::Values(RolesLoader::kBulkCopies, RolesLoader::kCpAsync),
                         [](const auto& info) {
                           return info.param == RolesLoader::kBulkCopies ? "BulkCopies" : "CpAsync";
                         });

/// The exact way.
void hopper_walk_of(const simple_gla::Bf16Arguments& a, tile::LaunchPlan plan) {
  simple_gla::hopper_walk(a, plan, 0);
}

TEST(LaunchPlanTest, EveryShapeOfWarpgroupTileInAnyNumberOfSegments) {
  if (const std::string reason = warpgroup_products_missing(); !reason.empty()) GTEST_SKIP() << reason;
  for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{48, 144}, {128, 128}, {112, 208}}) {
    expect_right<hopper_walk_of, 64>(Dk, Dv);
  }
}

template <int kColumns, int kSegments>
void gla_in_segments(const gla::Bf16Arguments& a) {
  fused_gla::walk_segments(a, tile::make_launch_plan(a.L, kColumns, kSegments));
}

TEST(LaunchPlanTest, GlaInAnyNumberOfSegments) {
  if (const std::string reason = warpgroup_products_missing(); !reason.empty()) GTEST_SKIP() << reason;
  const Operator& definition = find_operator("gla");
  const Stage& stage = find_stage(definition, "segments");
  for (const auto& [L, Dk, Dv] : {std::array<std::int64_t, 3>{330, 128, 128}, {200, 48, 208}, {1, 64, 80}}) {
    SCOPED_TRACE("L " + std::to_string(L) + ", Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
    const Problem problem = drawn(definition, 1, 2, L, Dk, Dv);
    const Outputs truth = evaluate_reference(definition, problem, Dtype::bf16);
    for (const auto run :
         {gla_in_segments<64, 1>, gla_in_segments<128, 1>, gla_in_segments<64, 100>, gla_in_segments<128, 2>}) {
      Stage changed = stage;
      changed.run = run;
      expect_close(evaluate(definition, changed, problem), truth, tolerance_of(stage, problem.sizes));
    }
  }
}

/// @param is_mapped whether bulk copies can take the tensors
std::string choice(int B, int H, int L, int Dk, int Dv, bool is_mapped, bool with_states = false) {
  static float state;  // only asked for, never read
  simple_gla::Bf16Arguments a{};
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
  if (with_states) a.initial_state.data = a.final_state.data = &state;
  return simple_gla::dispatch_note(a);
}

TEST(DispatchTest, SaysWhatItPicks) {
  EXPECT_EQ(choice(1, 1, 64, 40, 64, true).find("gla's dispatch, "), 0u);
  EXPECT_EQ(choice(1, 1, 64, 272, 64, true).find("gla's dispatch, chunk_gpu in fp32"), 0u);
  if (const std::string reason = warpgroup_products_missing(); !reason.empty()) GTEST_SKIP() << reason;
  EXPECT_EQ(choice(1, 1, 64, 128, 128, false), "fused, 64 columns per block");
  EXPECT_EQ(choice(1, 1, 64, 128, 128, true), "register_scores, 64 columns per block");
  EXPECT_EQ(choice(1, 1, 64, 144, 128, true), "fused, 64 columns per block") << "a state of 144 rows";
}

#if TUTORIAL_EMULATOR

// Not measured on these cards.
TEST(DispatchTest, TakesRolesWhereProductsOfWarpgroupsAreMissing) {
  const auto choice_on = [](const char* name, int H, int L, int Dk = 128, bool is_mapped = true) {
    const OnCard card(name);
    return choice(1, H, L, Dk, 128, is_mapped);
  };
  EXPECT_EQ(choice_on("rtx5090", 512, 2048), "roles, bulk copies, 128 columns per block");
  EXPECT_EQ(choice_on("rtx5090", 512, 2048, 128, false), "roles, cp.async, 128 columns per block");
  EXPECT_EQ(choice_on("rtx4090", 512, 2048), "roles, cp.async, 128 columns per block");
  EXPECT_EQ(choice_on("rtx3060", 512, 2048), "roles, cp.async, 128 columns per block");
  EXPECT_EQ(choice_on("a100", 512, 2048), "fused, 128 columns per block") << "its tiles fit";
  EXPECT_EQ(choice_on("b200", 512, 2048), "fused, 128 columns per block") << "two blocks per multiprocessor";
  EXPECT_EQ(choice_on("rtx5090", 1, 512), "roles, bulk copies, 8 segments, 64 columns per block");
  EXPECT_EQ(choice_on("b200", 512, 2048, 256), "fused, 64 columns per block");
}

class DispatchOnCardTest : public testing::TestWithParam<const char*> {};

TEST_P(DispatchOnCardTest, IsRightAtAnyLengthAndWidthAndCountsItsBytes) {
  const OnCard card(GetParam());
  const Operator& definition = find_operator("simple_gla");
  const Stage& stage = find_stage(definition, "dispatch");
  const auto expect_right_at = [&](std::int64_t L, std::int64_t Dk, std::int64_t Dv, const Layout& layout = {}) {
    SCOPED_TRACE("L " + std::to_string(L) + ", Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
    const Problem problem = drawn(definition, 1, 2, L, Dk, Dv);
    expect_close(evaluate(definition, stage, problem, layout), evaluate_reference(definition, problem, Dtype::bf16),
                 tolerance_of(stage, problem.sizes));
    StageTensors tensors(definition, problem, stage.processor, storage_of(stage), Dtype::fp32);
    const Call call = tensors.call();
    reset_kernel_counts();
    stage.run(call);
    const KernelCounts counts = kernel_counts();
    EXPECT_EQ(double(stage.bytes_moved(call)), counts.bytes_read + counts.bytes_written);
  };
  for (const std::int64_t L : {1, 63, 65, 200}) expect_right_at(L, 128, 128);
  expect_right_at(1000, 64, 64);  // in segments
  for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{16, 256}, {64, 144}, {80, 16}, {112, 80}}) {
    expect_right_at(130, Dk, Dv, {.heads_inside = true, .row_padding = 8});
  }
}

INSTANTIATE_TEST_SUITE_P(Cards, DispatchOnCardTest, testing::Values("rtx5090", "rtx4090", "b200", "a100"));

// With few multiprocessors a tile has 128 columns: one walking warpgroup more.
TEST(ScoreLevelsTest, TilesOf128Columns) {
  setenv("EMULATOR_MULTIPROCESSORS", "1", 1);
  const Operator& definition = find_operator("gla");
  const Stage& stage = find_stage(definition, "score_levels");
  for (const auto& [L, Dk, Dv] : {std::array<std::int64_t, 3>{200, 128, 128}, {65, 48, 208}, {1, 64, 80}}) {
    SCOPED_TRACE("L " + std::to_string(L) + ", Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
    const Problem problem = drawn(definition, 1, 2, L, Dk, Dv);
    expect_close(evaluate(definition, stage, problem), evaluate_reference(definition, problem, Dtype::bf16),
                 tolerance_of(stage, problem.sizes));
  }
  unsetenv("EMULATOR_MULTIPROCESSORS");
}

std::string choice_of_gla(int B, int H, int L, int Dk, int Dv) {
  gla::Bf16Arguments a{};
  a.B = B;
  a.H = H;
  a.L = L;
  a.Dk = Dk;
  a.Dv = Dv;
  a.q = a.k = packed<const __nv_bfloat16>(nullptr, H, L, Dk);
  a.g = packed<const float>(nullptr, H, L, Dk);
  a.v = packed<const __nv_bfloat16>(nullptr, H, L, Dv);
  a.o = packed<__nv_bfloat16>(nullptr, H, L, Dv);
  return fused_gla::dispatch_note(a);
}

// As many segments as an H200 has multiprocessors for, where the walk is long enough for them.
TEST(DispatchTest, TakesSegmentsOnHopper) {
  setenv("EMULATOR_MULTIPROCESSORS", "132", 1);
  EXPECT_EQ(choice_of_gla(4, 8, 32, 128, 128), "segments: 1 segment, 64 columns per block");
  EXPECT_EQ(choice_of_gla(4, 8, 128, 128, 128), "segments: 1 segment, 64 columns per block");
  EXPECT_EQ(choice_of_gla(4, 8, 2048, 128, 128), "segments: 4 segments, 128 columns per block");
  EXPECT_EQ(choice_of_gla(4, 8, 16384, 128, 128), "segments: 4 segments, 128 columns per block");
  EXPECT_EQ(choice_of_gla(1, 8, 16384, 128, 128), "segments: 16 segments, 128 columns per block");
  EXPECT_EQ(choice_of_gla(2, 64, 8192, 128, 128), "segments: 1 segment, 128 columns per block");
  EXPECT_EQ(choice_of_gla(8, 32, 2048, 128, 128), "segments: 1 segment, 128 columns per block");
  EXPECT_EQ(choice_of_gla(4, 8, 1024, 128, 128), "segments: 4 segments, 128 columns per block");
  EXPECT_EQ(choice_of_gla(1, 8, 1024, 128, 128).find("segments: "), 0u);
  EXPECT_EQ(choice_of_gla(1, 1, 4096, 128, 128).find("segments: "), 0u);
  EXPECT_EQ(choice_of_gla(4, 8, 512, 128, 128).find("chapter 03: "), 0u);
  EXPECT_EQ(choice_of_gla(4, 8, 640, 128, 128).find("chapter 03: "), 0u);
  EXPECT_EQ(choice_of_gla(1, 1, 16384, 128, 128).find("chapter 03: "), 0u);
  EXPECT_EQ(choice_of_gla(4, 8, 128, 256, 128).find("chapter 03: "), 0u) << "a state of 256 rows";
  EXPECT_EQ(choice_of_gla(4, 8, 128, 40, 128).find("chapter 03: "), 0u) << "not for tensor cores";
  unsetenv("EMULATOR_MULTIPROCESSORS");
}

TEST(DispatchTest, ChoosesByHeadsAndLength) {
  setenv("EMULATOR_MULTIPROCESSORS", "132", 1);
  EXPECT_NE(choice(4, 8, 16384, 128, 128, false).find("segments"), std::string::npos);
  EXPECT_EQ(choice(8, 32, 2048, 128, 128, false), "fused, 128 columns per block");
  EXPECT_EQ(choice(4, 8, 384, 128, 128, false), "fused, 64 columns per block");
  EXPECT_EQ(choice(4, 8, 448, 128, 128, false), "two_kernels");
  EXPECT_EQ(choice(4, 8, 512, 128, 128, false), "two_kernels");
  EXPECT_EQ(choice(1, 1, 192, 128, 128, false), "fused, 64 columns per block");
  EXPECT_EQ(choice(1, 1, 256, 128, 128, false), "two_kernels");
  EXPECT_EQ(choice(4, 8, 128, 128, 128, true), "register_scores, 64 columns per block") << "too short for two segments";
  EXPECT_EQ(choice(4, 8, 2000, 128, 128, true), "bounded_start, 2 segments, 64 columns per block");
  EXPECT_EQ(choice(4, 8, 16384, 128, 128, true), "bounded_start, 2 segments, 64 columns per block");
  EXPECT_EQ(choice(2, 64, 8192, 128, 128, true), "register_scores, 64 columns per block");
  EXPECT_EQ(choice(1, 8, 16384, 128, 128, true), "bounded_start, 8 segments, 64 columns per block");
  EXPECT_EQ(choice(1, 1, 65536, 128, 128, true), "bounded_start, 64 segments, 64 columns per block");
  EXPECT_EQ(choice(1, 96, 8192, 128, 128, true), "bounded_start, 2 segments, 64 columns per block") << "three rounds";
  for (const bool is_mapped : {false, true}) {
    for (const int heads : {1, 32, 256}) {  // no matter whether states are given and asked for
      for (int L = 64; L <= 4096; L += 64) {
        EXPECT_EQ(choice(1, heads, L, 128, 128, is_mapped, true), choice(1, heads, L, 128, 128, is_mapped));
      }
    }
  }
  unsetenv("EMULATOR_MULTIPROCESSORS");
}

template <class Arguments>
std::string packed_choice(std::string (*note)(const PackedSequences<Arguments>&), const char* card, int L, int Dk) {
  constexpr int H = 8, Dv = 128;
  const OnCard on_card(card);
  PackedSequences<Arguments> p{};
  Arguments& a = p.all;
  a.B = 1, a.H = H, a.L = L, a.Dk = Dk, a.Dv = Dv, p.N = 32;
  a.q = a.k = packed<const __nv_bfloat16>(nullptr, H, L, Dk);
  a.v = packed<const __nv_bfloat16>(nullptr, H, L, Dv);
  a.g = packed<const float>(nullptr, H, L, std::is_same_v<Arguments, gla::Bf16Arguments> ? Dk : 1);
  a.o = packed<__nv_bfloat16>(nullptr, H, L, Dv);
  return note(p);
}

TEST(PackedDispatchTest, CutsByTheSumOfTheLengths) {
  const auto of_gla = [](const char* card, int L, int Dk) {
    return packed_choice(fused_gla::dispatch_packed_note, card, L, Dk);
  };
  EXPECT_EQ(of_gla("h200", 65536, 128), "warpgroups, segments of 4032 positions at most, 128 columns per block");
  EXPECT_EQ(of_gla("h200", 4000, 128), "warpgroups, segments of 1024 positions at most, 64 columns per block");
  EXPECT_EQ(of_gla("h200", 1000, 128), "warpgroups, 64 columns per block");
  EXPECT_EQ(of_gla("h200", 65536, 256).substr(0, 19), "chapter 03: packed,");
  EXPECT_EQ(of_gla("a100", 65536, 128),
            "chapter 03: packed, segments of 4864 positions at most, 128 columns per block");
  EXPECT_EQ(of_gla("a100", 65536, 40).substr(0, 49), "chapter 03: dispatch, one sequence after the othe");
  const auto of_simple_gla = [](const char* card, int L, int Dk) {
    return packed_choice(simple_gla::dispatch_packed_note, card, L, Dk);
  };
  EXPECT_EQ(of_simple_gla("h200", 65536, 128), "warpgroups, segments of 8000 positions at most, 64 columns per block");
  EXPECT_EQ(of_simple_gla("a100", 65536, 128), "packed, segments of 4864 positions at most, 128 columns per block");
  EXPECT_EQ(of_simple_gla("h200", 65536, 40), "gla's dispatch, one sequence after the other");
}

#endif

}  // namespace
}  // namespace tutorial
