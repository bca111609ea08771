#pragma once
/// @file
/// How the tiles of a sequence hand their maps on: decoupled look-back.
///
/// A tile publishes two maps, as soon as it knows them: its own, and that of the sequence up to its end. Who comes
/// after it needs the latter, but need not wait for it: tiles back to the nearest one that has it, composed, do as
/// well. The maps are 8 bytes, read and written at once, and so are their own flags: memory starts as 0xFF throughout,
/// two NaNs that no GPU's arithmetic leaves, and what is not that is there. A word is all that is handed over, so no
/// fences are needed.
///
/// The map up to a tile's end includes y_0: its value is y itself, and nothing before it matters.
///
/// Where a tile's value is a matrix, the words only tell that it is there, and its sum of gates: states lie beside them
/// and are handed over by release and acquire (simple_gla/6_scan_fused.cu).
///
/// Blocks take their tiles from a counter, so a tile's predecessors have all been started. Tile n of all sequences
/// comes before tile n + 1 of any: with many sequences a predecessor is long done.
/// Source: Merrill and Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back", NVR-2016-002.

#include <cuda_runtime.h>

#include <cstdint>
#include <string_view>

#include "06_scan/affine.hpp"
#include "06_scan/scan/warp_scan.cuh"
#include "common/device/atomic.cuh"
#include "common/device/error.hpp"
#include "common/device/stream.hpp"
#include "common/device/workspace.hpp"

namespace tutorial::scan {

inline constexpr std::uint64_t kNotThere = ~std::uint64_t{0};

/// A map as the word that memory holds. Two NaNs of an input that come through unchanged, as on a CPU, become others.
__device__ __forceinline__ std::uint64_t to_word(const Affine<float>& map) {
  const std::uint64_t word = std::uint64_t{__float_as_uint(map.log_decay)} << 32 | __float_as_uint(map.value);
  return word == kNotThere ? word ^ 1 : word;
}

/// The map that a word holds.
__device__ __forceinline__ Affine<float> to_map(std::uint64_t word) {
  return {__uint_as_float(unsigned(word >> 32)), __uint_as_float(unsigned(word))};
}

/// What a tile publishes of one channel. Side by side, for one load to read both: the look back of one long sequence
/// asks for so many that the second-level cache gets busy with them, and twice as many requests made an H200 15 %
/// slower.
struct alignas(16) Words {
  std::uint64_t up_to_end;  ///< the map of the sequence up to the end of the tile
  std::uint64_t own;        ///< the map of the tile
};

/// What the tiles of a launch share. Words are in the order in which tiles are taken: word (n chains + chain) width +
/// channel belongs to tile n of a chain, which is a sequence or `width` channels of one.
struct LookBack {
  unsigned* taken;  ///< the number taken last; it starts as 2^32 - 1. Null: every chain has one tile
  Words* words;
  int chains, width;

  /// The tile that the block computes, as its number in that order. Called by one thread.
  __device__ int take() const { return taken ? int(atomicAdd(taken, 1u) + 1u) : int(blockIdx.x); }

  /// The place of a tile's words.
  __device__ std::int64_t place(int tile, int chain, int channel) const {
    return (std::int64_t(tile) * chains + chain) * width + channel;
  }

  /// A tile's words.
  __device__ Words& at(int tile, int chain, int channel) const { return words[place(tile, chain, channel)]; }

  /// What they are now.
  __device__ Words ask(int tile, int chain, int channel) const {
    const WordPair pair = load_relaxed_pair(&at(tile, chain, channel).up_to_end);
    return {pair.first, pair.second};
  }

  /// The map up to the end of the tile before, if it is there already: with many sequences it mostly is. Asked for
  /// while the tile's own steps are under way, it is here when they are, and the look back costs no trip to memory.
  __device__ std::uint64_t told_early(int tile, int chain, int channel) const {
    return tile > 0 ? load_relaxed(&at(tile - 1, chain, channel).up_to_end) : kNotThere;
  }
};

inline constexpr std::int64_t kCounterBytes = 256;  // words stay aligned

/// Bytes of a workspace for so many pairs of words; 0 for none.
inline std::int64_t look_back_memory(std::int64_t words) {
  return words == 0 ? 0 : kCounterBytes + std::int64_t(sizeof(Words)) * words;
}

/// What the tiles of a launch share, in a workspace where nothing is there yet.
/// @param words pairs of them; 0 where every chain has one tile
inline LookBack make_look_back(std::string_view tag, std::int64_t chains, int width, std::int64_t words) {
  LookBack back{.taken = nullptr, .words = nullptr, .chains = int(chains), .width = width};
  if (words == 0) return back;
  const auto bytes = std::size_t(look_back_memory(words));
  auto* memory = workspace<Words>(tag, bytes / sizeof(Words));
  check(cudaMemsetAsync(memory, 0xFF, bytes, current_stream()));
  back.taken = reinterpret_cast<unsigned*>(memory);
  back.words = memory + kCounterBytes / sizeof(Words);
  return back;
}

/// What the warps of a block have seen of a look back, in shared memory.
template <int kWarps>
struct Seen {
  float2 map[2][kWarps];     ///< log_decay, value of a warp's predecessors; rounds alternate, and each is one barrier
  bool is_whole[2][kWarps];  ///< whether it goes back to the first tile
};

/// What comes before a tile > 0, found by a block, all threads of which call and are told: 128 of them look at a tile
/// each. For a chain of one channel.
///
/// So many because a trip to the second-level cache takes some 2 microseconds when memory is busy, as long as memory
/// needs for 80 tiles: a look back at 32 a trip falls behind. And not at once, because the tiles just before this one
/// are about as far as it is: who asks in vain delays what others ask for.
template <int kWarps>
__device__ __forceinline__ Affine<float> look_back_by_block(const LookBack& back, int tile, int chain,
                                                            Seen<kWarps>& seen) {
  constexpr int kLook = kWarps < 4 ? kWarps : 4;  // warps that look
  const int warp = int(threadIdx.x) / 32, lane = int(lane_index());
  Affine<float> found;  // from where we are, up to the tile
  __nanosleep(500);
  for (int round = 0;; ++round) {
    if (warp < kLook) {
      const int n = tile - 1 - (round * kLook + warp) * 32 - 31 + lane;  // the first warp has the newest
      Affine<float> map;
      bool is_whole = false;
      if (n >= 0) {
        for (;; backoff()) {
          const Words told = back.ask(n, chain, 0);
          is_whole = told.up_to_end != kNotThere;
          map = to_map(is_whole ? told.up_to_end : told.own);
          if (is_whole || told.own != kNotThere) break;
        }
      }
      const unsigned whole = __ballot_sync(kAllLanes, is_whole);
      if (whole != 0 && lane < 31 - __clz(int(whole))) map = {};  // older than the newest that is whole
      map = warp_scan(map);
      if (lane == 31) {
        seen.map[round % 2][warp] = make_float2(map.log_decay, map.value);
        seen.is_whole[round % 2][warp] = whole != 0;
      }
    }
    __syncthreads();
    for (int w = 0; w < kLook; ++w) {
      const float2 of_warp = seen.map[round % 2][w];
      found = compose({of_warp.x, of_warp.y}, found);
      if (seen.is_whole[round % 2][w]) return found;  // the first tile always is
    }
  }
}

/// The same for one channel of a chain of several, found by a thread: one predecessor at a time.
__device__ __forceinline__ Affine<float> look_back_by_thread(const LookBack& back, int tile, int chain, int channel,
                                                             std::uint64_t early) {
  if (early != kNotThere) return to_map(early);
  Affine<float> found;
  for (int n = tile - 1;;) {
    const Words told = back.ask(n, chain, channel);
    if (told.up_to_end != kNotThere) return compose(to_map(told.up_to_end), found);
    if (told.own == kNotThere) {
      backoff();
      continue;
    }
    found = compose(to_map(told.own), found);
    --n;  // the first tile publishes the map up to its end alone
  }
}

}  // namespace tutorial::scan
