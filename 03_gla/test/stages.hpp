#pragma once
/// @file
/// What the chapter's tests share, beside what those of all chapters do.

#include "common/test/stages.hpp"

namespace tutorial {

inline const Operator& gla_operator() {
  return find_operator("gla");
}

/// A drawn problem of gla.
inline Problem gla_problem(std::int64_t B, std::int64_t H, std::int64_t L, std::int64_t Dk, std::int64_t Dv,
                           std::int64_t C = 64) {
  return make_problem(gla_operator(),
                      {.sizes = {{"B", B}, {"H", H}, {"L", L}, {"Dk", Dk}, {"Dv", Dv}, {"C", C}}, .seed = 3});
}

/// Expects the stages that support the problem to be right.
/// @param fewest stages that have to support it: a problem that hardly any stage runs tests little
inline void expect_stages_match(const Operator& definition, const Problem& problem, const Layout& layout = {},
                                int fewest = 5) {
  EXPECT_GE(expect_supporting_stages_match(definition, problem, layout), fewest);
}

}  // namespace tutorial
