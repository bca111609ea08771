/// @file
/// Times `hopper_gradients` under other cuts than the one it takes, beside the times that cut.cpp estimates. The cuts
/// are stages of simple_gla --backward, and the command line is that of the chapter. Not a test: by hand,
/// `cmake --build --preset cuda --target simple_gla_cuts`.

#include <cstdio>
#include <string>

#include "04_fused_chunk/simple_gla_backward/cut.hpp"
#include "04_fused_chunk/simple_gla_backward/requirements.hpp"
#include "common/chapter/chapter.hpp"

namespace tutorial {
namespace {

using simple_gla::Bf16BackwardArguments;

template <int kRuns, bool kAreGiven>
void walk_in(const Bf16BackwardArguments& b) {
  walk_in_runs(b, cut_into(b, kRuns, kAreGiven));
}

template <int kRuns, bool kAreGiven>
std::string note(const Bf16BackwardArguments& b) {
  const simple_gla::Cut cut = cut_into(b, kRuns, kAreGiven);
  char time[64];
  std::snprintf(time, sizeof(time), ", estimated %.4f ms", estimated_time(b, cut) / 1000);
  return cut.note() + time;
}

template <int kRuns, bool kAreGiven>
void add_cut(Operator& definition) {
  definition.stage({.name = std::to_string(kRuns) + (kAreGiven ? "_runs_states_first" : "_runs"),
                    .processor = Processor::gpu,
                    .dtype = Dtype::bf16,
                    .run = walk_in<kRuns, kAreGiven>,
                    .unsupported = simple_gla::hopper_gradients_backward_unsupported,
                    .note = note<kRuns, kAreGiven>,
                    .tolerance = [](const Sizes&) { return 2e-2; }});
}

}  // namespace
}  // namespace tutorial

int main(int argc, char** argv) {
  using namespace tutorial;
  const Chapter all = chapter();
  Chapter cuts("04_fused_chunk", "simple_gla --backward under several cuts");
  for (const Operator& definition : all.operators()) {
    Operator& copy = cuts.add(definition);
    if (copy.name() != "simple_gla" || copy.form() != "backward") continue;
    add_cut<1, false>(copy);
    add_cut<2, false>(copy);
    add_cut<4, false>(copy);
    add_cut<11, false>(copy);
    add_cut<2, true>(copy);
    add_cut<5, true>(copy);
    add_cut<8, true>(copy);
    add_cut<11, true>(copy);
    add_cut<16, true>(copy);
  }
  return cuts.run(argc, argv);
}
