/// @file
/// The bytes that dispatch states are those that the emulator counts.

#include "03_gla/gla/launch_plan.hpp"
#include "03_gla/test/stages.hpp"
#include "common/chapter/machine.hpp"

#if TUTORIAL_EMULATOR

namespace tutorial::gla {
namespace {

template <class Walk>
void expect_counted(Walk walk, const Call& call, int columns, int segments) {
  const Bf16Arguments a = Bf16Arguments::bind(call);
  const LaunchPlan plan = tile::make_launch_plan(a.L, columns, segments);
  reset_kernel_counts();
  walk(a, plan);
  const KernelCounts counts = kernel_counts();
  EXPECT_EQ(double(walk_bytes_moved(a, plan)), counts.bytes_read + counts.bytes_written)
      << columns << " columns, " << plan.segments << " segments";
}

TEST(BytesMovedTest, IsWhatIsCounted) {
  for (const auto& [L, Dk, Dv] : {std::array<std::int64_t, 3>{200, 128, 128}, {1, 16, 16}, {257, 48, 144}}) {
    SCOPED_TRACE("L " + std::to_string(L) + ", Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
    const Problem problem = gla_problem(L == 200 ? 2 : 1, L == 200 ? 1 : 2, L, Dk, Dv);
    const Stage& stage = find_stage(gla_operator(), "dispatch");
    StageTensors tensors(gla_operator(), problem, stage.processor, storage_of(stage), Dtype::fp32);
    for (const int columns : {64, 128}) {
      for (const int segments : {1, 3, 100}) {
        expect_counted(walk, tensors.call(), columns, segments);
        expect_counted(walk, tensors.graph_call(), columns, segments);  // without states
        if (columns == 64) expect_counted(walk_on_warpgroups, tensors.call(), columns, segments);
      }
    }
  }
}

}  // namespace
}  // namespace tutorial::gla

#endif
