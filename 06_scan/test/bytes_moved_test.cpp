/// @file
/// The bytes that a stage states are those that the emulator counts.

#include <array>

#include "06_scan/test/stages.hpp"
#include "common/chapter/machine.hpp"

#if TUTORIAL_EMULATOR

namespace tutorial {
namespace {

void expect_counted(const Stage& stage, const Call& call) {
  reset_kernel_counts();
  stage.run(call);
  const KernelCounts counts = kernel_counts();
  EXPECT_EQ(double(stage.bytes_moved(call)), counts.bytes_read + counts.bytes_written) << stage.name;
}

TEST(MovedTest, IsWhatIsCounted) {
  const Operator& definition = scan_operator();
  for (const auto& [L, D, Dg] :
       {std::array<std::int64_t, 3>{9000, 1, 1}, {20, 1, 1}, {4097, 3, 3}, {4097, 4, 1}, {700, 40, 40}, {701, 37, 1}}) {
    SCOPED_TRACE("L " + std::to_string(L) + ", D " + std::to_string(D) + ", Dg " + std::to_string(Dg));
    const Problem problem = drawn(2, 2, L, D, Dg);
    int stated = 0;
    const bool runs_wide_tiles = why_not(definition, find_stage(definition, "wide_tiles"), problem).empty();
    for (const Stage& stage : definition.stages()) {
      if (!stage.bytes_moved || (stage.name == "wide_tiles" && !runs_wide_tiles)) continue;
      ++stated;
      StageTensors tensors(definition, problem, stage.processor, storage_of(stage), Dtype::fp32);
      expect_counted(stage, tensors.call());
      expect_counted(stage, tensors.graph_call());
    }
    EXPECT_EQ(stated, 6 - !runs_wide_tiles);
  }
}

// With a gate per channel dispatch reads x and g once and writes y once: nothing else grows with L D.
TEST(MovedTest, DispatchMovesTheLeast) {
  const Operator& definition = scan_operator();
  const Stage& stage = find_stage(definition, "dispatch");
  for (const std::int64_t D : {1, 4, 40}) {
    const Problem problem = drawn(1, 1, 9000, D, D);
    StageTensors tensors(definition, problem, stage.processor, storage_of(stage), Dtype::fp32);
    EXPECT_EQ(stage.bytes_moved(tensors.graph_call()), 12 * 9000 * D);
  }
}

}  // namespace
}  // namespace tutorial

#endif
