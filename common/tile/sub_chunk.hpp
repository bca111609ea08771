#pragma once
/// @file
/// The second level of chunks: sub-chunks of 16 positions, which gates need (chapter 03).

namespace tutorial::tile {

inline constexpr int kSubChunk = 16;               ///< positions of a sub-chunk, c
inline constexpr int kSubChunks = 64 / kSubChunk;  ///< sub-chunks of a chunk

}  // namespace tutorial::tile
