#pragma once
/// @file
/// What the chapter's tests share, beside what those of all chapters do.

#include <algorithm>

#include "common/device/device.hpp"
#include "common/test/stages.hpp"

namespace tutorial {

/// Whether the stage takes widths that are no multiple of 16: the CPU does, and chapter 03's dispatch.
inline bool takes_any_width(const Stage& stage) {
  return !is_bf16(stage) || stage.name == "chapter_03" || stage.name == "dispatch";
}

/// A drawn problem.
inline Problem drawn(const Operator& definition, std::int64_t B, std::int64_t H, std::int64_t L, std::int64_t Dk,
                     std::int64_t Dv, std::int64_t C = 64) {
  return make_problem(definition,
                      {.sizes = {{"B", B}, {"H", H}, {"L", L}, {"Dk", Dk}, {"Dv", Dv}, {"C", C}}, .seed = 3});
}

/// Expects the stages that support the problem to be right. Returns how many do.
inline int expect_stages_match(const Operator& definition, const Problem& problem, const Layout& layout = {}) {
  return expect_supporting_stages_match(definition, problem, layout);
}

/// Whether it is one of simple_gla's stages on products of warpgroups, or `specialized` of gla.
inline bool needs_warpgroups(const Stage& stage) {
  return stage.name == "specialized" || stage.name == "register_scores" || stage.name == "bounded_start";
}

/// Whether the stage does not run on this GPU, whatever the problem.
inline bool is_for_another_gpu(const Stage& stage) {
  return needs_warpgroups(stage) && !warpgroup_products_missing().empty();
}

/// Of stages that take a problem: all of them, where widths are multiples of 16 and rows are aligned, but for those on
/// products of warpgroups on other GPUs than Hopper and for wide keys.
inline int all_stages(const Operator& definition, std::int64_t Dk) {
  return int(std::ranges::count_if(definition.stages(), [&](const Stage& stage) {
    const bool is_for_hopper =
        needs_warpgroups(stage) || stage.name == "score_levels" || (stage.name == "segments" && !stage.is_variant);
    return !is_for_hopper || (!is_for_another_gpu(stage) && Dk <= 128);
  }));
}

}  // namespace tutorial
