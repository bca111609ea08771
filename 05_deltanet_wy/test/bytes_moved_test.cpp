/// @file
/// The bytes of delta_rule/dispatch/requirements.cu are those that the emulator counts.

#include <array>

#include "05_deltanet_wy/test/stages.hpp"
#include "common/chapter/machine.hpp"

#if TUTORIAL_EMULATOR

namespace tutorial {
namespace {

void expect_counted(const Stage& stage, Call call) {
  reset_kernel_counts();
  stage.run(call);
  const KernelCounts counts = kernel_counts();
  EXPECT_EQ(double(stage.bytes_moved(call)), counts.bytes_read + counts.bytes_written) << stage.name;
}

TEST(MovedTest, IsWhatIsCounted) {
  for (const Operator* definition : {&delta_rule_operator(), &normalized_operator()}) {
    for (const auto& [L, Dk, Dv, C] : {std::array<std::int64_t, 4>{200, 128, 128, 64},
                                       {1, 16, 16, 16},
                                       {77, 80, 208, 32},
                                       {65, 256, 48, 64},
                                       {130, 48, 144, 50}}) {
      SCOPED_TRACE(definition->label() + " L " + std::to_string(L) + ", Dk " + std::to_string(Dk) + ", Dv " +
                   std::to_string(Dv));
      const Problem problem = drawn(L == 77 ? 2 : 1, 2, L, Dk, Dv, C, *definition);
      int stated = 0;
      for (const Stage& stage : definition->stages()) {
        if (!stage.bytes_moved || !why_not(*definition, stage, problem).empty()) continue;
        ++stated;
        StageTensors tensors(*definition, problem, stage.processor, storage_of(stage), Dtype::fp32);
        expect_counted(stage, tensors.call());
        expect_counted(stage, tensors.graph_call());
      }
      EXPECT_EQ(stated, definition == &normalized_operator() ? 5 : Dk > 128 ? 7 : 14);
    }
  }
}

}  // namespace
}  // namespace tutorial

#endif
