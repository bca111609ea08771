#pragma once
/// @file
/// The part of a state that a block has: state_tile.cuh says how its threads share it.

namespace tutorial::scan {

inline constexpr int kStateThreads = 128;                         ///< of a block
inline constexpr int kShare = 16;                                 ///< lanes that share four columns
inline constexpr int kStateColumns = 4 * kStateThreads / kShare;  ///< of a block
inline constexpr int kMaxKeyDim = 256;

}  // namespace tutorial::scan
