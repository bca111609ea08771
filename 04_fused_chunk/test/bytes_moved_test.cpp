/// @file
/// The bytes that a stage states are those that the emulator counts.

#include <array>

#include "04_fused_chunk/test/stages.hpp"
#include "common/chapter/machine.hpp"

#if TUTORIAL_EMULATOR

namespace tutorial {
namespace {

void expect_counted(const Operator& definition, const Stage& stage, Call call) {
  reset_kernel_counts();
  stage.run(call);
  const KernelCounts counts = kernel_counts();
  if (stage.bytes_moved(call) == -1) return;  // they depend on the gates
  EXPECT_EQ(double(stage.bytes_moved(call)), counts.bytes_read + counts.bytes_written)
      << definition.name() << " " << stage.name;
}

TEST(BytesMovedTest, AreThoseCounted) {
  for (const char* name : {"gla", "simple_gla"}) {
    const Operator& definition = find_operator(name);
    int stated = 0;
    for (const auto& [L, Dk, Dv] :
         {std::array<std::int64_t, 3>{200, 128, 128}, {1, 16, 16}, {77, 80, 208}, {65, 256, 48}, {130, 48, 144}}) {
      SCOPED_TRACE("L " + std::to_string(L) + ", Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
      const Problem problem = drawn(definition, L == 77 ? 2 : 1, 2, L, Dk, Dv);
      for (const Stage& stage : definition.stages()) {
        if (!stage.bytes_moved || !why_not(definition, stage, problem).empty()) continue;
        ++stated;
        StageTensors tensors(definition, problem, stage.processor, storage_of(stage), Dtype::fp32);
        expect_counted(definition, stage, tensors.call());
        expect_counted(definition, stage, tensors.graph_call());
      }
    }
    EXPECT_GT(stated, 0) << name;
  }
}

}  // namespace
}  // namespace tutorial

#endif
