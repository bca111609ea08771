/// @file
/// Chapter 05, the table of contents: a state that overwrites, and how its steps become matrix products again.
/// (common/chapter/main.cpp runs it.)

#include "05_deltanet_wy/delta_rule.hpp"
#include "05_deltanet_wy/operators.hpp"
#include "common/chapter/chapter.hpp"

namespace tutorial {
namespace {

void add_stages(Operator& definition) {
  using namespace delta_rule;
  definition.cpu("recurrent", recurrent, "read under the key, write the difference: the truth, in double")
      .dtype(Dtype::fp64)
      .stage_work(recurrent_work);
}

}  // namespace

Chapter chapter() {
  Chapter chapter("05_deltanet_wy", "The delta rule: a state that overwrites, and the products hidden in it");
  add_stages(chapter.add(delta_rule::definition()));
  add_stages(chapter.add(delta_rule::normalized_definition()));
  return chapter;
}

}  // namespace tutorial
