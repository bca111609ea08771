#pragma once
/// @file
/// What the definitions of operators on queries, keys and values have in common.

#include <vector>

#include "common/chapter/operator.hpp"

namespace tutorial {

/// Positions of all heads: B H L.
double positions(const Sizes& sizes);

/// Adds to a definition what such operators share: the inputs q, k [B, H, L, Dk], v [B, H, L, Dv] and the optional
/// initial_state [B, H, Dk, Dv]; the outputs o [B, H, L, Dv] and final_state; default sizes; the scale Dk^-1/2.
/// @param q,k how these are drawn; v is normal
/// @param own the operator's other inputs, which stand between v and the initial state
Operator with_attention(Operator definition, const Draw& q, const Draw& k, const std::vector<Input>& own = {});

}  // namespace tutorial
