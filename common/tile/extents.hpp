#pragma once
/// @file
/// The sizes of a problem.

#include "common/view.hpp"

namespace tutorial::tile {

/// The sizes that a launch depends on.
struct Extents {
  int B, H, L, Dk, Dv;
};

/// The sizes of an operator's arguments.
template <class Arguments>
TUTORIAL_HOST_DEVICE Extents extents_of(const Arguments& a) {
  return {a.B, a.H, a.L, a.Dk, a.Dv};
}

}  // namespace tutorial::tile
