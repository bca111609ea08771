#pragma once
/// @file
/// What the chapter's tests share, beside what those of all chapters do.

#include "common/test/stages.hpp"

namespace tutorial {

inline const Operator& linear_attention_operator() {
  return find_operator("linear_attention");
}

inline const Stage& find_stage(const char* name) {
  return find_stage(linear_attention_operator(), name);
}

/// Expects the stages that support the problem to be right.
/// @param fewest stages that have to support it: a problem that hardly any stage runs tests little
inline void expect_stages_match(const Problem& problem, const Layout& layout = {}, int fewest = 5) {
  EXPECT_GE(expect_supporting_stages_match(linear_attention_operator(), problem, layout), fewest);
}

}  // namespace tutorial
