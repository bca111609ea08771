/// @file
/// gla with the same gate in every channel is simple_gla.

#include "04_fused_chunk/test/stages.hpp"

namespace tutorial {
namespace {

TEST(EqualGatesTest, GlaIsSimpleGla) {
  constexpr std::int64_t B = 2, H = 3, L = 150, Dk = 80, Dv = 64;
  const Operator &gla = find_operator("gla"), &simple_gla = find_operator("simple_gla");
  const Problem scalar = drawn(simple_gla, B, H, L, Dk, Dv);
  Problem channels = drawn(gla, B, H, L, Dk, Dv);
  for (const char* name : {"q", "k", "v", "initial_state"}) {
    channels.inputs.insert_or_assign(name, scalar.inputs.at(name).to(Dtype::fp32));
  }
  const auto g = channels.inputs.at("g").elements<float>();
  for (std::size_t i = 0; i < g.size(); ++i) g[i] = scalar.inputs.at("g").elements<float>()[i / std::size_t(Dk)];

  expect_close(evaluate_reference(gla, channels), evaluate_reference(simple_gla, scalar), 1e-6);
  for (const Stage& stage : gla.stages()) {
    for (const Stage& simple : simple_gla.stages()) {
      if (is_for_another_gpu(simple)) continue;
      SCOPED_TRACE(stage.name + " and " + simple.name);
      expect_close(evaluate(gla, stage, channels), evaluate(simple_gla, simple, scalar),
                   std::max(tolerance_of(stage, channels.sizes), tolerance_of(simple, scalar.sizes)));
    }
  }
}

}  // namespace
}  // namespace tutorial
