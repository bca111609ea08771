/// @file
/// Every way in which the walks of both operators can be spread, and what simple_gla's dispatch chooses.

#include "04_fused_chunk/gla/segments.hpp"
#include "04_fused_chunk/simple_gla/spread.hpp"
#include "04_fused_chunk/test/stages.hpp"

namespace tutorial {
namespace {

using linear_attention::make_spread;

template <int kColumns, int kSegments>
void spread_gla(const gla::HalfArguments& a) {
  fused_gla::one_kernel(a, make_spread(a.L, kColumns, kSegments));
}

template <int kColumns, int kSegments>
void spread_simple(const simple_gla::HalfArguments& a) {
  simple_gla::sequence_parallel(a, make_spread(a.L, kColumns, kSegments));
}

/// The stages that have been added last.
void expect_right(const Operator& definition, std::size_t before, std::int64_t Dk, std::int64_t Dv) {
  const Problem problem = drawn(definition, 1, 2, 410, Dk, Dv);
  const Outputs truth = evaluate_reference(definition, problem, Dtype::bf16);
  for (std::size_t i = before; i < definition.stages().size(); ++i) {
    const Stage& stage = definition.stages()[i];
    SCOPED_TRACE(definition.name() + ", columns and segments " + stage.name);
    expect_close(evaluate(definition, stage, problem), truth, tolerance_of(stage, problem.sizes));
  }
}

template <int kColumns>
void expect_right(std::int64_t Dk, std::int64_t Dv) {
  SCOPED_TRACE("Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
  const std::string columns = std::to_string(kColumns) + ", ";
  Operator gates = find_operator("gla");
  std::size_t before = gates.stages().size();
  gates.gpu<gla::HalfArguments>(columns + "1", spread_gla<kColumns, 1>, "").dtype(Dtype::bf16);
  gates.gpu<gla::HalfArguments>(columns + "2", spread_gla<kColumns, 2>, "").dtype(Dtype::bf16);
  gates.gpu<gla::HalfArguments>(columns + "3", spread_gla<kColumns, 3>, "").dtype(Dtype::bf16);
  gates.gpu<gla::HalfArguments>(columns + "100", spread_gla<kColumns, 100>, "").dtype(Dtype::bf16);
  expect_right(gates, before, Dk, Dv);

  Operator scalars = find_operator("simple_gla");
  before = scalars.stages().size();
  scalars.gpu<simple_gla::HalfArguments>(columns + "1", spread_simple<kColumns, 1>, "").dtype(Dtype::bf16);
  scalars.gpu<simple_gla::HalfArguments>(columns + "2", spread_simple<kColumns, 2>, "").dtype(Dtype::bf16);
  scalars.gpu<simple_gla::HalfArguments>(columns + "3", spread_simple<kColumns, 3>, "").dtype(Dtype::bf16);
  scalars.gpu<simple_gla::HalfArguments>(columns + "100", spread_simple<kColumns, 100>, "").dtype(Dtype::bf16);
  expect_right(scalars, before, Dk, Dv);
}

TEST(SpreadTest, EveryShapeOfTileInAnyNumberOfSegments) {
  for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{48, 144}, {128, 128}, {112, 208}}) {
    expect_right<64>(Dk, Dv);
    expect_right<128>(Dk, Dv);
  }
  expect_right<64>(208, 80);
}

std::string choice(int B, int H, int L, int Dk, int Dv, bool with_states = false) {
  static float state;  // only asked for, never read
  simple_gla::HalfArguments a{};
  a.B = B;
  a.H = H;
  a.L = L;
  a.Dk = Dk;
  a.Dv = Dv;
  if (with_states) a.initial_state.data = a.final_state.data = &state;
  return simple_gla::dispatch_note(a);
}

TEST(DispatchTest, SaysWhatItPicks) {
  EXPECT_EQ(choice(1, 1, 64, 128, 128), "fused, 64 columns a block");
  EXPECT_EQ(choice(1, 1, 64, 40, 64).find("gla's dispatch, "), 0u);
  EXPECT_EQ(choice(1, 1, 64, 272, 64).find("gla's dispatch, chunk_gpu in fp32"), 0u);
}

#if TUTORIAL_EMULATOR
TEST(DispatchTest, ChoosesByHeadsAndLength) {
  setenv("EMULATOR_MULTIPROCESSORS", "132", 1);
  EXPECT_NE(choice(4, 8, 16384, 128, 128).find("sequence_parallel"), std::string::npos);
  EXPECT_EQ(choice(8, 32, 2048, 128, 128), "fused, 128 columns a block");
  EXPECT_EQ(choice(4, 8, 384, 128, 128), "fused, 64 columns a block");
  EXPECT_EQ(choice(4, 8, 448, 128, 128), "two_kernels");
  EXPECT_EQ(choice(4, 8, 512, 128, 128), "two_kernels");
  EXPECT_EQ(choice(1, 1, 192, 128, 128), "fused, 64 columns a block");
  EXPECT_EQ(choice(1, 1, 256, 128, 128), "two_kernels");
  for (const int heads : {1, 32, 256}) {  // no matter whether states are given and asked for
    for (int L = 64; L <= 4096; L += 64) EXPECT_EQ(choice(1, heads, L, 128, 128, true), choice(1, heads, L, 128, 128));
  }
  unsetenv("EMULATOR_MULTIPROCESSORS");
}
#endif

}  // namespace
}  // namespace tutorial
