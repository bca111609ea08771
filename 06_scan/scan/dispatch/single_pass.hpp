#pragma once
/// @file
/// The scan behind dispatch, and how it cuts a problem into tiles.

#include <cstdint>
#include <string>

#include "06_scan/scan.hpp"

namespace tutorial::scan {

// D = 1: a lane has 4 neighbouring steps of each turn.
inline constexpr int kTurns = 4, kWarpSteps = kTurns * 32 * 4;
inline constexpr int kMostWarps = 16;  ///< warps of a tile if a sequence is cut into several
// D > 1.
inline constexpr int kChannelThreads = 256, kChannelSteps = 8;  ///< of a block, of a thread

/// D = 1: sequences of a block, side by side. If a warp has a sequence of its own, blocks of one sequence would be so
/// small that a multiprocessor could not have 48 warps of them.
TUTORIAL_HOST_DEVICE constexpr int sequences_per_block(int warps) {
  return warps == 1 ? 4 : 1;
}

/// How a problem is cut into tiles. A chain is a sequence, or neighbouring channels of one.
struct TilePlan {
  int width, tile;                // channels of a chain, steps of a tile
  int tile_threads, block_tiles;  // threads of a tile, tiles of a block
  std::int64_t chains, tiles;

  explicit TilePlan(const Arguments& a) {
    width = a.D == 1 ? 1 : a.D <= 4 ? 4 : 32;
    const int warps = a.L <= kWarpSteps ? 1 : a.L <= 4 * kWarpSteps ? 4 : a.L <= 8 * kWarpSteps ? 8 : kMostWarps;
    tile_threads = a.D == 1 ? 32 * warps : kChannelThreads;
    block_tiles = a.D == 1 ? sequences_per_block(warps) : 1;
    tile = a.D == 1 ? warps * kWarpSteps : kChannelThreads * 4 / width * kChannelSteps;
    chains = std::int64_t(a.B) * a.H * ((a.D - 1) / width + 1);
    tiles = (a.L - 1) / tile + 1;
  }
  /// Pairs of words that the tiles publish.
  std::int64_t words() const { return tiles > 1 ? tiles * chains * width : 0; }
};

/// Starts the kernel on current_stream().
/// @throws CudaError if the memory cannot be allocated or the launch is refused
void planned_single_pass(const Arguments&);
/// Why it cannot run the problem, as a sentence; empty if it can.
std::string planned_single_pass_unsupported(const Arguments&);
/// Bytes that it needs beside inputs and outputs.
std::int64_t planned_single_pass_memory(const Arguments&);
/// Bytes that its kernel reads from device memory or writes to it, without the words that tiles publish.
std::int64_t planned_single_pass_bytes_moved(const Arguments&);
/// How it cuts the problem, as text for the report.
std::string planned_single_pass_note(const Arguments&);

}  // namespace tutorial::scan
