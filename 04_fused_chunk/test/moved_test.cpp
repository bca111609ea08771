/// @file
/// The bytes that a stage states are those that the emulator counts.

#include <array>

#include "04_fused_chunk/test/stages.hpp"
#include "common/chapter/machine.hpp"

#if TUTORIAL_EMULATOR

namespace tutorial {
namespace {

/// A thread that adds up along a sequence in place reads what it will write itself. That is not load_global(), and not
/// counted: the carry of chapter 03's segments does so, for up to 8 segments at once.
double reads_in_place(const Operator& definition, const Stage& stage, const Problem& problem, const Call& call) {
  if (definition.name() != "gla" || (stage.name != "chapter_03" && stage.name != "dispatch")) return 0;
  const std::string note = stage.note(call);
  if (note.find("subchunk_walk") == std::string::npos || note.find("one segment") != std::string::npos) return 0;
  const Sizes& s = problem.sizes;
  return 8 * 4 * double(s.at("B") * s.at("H") * s.at("Dk") * s.at("Dv"));
}

void expect_counted(const Operator& definition, const Stage& stage, const Problem& problem, Call call) {
  reset_kernel_counts();
  stage.run(call);
  const KernelCounts counts = kernel_counts();
  EXPECT_EQ(double(stage.moved(call)),
            counts.bytes_read + counts.bytes_written + reads_in_place(definition, stage, problem, call))
      << definition.name() << " " << stage.name;
}

TEST(MovedTest, IsWhatIsCounted) {
  for (const char* name : {"gla", "simple_gla"}) {
    const Operator& definition = find_operator(name);
    int stated = 0;
    for (const auto& [L, Dk, Dv] :
         {std::array<std::int64_t, 3>{200, 128, 128}, {1, 16, 16}, {77, 80, 208}, {65, 256, 48}, {130, 48, 144}}) {
      SCOPED_TRACE("L " + std::to_string(L) + ", Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
      const Problem problem = drawn(definition, 2, 2, L, Dk, Dv);
      for (const Stage& stage : definition.stages()) {
        if (!stage.moved) continue;
        ++stated;
        Placement tensors(definition, problem, stage.place, storage_of(stage), Dtype::fp32);
        expect_counted(definition, stage, problem, tensors.call());
        expect_counted(definition, stage, problem, tensors.graph_call());
      }
    }
    EXPECT_GT(stated, 0) << name;
  }
}

}  // namespace
}  // namespace tutorial

#endif
