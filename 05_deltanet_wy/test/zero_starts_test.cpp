/// @file
/// Segments that start from zeros: as exact as the walk from the first position to the last, and left to it where gates
/// or keys do not allow them.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "05_deltanet_wy/gated_delta_rule.hpp"
#include "05_deltanet_wy/kda.hpp"
#include "05_deltanet_wy/kda/dispatch/middle_anchor.hpp"
#include "05_deltanet_wy/test/stages.hpp"
#include "common/test/on_card.hpp"
#include "common/test/split.hpp"

namespace tutorial {
namespace {

/// A stage with segments from zeros, the same without segments, and what walks a head that needs its past; null where
/// the stage itself computes what segments need.
struct Pair {
  const char *operator_name, *stage, *whole, *exact;
};

/// `middle_anchor` without segments, which is no stage: others round other numbers.
constexpr const char* kOnePiece = "middle_anchor in one piece";

void middle_anchor_in_one_piece(const kda::Bf16Arguments& a) {
  kda::middle_anchor(a, tile::make_launch_plan(a.L, 64, 1));
}

class ZeroStartsTest : public testing::TestWithParam<Pair> {
 protected:
  void SetUp() override {
    if (const std::string reason = warpgroup_products_missing(); !reason.empty()) GTEST_SKIP() << reason;
  }
  const Operator& definition() const { return find_operator(GetParam().operator_name); }
  Problem problem(std::int64_t H, std::int64_t L, std::int64_t Dk = 64, std::int64_t Dv = 64) const {
    return drawn(1, H, L, Dk, Dv, 64, definition());
  }
  Outputs run(const char* stage, const Problem& x) const {
    if (std::string(stage) != kOnePiece) return evaluate(definition(), find_stage(definition(), stage), x);
    Stage one_piece{.name = kOnePiece, .processor = Processor::gpu, .dtype = Dtype::bf16};
    one_piece.run = on<kda::Bf16Arguments>(middle_anchor_in_one_piece);
    return evaluate(definition(), one_piece, x);
  }

  /// Expects the stage's error to be small, and no larger than that of the walks that need no start by more than 1e-6,
  /// or by a tenth where it computes starts.
  void expect_exact(const Problem& x, double tolerance = 1e-2) const {
    const Outputs truth = evaluate_reference(definition(), x, Dtype::bf16);
    const char* exact = GetParam().exact;
    const Outputs found = run(GetParam().stage, x), whole = run(GetParam().whole, x);
    const Outputs other = run(exact ? exact : GetParam().whole, x);
    for (const auto& [name, out] : found) {
      const double error = compare(name, out, truth).error;
      const double most =
          std::max(compare(name, whole.at(name), truth).error, compare(name, other.at(name), truth).error);
      EXPECT_LE(error, (exact ? 1 : 1.1) * most + 1e-6) << name;
      EXPECT_LE(error, tolerance) << name;
    }
  }
  /// Whether a head's outputs have the bits of the walk of a head that needs its past, if there is such a walk.
  bool is_left_to_exact_way(const Problem& x, std::int64_t head, const Outputs& found) const {
    if (GetParam().exact == nullptr) return true;
    const Outputs exact = run(GetParam().exact, x);
    const auto o = found.at("o").elements<float>(), expected = exact.at("o").elements<float>();
    const std::size_t each = o.size() / std::size_t(x.sizes.at("H")), first = std::size_t(head) * each;
    return std::equal(o.begin() + std::ptrdiff_t(first), o.begin() + std::ptrdiff_t(first + each),
                      expected.begin() + std::ptrdiff_t(first));
  }
  /// Calls set(t, g) for all gates of a head.
  template <class Set>
  static void set_gates(Problem& x, std::int64_t head, Set set) {
    const auto g = x.inputs.at("g").elements<float>();
    const std::size_t L = std::size_t(x.sizes.at("L")), each = g.size() / std::size_t(x.sizes.at("H"));
    for (std::size_t i = 0; i < each; ++i) set(i / (each / L), g[std::size_t(head) * each + i]);
  }
};

TEST_P(ZeroStartsTest, Lengths) {
  for (const std::int64_t L : {1, 63, 64, 65, 130, 1000}) {
    SCOPED_TRACE("L " + std::to_string(L));
    expect_exact(problem(2, L));
    expect_exact(problem(1, L, 128, 80));
  }
}

TEST_P(ZeroStartsTest, NoInitialStateAndNoFinalState) {
  Problem x = problem(1, 450);
  x.inputs.erase("initial_state");
  expect_exact(x);
}

// The gates of 64 positions, and of 128, multiply to just above and just below 2^-24. With KDA the bound is about 30
// times that product, so here gates in between lie on both sides.
TEST_P(ZeroStartsTest, GatesOnBothSidesOfTheBound) {
  const double whole = 24 * std::log(2.0);
  for (const double gate : {whole / 64, whole / 128, whole / 192, 1.2 * whole / 64, 1.3 * whole / 128}) {
    for (const double factor : {0.999, 1.001}) {
      SCOPED_TRACE(gate * factor);
      Problem x = problem(1, 700, 32, 32);
      set_gates(x, 0, [&](std::size_t, float& g) { g = float(-gate * factor); });
      expect_exact(x);
    }
  }
}

// Gates of 0 and gates of 1 in turn, in time and, where there are several, from channel to channel.
TEST_P(ZeroStartsTest, GatesOfZeroAndOne) {
  Problem x = problem(1, 700, 32, 32);
  set_gates(x, 0, [](std::size_t t, float& g) { g = t % 200 == 7 ? -INFINITY : 0; });
  expect_exact(x, 2e-2);
  const auto g = x.inputs.at("g").elements<float>();
  for (std::size_t i = 0; i < g.size(); ++i) g[i] = i % 3 == 0 ? -1e4f : 0;
  expect_exact(x, 2e-2);
}

TEST_P(ZeroStartsTest, OneHeadThatNeverForgets) {
  Problem x = problem(3, 700);
  set_gates(x, 1, [](std::size_t, float& g) { g = 0; });
  for (float& beta : x.inputs.at("beta").elements<float>()) beta *= 0.25f;
  expect_exact(x);
  const Outputs found = run(GetParam().stage, x);
  EXPECT_TRUE(is_left_to_exact_way(x, 1, found));
}

// beta |k|^2 = 9 beta: such a step may stretch a state by up to 8. With gates as they are drawn it does, so the product
// of gates is no bound; with strong ones the state fades all the same.
TEST_P(ZeroStartsTest, LongKeys) {
  Problem x = problem(1, 450);
  for (float& k : x.inputs.at("k").elements<float>()) k *= 3;
  round_to_bf16(x.inputs.at("k"));
  fill(x.inputs.at("beta"), 0.9f);
  set_gates(x, 0, [](std::size_t, float& g) { g = -1.9f; });
  expect_exact(x, 2e-2);
  // The bound of `middle_anchor` is computed from T, and holds for any keys.
  if (GetParam().whole != kOnePiece) {
    EXPECT_TRUE(is_left_to_exact_way(x, 0, run(GetParam().stage, x)));
  }
}

TEST_P(ZeroStartsTest, TwoCallsAreOne) {
  constexpr std::int64_t L = 600;
  const Problem whole = problem(1, L, 32, 32);
  const Outputs at_once = run(GetParam().whole, whole);
  const Outputs first = run(GetParam().stage, part_of(whole, 0, 330, whole.inputs.at("initial_state")));
  const Outputs second = run(GetParam().stage, part_of(whole, 330, L, first.at("final_state")));
  EXPECT_TRUE(compare(second.at("final_state"), at_once.at("final_state")).within(1e-2));
  EXPECT_TRUE(compare(second.at("o"), slice(at_once.at("o"), 330, L)).within(1e-2));
}

// Starts that are computed: gates of all strengths that leave something after several chunks, and segments from zeros
// among the others. The last length has more segments than a warp has lanes.
TEST_P(ZeroStartsTest, PastThatIsNeeded) {
  for (const float gate : {0.0f, 1.0f / 1024, 1.0f / 64}) {
    for (const std::int64_t Dk : {64, 80}) {
      SCOPED_TRACE("gates times " + std::to_string(gate) + ", Dk " + std::to_string(Dk));
      Problem x = problem(1, 600, Dk, 80);
      set_gates(x, 0, [&](std::size_t, float& g) { g *= gate; });
      expect_exact(x);
      set_gates(x, 0, [](std::size_t t, float& g) { g = t / 64 == 3 || t / 64 == 7 ? -2.0f : g; });
      expect_exact(x);
    }
  }
  Problem x = problem(1, 2560, 16, 16);
  set_gates(x, 0, [](std::size_t t, float& g) { g = t == 2100 ? -100.0f : 0.0f; });
  for (float& beta : x.inputs.at("beta").elements<float>()) beta *= 0.25f;
  expect_exact(x);
}

// Strong gates leave nothing to `segments`, whatever part of the 128 rows exists: the bits are not those of its kernels.
TEST_P(ZeroStartsTest, StrongGatesNeedNoPast) {
  if (GetParam().whole != kOnePiece) GTEST_SKIP() << "the bits of others are those of their exact way";
  for (const std::int64_t Dk : {16, 64, 80, 128}) {
    Problem x = problem(2, 700, Dk, 80);
    for (int head = 0; head < 2; ++head) {
      set_gates(x, head, [](std::size_t t, float& g) { g = -1 - 0.01f * float(t % 7); });
    }
    const Outputs found = run("middle_anchor", x);
    EXPECT_FALSE(is_left_to_exact_way(x, 0, found)) << "Dk " << Dk;
    EXPECT_FALSE(is_left_to_exact_way(x, 1, found)) << "Dk " << Dk;
  }
}

// Of 130 chunks and more, heads that need their past are walked by `segments`, and so are those without an anchor.
TEST_P(ZeroStartsTest, LongSequences) {
  if (GetParam().whole != kOnePiece) GTEST_SKIP() << "others have one way for all lengths";
  Problem x = problem(3, 4200, 16, 16);
  set_gates(x, 0, [](std::size_t, float& g) { g = -0.001f; });
  set_gates(x, 1, [](std::size_t t, float& g) { g = t == 2000 ? -1e4f : -1; });
  set_gates(x, 2, [](std::size_t, float& g) { g = -1; });
  const Outputs truth = evaluate_reference(definition(), x, Dtype::bf16), found = run("middle_anchor", x);
  for (const auto& [name, out] : found) EXPECT_LE(compare(name, out, truth).error, 1e-2) << name;
}

/// A problem of dispatch, with rows that bulk copies take.
template <class Arguments>
Arguments mapped(int B, int H, int L) {
  Arguments a{};
  a.B = B, a.H = H, a.L = L, a.Dk = a.Dv = 128;
  a.q = a.k = a.v = packed<const __nv_bfloat16>(nullptr, H, L, 128);
  a.o = packed<__nv_bfloat16>(nullptr, H, L, 128);
  return a;
}

TEST(ZeroStartsDispatchTest, FewHeadsAreCut) {
  if (const std::string reason = warpgroup_products_missing(); !reason.empty()) GTEST_SKIP() << reason;
  if (!is_an_h200()) GTEST_SKIP() << "the choices are an H200's";
  const auto of_kda = [](int B, int H, int L) {
    auto a = mapped<kda::Bf16Arguments>(B, H, L);
    a.g = packed<const float>(nullptr, H, L, 128);
    return kda::dispatch_note(a);
  };
  EXPECT_EQ(of_kda(1, 12, 2048), "middle_anchor, 11 segments, or 1");
  EXPECT_EQ(of_kda(4, 8, 2048), "middle_anchor, 4 segments, or 1");
  EXPECT_EQ(of_kda(4, 8, 64), "middle_anchor") << "a single chunk";
  EXPECT_EQ(of_kda(4, 8, 128), "clusters of two blocks");
  EXPECT_EQ(of_kda(4, 8, 512), "one_anchor") << "short segments";
  EXPECT_EQ(of_kda(8, 32, 512), "middle_anchor") << "in one segment";
  EXPECT_EQ(of_kda(4, 8, 16384), "middle_anchor, 4 segments, or 1");
  EXPECT_EQ(of_kda(1, 8, 16384), "middle_anchor, 16 segments, or 8");
  EXPECT_EQ(of_kda(1, 1, 65536), "middle_anchor, 128 segments, or 64");
  EXPECT_EQ(of_kda(2, 64, 8192), "middle_anchor");
  EXPECT_EQ(of_kda(8, 32, 2048), "middle_anchor");
  EXPECT_EQ(of_kda(1, 72, 4096), "middle_anchor");
  const auto narrow = [](int B, int H, int L) {
    auto a = mapped<kda::Bf16Arguments>(B, H, L);
    a.Dk = 64;
    a.g = packed<const float>(nullptr, H, L, 64);
    return kda::dispatch_note(a);
  };
  EXPECT_EQ(narrow(1, 8, 16384), "8 segments");
  EXPECT_EQ(narrow(1, 1, 65536), "64 segments");
  EXPECT_EQ(narrow(4, 8, 16384), "2 segments");
  const auto of_gated = [](int B, int H, int L) {
    return gated_delta_rule::dispatch_note(mapped<gated_delta_rule::Bf16Arguments>(B, H, L));
  };
  EXPECT_EQ(of_gated(4, 8, 2048), "clusters of three blocks");
  EXPECT_EQ(of_gated(4, 8, 8192), "clusters of three blocks");
  EXPECT_EQ(of_gated(4, 8, 16384), "2 segments from zeros, or clusters of three blocks");
  EXPECT_EQ(of_gated(4, 8, 32), "two chains per block") << "a single chunk";
  EXPECT_EQ(of_gated(4, 8, 128), "clusters of two blocks");
  EXPECT_EQ(of_gated(1, 8, 16384), "8 segments from zeros, or walks of 8 segments");
  EXPECT_EQ(of_gated(1, 1, 65536), "64 segments from zeros, or walks of 41 segments");
  EXPECT_EQ(of_gated(2, 64, 8192), "two chains per block");
  EXPECT_EQ(of_gated(8, 32, 2048), "two chains per block");
  EXPECT_EQ(of_gated(1, 48, 8192), "clusters of two blocks");
  EXPECT_EQ(of_gated(1, 72, 4096), "clusters of three blocks");
  EXPECT_EQ(of_gated(1, 100, 4096), "two chains per block");
  EXPECT_EQ(of_gated(3, 64, 2048), "clusters of two blocks");
  EXPECT_EQ(of_gated(1, 32, 8192), "clusters of three blocks");
}

INSTANTIATE_TEST_SUITE_P(Operators, ZeroStartsTest,
                         testing::Values(Pair{"kda", "segments", "one_anchor", nullptr},
                                         Pair{"kda", "zero_starts", "one_anchor", "segments"},
                                         Pair{"kda", "middle_anchor", kOnePiece, "one_anchor"},
                                         Pair{"gated_delta_rule", "zero_starts", "cluster", "segments"}),
                         [](const auto& info) {
                           return std::string(info.param.operator_name) + "_" + info.param.stage;
                         });

}  // namespace
}  // namespace tutorial
