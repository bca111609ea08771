#pragma once
/// @file
/// Decoupled look-back: what the tiles of a sequence publish for each other, and the order in which blocks take tiles.
///
/// A tile publishes two maps, each as soon as it knows it: its own map, and the map of the sequence up to its end. A
/// later tile needs the second map of the tile before it, but does not have to wait for it. It can also look back to
/// the nearest tile that has published its second map, and compose that map with the own maps of the tiles in between.
///
/// A map is 8 bytes, which are read and written at once, and is its own flag. Memory starts as 0xFF throughout: two
/// NaNs that no GPU's arithmetic produces. Any other word is a published map. Only the word itself is passed on, so no
/// fence is needed.
///
/// The map up to a tile's end includes y_0. Its value is therefore y itself, and nothing before it matters.
///
/// If the value of a tile is a matrix, the word holds the sum of the tile's gates and says that the matrix has been
/// written. Matrices lie beside the words and are passed on by release and acquire (simple_gla/2_scan_fused.cu).
///
/// Blocks take their tiles from a counter, so all predecessors of a tile have been started. Tile n of all sequences
/// comes before tile n + 1 of any. With many sequences, a predecessor has usually finished long before.
/// Source: Merrill and Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back", NVR-2016-002.

#include <cuda_runtime.h>

#include <cstdint>
#include <string_view>

#include "06_scan/affine.hpp"
#include "common/device/atomic.cuh"
#include "common/device/error.hpp"
#include "common/device/stream.hpp"
#include "common/device/workspace.hpp"

namespace tutorial::scan {

/// A word that no tile has published yet.
inline constexpr std::uint64_t kNotPublished = ~std::uint64_t{0};

/// A map as the word that memory holds. If two NaNs of an input come through unchanged, as they can on a CPU, other
/// NaNs replace them.
__device__ __forceinline__ std::uint64_t to_word(const Affine<float>& map) {
  const std::uint64_t word = std::uint64_t{__float_as_uint(map.log_decay)} << 32 | __float_as_uint(map.value);
  return word == kNotPublished ? word ^ 1 : word;
}

/// The map that a word holds.
__device__ __forceinline__ Affine<float> to_map(std::uint64_t word) {
  return {__uint_as_float(unsigned(word >> 32)), __uint_as_float(unsigned(word))};
}

/// What a tile publishes about one channel. The two words lie side by side so that one load reads both: the look-back
/// of one long sequence sends so many requests that they keep the second-level cache busy.
struct alignas(16) Words {
  std::uint64_t up_to_end;  ///< the map of the sequence up to the end of the tile
  std::uint64_t own;        ///< the map of the tile
};

/// What the tiles of a launch share. Words are in the order in which tiles are taken: word (n chains + chain) width +
/// channel belongs to tile n of a chain, which is a sequence or `width` channels of one.
struct LookBack {
  unsigned* counter;  ///< the number taken last; it starts as 2^32 - 1. Null: every chain has one tile
  Words* words;
  int chains, width;

  /// The tile that the block computes, as its number in that order. Called by one thread.
  __device__ int take_tile() const { return counter ? int(atomicAdd(counter, 1u) + 1u) : int(blockIdx.x); }

  /// The index of a tile's words.
  __device__ std::int64_t index(int tile, int chain, int channel) const {
    return (std::int64_t(tile) * chains + chain) * width + channel;
  }

  /// A tile's words.
  __device__ Words& at(int tile, int chain, int channel) const { return words[index(tile, chain, channel)]; }

  /// A tile's words as they are now, by one load.
  __device__ Words load(int tile, int chain, int channel) const {
    const WordPair pair = load_relaxed_pair(&at(tile, chain, channel).up_to_end);
    return {pair.first, pair.second};
  }
};

inline constexpr std::int64_t kCounterBytes = 256;  // words stay aligned

/// Bytes of a workspace for so many pairs of words; 0 for none.
inline std::int64_t look_back_memory(std::int64_t words) {
  return words == 0 ? 0 : kCounterBytes + std::int64_t(sizeof(Words)) * words;
}

/// What the tiles of a launch share, in a workspace where nothing has been published yet.
/// @param words pairs of them; 0 if every chain has one tile
inline LookBack make_look_back(std::string_view tag, std::int64_t chains, int width, std::int64_t words) {
  LookBack back{.counter = nullptr, .words = nullptr, .chains = int(chains), .width = width};
  if (words == 0) return back;
  const auto bytes = std::size_t(look_back_memory(words));
  auto* memory = workspace<Words>(tag, bytes / sizeof(Words));
  check(cudaMemsetAsync(memory, 0xFF, bytes, current_stream()));
  back.counter = reinterpret_cast<unsigned*>(memory);
  back.words = memory + kCounterBytes / sizeof(Words);
  return back;
}

}  // namespace tutorial::scan
