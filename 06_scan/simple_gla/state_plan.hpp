#pragma once
/// @file
/// How the scans of simple_gla cut a problem: tiles of some steps, 32 columns of a state per block.

#include <cstddef>
#include <cstdint>

#include "06_scan/simple_gla.hpp"
#include "06_scan/state_shape.hpp"

namespace tutorial::scan {

/// Dk rounded up to what there are kernels for.
TUTORIAL_HOST_DEVICE constexpr int rounded_up(int Dk) {
  return Dk <= 64 ? 64 : Dk <= 128 ? 128 : 256;
}

/// Steps of a tile. For Dk > 128 the state takes so many registers that a tile has half as many steps, for two blocks
/// to fit on a multiprocessor.
TUTORIAL_HOST_DEVICE constexpr int steps_of_tile(int Dk) {
  return Dk <= 128 ? 64 : 32;
}

/// Blocks on a multiprocessor at once where tiles have so many steps.
constexpr int blocks_of_tiles(int Dk) {
  return Dk <= 128 ? 3 : 2;
}

/// Tiles of 32 columns of a state.
TUTORIAL_HOST_DEVICE constexpr int column_tiles(int Dv) {
  return (Dv - 1) / kStateColumns + 1;
}

inline constexpr const char* kStatesTag = "simple_gla: states";  ///< of the workspace

/// How a problem is cut.
struct StatePlan {
  int Dk, steps;               ///< Dk rounded up; steps of a tile
  std::int64_t heads, chains;  ///< a chain: 32 columns of a head's state
  std::int64_t tiles;          ///< of a chain

  StatePlan(const simple_gla::FloatArguments& a, int steps_of_tile)
      : Dk(rounded_up(a.Dk)), steps(steps_of_tile), heads(std::int64_t(a.B) * a.H) {
    chains = heads * column_tiles(a.Dv);
    tiles = (a.L - 1) / steps + 1;
  }

  /// Floats of a head's state in memory, filled up to whole tiles of columns and to the rounded Dk.
  int state_size() const { return int(chains / heads) * Dk * kStateColumns; }
  /// Floats of a state for each tile of all heads.
  std::int64_t floats() const { return heads * tiles * state_size(); }
  /// Shared memory of a block: a tile of q, k and v.
  std::size_t shared_bytes() const { return std::size_t(steps) * (2 * Dk + kStateColumns) * sizeof(float); }
};

}  // namespace tutorial::scan
