#pragma once
/// @file
/// How the tiles of dispatch's kernels look back: all threads of a block for one channel, or one thread per channel.

#include <cuda_runtime.h>

#include <cstdint>

#include "06_scan/scan/look_back.cuh"
#include "06_scan/scan/warp_scan.cuh"

namespace tutorial::scan {

/// The map up to the end of the tile before, if it has been published already, as it mostly has with many sequences. A
/// tile loads this word while its own steps are in flight. If the word already holds a map, the look-back costs no
/// further trip to memory.
__device__ __forceinline__ std::uint64_t load_early(const LookBack& back, int tile, int chain, int channel) {
  return tile > 0 ? load_relaxed(&back.at(tile - 1, chain, channel).up_to_end) : kNotPublished;
}

/// What the warps of a block have found in a look-back, in shared memory.
template <int kWarps>
struct FoundByWarps {
  float2 map[2][kWarps];  ///< log_decay and value of a warp's predecessors; rounds alternate, and each is one barrier
  bool is_whole[2][kWarps];  ///< whether the map goes back to the first tile
};

/// What comes before a tile > 0. All threads of the block call this function and receive the result; 128 of them look
/// at one tile each. For a chain of one channel.
///
/// It looks at so many tiles at once because a trip to the second-level cache takes about 2 microseconds when memory is
/// busy. In that time memory delivers 80 tiles, so a look-back at 32 tiles per trip would fall behind. It does not
/// begin immediately, because the tiles just before this one have got about as far as this one: an unsuccessful poll
/// delays other memory requests.
template <int kWarps>
__device__ __forceinline__ Affine<float> look_back_by_block(const LookBack& back, int tile, int chain,
                                                            FoundByWarps<kWarps>& by_warps) {
  constexpr int kLookingWarps = kWarps < 4 ? kWarps : 4;
  const int warp = int(threadIdx.x) / 32, lane = int(lane_index());
  Affine<float> found;  // from the tile that has been reached, up to this tile
  __nanosleep(500);
  for (int round = 0;; ++round) {
    if (warp < kLookingWarps) {
      const int n = tile - 1 - (round * kLookingWarps + warp) * 32 - 31 + lane;  // the first warp has the newest
      Affine<float> map;
      bool is_whole = false;
      if (n >= 0) {
        for (;; backoff()) {
          const Words words = back.load(n, chain, 0);
          is_whole = words.up_to_end != kNotPublished;
          map = to_map(is_whole ? words.up_to_end : words.own);
          if (is_whole || words.own != kNotPublished) break;
        }
      }
      const unsigned whole = __ballot_sync(kAllLanes, is_whole);
      if (whole != 0 && lane < 31 - __clz(int(whole))) map = {};  // older than the newest that is whole
      map = warp_scan(map);
      if (lane == 31) {
        by_warps.map[round % 2][warp] = make_float2(map.log_decay, map.value);
        by_warps.is_whole[round % 2][warp] = whole != 0;
      }
    }
    __syncthreads();
    for (int w = 0; w < kLookingWarps; ++w) {
      const float2 of_warp = by_warps.map[round % 2][w];
      found = compose({of_warp.x, of_warp.y}, found);
      if (by_warps.is_whole[round % 2][w]) return found;  // the first tile always is
    }
  }
}

/// The same for one channel of a chain of several. One thread looks at one predecessor at a time.
/// @param early the result of load_early()
__device__ __forceinline__ Affine<float> look_back_by_thread(const LookBack& back, int tile, int chain, int channel,
                                                             std::uint64_t early) {
  if (early != kNotPublished) return to_map(early);
  Affine<float> found;
  for (int n = tile - 1;;) {
    const Words words = back.load(n, chain, channel);
    if (words.up_to_end != kNotPublished) return compose(to_map(words.up_to_end), found);
    if (words.own == kNotPublished) {
      backoff();
      continue;
    }
    found = compose(to_map(words.own), found);
    --n;  // the first tile publishes only the map up to its end
  }
}

}  // namespace tutorial::scan
