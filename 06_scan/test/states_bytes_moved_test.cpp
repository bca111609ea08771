/// @file
/// simple_gla and delta_rule: the bytes that the scans state are those that the emulator counts.

#include "06_scan/delta_rule/map_tree.hpp"
#include "06_scan/test/states.hpp"
#include "common/chapter/machine.hpp"

#if TUTORIAL_EMULATOR

namespace tutorial {
namespace {

/// A block that composes two maps reads by ordinary reads what it overwrites, and those are not counted.
double reads_in_place(const Stage& stage, const Sizes& s) {
  if (stage.name != "scan_affine") return 0;
  const int N = scan::leaf_count(int(s.at("L")));
  double pairs = 0;
  for (int run = 1; run < scan::longest_run(N); run *= 2) pairs += scan::pairs_going_up(N, run);
  return 4 * double(s.at("B") * s.at("H")) * pairs * double(s.at("Dk") * (s.at("Dk") + s.at("Dv")));
}

void expect_counted(const Stage& stage, const Sizes& sizes, const Call& call) {
  reset_kernel_counts();
  stage.run(call);
  const KernelCounts counts = kernel_counts();
  EXPECT_EQ(double(stage.bytes_moved(call)), counts.bytes_read + counts.bytes_written + reads_in_place(stage, sizes));
}

TEST(StatesMovedTest, IsWhatIsCounted) {
  for (const char* name : {"simple_gla", "delta_rule"}) {
    const Operator& definition = state_operator(name);
    for (const auto& [L, Dk, Dv] : {std::array<std::int64_t, 3>{1, 16, 16},
                                    {40, 33, 3},
                                    {130, 48, 144},
                                    {200, 128, 64},
                                    {65, 256, 40},
                                    {300, 5, 1}}) {
      const Problem problem = drawn_states(definition, 1, 2, L, Dk, Dv);
      for (const Stage& stage : definition.stages()) {
        if (!is_scan(stage)) continue;
        SCOPED_TRACE(stage.name + " L " + std::to_string(L) + ", Dk " + std::to_string(Dk) + ", Dv " +
                     std::to_string(Dv));
        ASSERT_TRUE(stage.bytes_moved);
        StageTensors tensors(definition, problem, stage.processor, storage_of(stage), Dtype::fp32);
        expect_counted(stage, problem.sizes, tensors.call());
        expect_counted(stage, problem.sizes, tensors.graph_call());
      }
    }
  }
}

}  // namespace
}  // namespace tutorial

#endif
