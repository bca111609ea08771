/// @file
/// Times simple_gla's walk in so many segments, with starts from zeros where gates let them and with all states in
/// memory. The walks are stages of simple_gla, and the command line is that of the chapter. Not a test: by hand,
/// `cmake --build --preset cuda --target bounded_cuts`.

#include <string>

#include "04_fused_chunk/simple_gla.hpp"
#include "04_fused_chunk/simple_gla/dispatch/walks.hpp"
#include "common/chapter/chapter.hpp"

namespace tutorial {
namespace {

using simple_gla::Bf16Arguments;

template <int kSegments, bool kIsBounded>
void walk_in(const Bf16Arguments& a) {
  const tile::LaunchPlan plan = tile::make_launch_plan(a.L, 64, kSegments);
  simple_gla::hopper_walk(a, plan, kIsBounded ? simple_gla::warm_up_reach(plan) : 0);
}

template <int kSegments>
void add_cuts(Operator& definition) {
  for (const bool is_bounded : {false, true}) {
    Stage stage{.name = (is_bounded ? "bounded_" : "exact_") + std::to_string(kSegments),
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .unsupported = simple_gla::specialized_unsupported};
    if (is_bounded) {
      stage.run = walk_in<kSegments, true>;
    } else {
      stage.run = walk_in<kSegments, false>;
    }
    definition.stage(stage);
  }
}

}  // namespace
}  // namespace tutorial

int main(int argc, char** argv) {
  using namespace tutorial;
  const Chapter all = chapter();
  Chapter cuts("04_fused_chunk", "simple_gla in several segments");
  for (const Operator& definition : all.operators()) {
    Operator& copy = cuts.add(definition);
    if (copy.name() != "simple_gla" || !copy.form().empty()) continue;
    add_cuts<2>(copy);
    add_cuts<4>(copy);
    add_cuts<8>(copy);
    add_cuts<16>(copy);
    add_cuts<32>(copy);
    add_cuts<64>(copy);
  }
  return cuts.run(argc, argv);
}
