#pragma once
/// @file
/// The last kernel of `--backward` on pairs of chunks, without and with gates: what a block has in shared memory, and
/// its products. Warpgroup 1 + c of a block has chunk c of a pair.

#include <cuda_runtime.h>

#include "05_deltanet_wy/chunk/alike_keys.cuh"
#include "05_deltanet_wy/chunk/prepare.hpp"
#include "05_deltanet_wy/chunk/warpgroup_products.cuh"
#include "common/device/bulk_copy.cuh"
#include "common/device/mbarrier.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::delta_rule {
namespace {

using namespace tile;

constexpr int kPair = 2 * kChunk;              // positions that a block takes at a time
constexpr int kBlockThreads = 3 * kWarpgroup;  // of the last kernel's block

/// The tiles of a pair.
enum Place { kS, kDO, kV, kK, kDV, kQ, kDS, kPlaces };

/// Their places in shared memory.
template <int kDk, int kDv>
struct GradientTiles {
  PanelTile<kDk, kDv> S, dS;           // S^T and dS^T / scale
  PanelTile<kDv, kPair> dO, dV, V;     // V is v_new
  PanelTile<kDv, kPair> V_errors;      // what rounding leaves out of it; dS takes its place
  PanelTile<kDk, kPair> K, Q, dQ, dK;  // dQ takes the place of S, and dK that of dS

  static_assert(kDv <= kPair, "a gradient fits into the place of a state");
  static constexpr int kErrorsOrState = kDk < kDv ? kDv : kDk;
  static constexpr int kBytes = kPair * (3 * kDv + 3 * kDk + kErrorsOrState) * int(sizeof(__nv_bfloat16));

  __device__ __forceinline__ explicit GradientTiles(__nv_bfloat16* memory)
      : S{memory},
        dS{S.data + kPair * kDk},
        dO{dS.data + kPair * kErrorsOrState},
        dV{dO.data + kPair * kDv},
        V{dV.data + kPair * kDv},
        V_errors{dS.data},
        K{V.data + kPair * kDv},
        Q{K.data + kPair * kDk},
        dQ{S.data},
        dK{dS.data} {}
};

/// Two chunks, one after the other.
struct Pair {
  int b, h;   ///< batch entry, head
  int first;  ///< position
};

/// What the blocks of the last kernel share out among them.
struct Pairs {
  int count, all;  ///< of a head, of all heads
  int H;

  /// The pair of this number.
  __device__ __forceinline__ Pair operator[](int number) const {
    const int head = number / count;
    return {head / H, head % H, number % count * kPair};
  }
};

/// Barriers: `full` and `empty` of each place. Named barriers: the first of those of each of the two warpgroups that
/// compute, and the first of those that say that a warpgroup needs a state no longer.
struct GradientBarriers {
  Barrier full[kPlaces], empty[kPlaces];
  bool alike[2];  ///< whether the pair's chunks are marked (chunk/alike_keys.cuh): a note that comes with kV
};
constexpr unsigned kOwnGroup = 1, kNeededNoLonger = 3;

/// Which chunks of a pair are marked (chunk/alike_keys.cuh), for the thread that loads.
class MarksOfPair {
 public:
  __device__ __forceinline__ MarksOfPair(const PreparedTiles& prepared, const Pair& pair, int H, int L) {
    const std::int64_t chunk = (std::int64_t(pair.b) * H + pair.h) * prepared.N + pair.first / kChunk;
    first_ = load_mark(prepared, chunk);
    second_ = pair.first + kChunk < L ? load_mark(prepared, chunk + 1) : 0;
  }
  __device__ __forceinline__ bool any() const { return is_marked(first_ | second_); }
  /// Tells those that compute, before the bytes of kV are expected.
  __device__ __forceinline__ void tell(GradientBarriers& barriers) const {
    barriers.alike[0] = is_marked(first_);
    barriers.alike[1] = is_marked(second_);
  }
  /// Starts to load what rounding leaves out of v_new, of the marked chunks.
  template <int kDv>
  __device__ __forceinline__ void load_errors(const PanelTile<kDv, kPair>& tile, const TensorMap& map, Barrier& full,
                                              const Pair& pair) const {
    const int count = is_marked(first_) + is_marked(second_);
    full.arrive_expect(unsigned(count * kChunk * kDv * int(sizeof(__nv_bfloat16))));
    for (int n = 0; n < 2; ++n) {
      if (!is_marked(n == 0 ? first_ : second_)) continue;
      const PanelTile<kDv, kPair> rows{tile.data + n * kChunk * 64};
      load_panels(rows, map, full, {.position = pair.first + n * kChunk, .head = pair.h, .batch = pair.b});
    }
  }

 private:
  std::uint32_t first_, second_;
};

/// A warpgroup does not read kS or kDS any more. A gradient takes the place of the state when the other one does not,
/// either; until then there is something else to do. @param group 0 or 1
__device__ __forceinline__ void end_reads_of(Place state, int group) {
  arrive_at_named_barrier(kNeededNoLonger + (state == kDS ? 2 : 0) + group, 2 * kWarpgroup);
}
/// Waits until the other warpgroup has said so.
__device__ __forceinline__ void wait_for_reads_of(Place state, int group) {
  wait_at_named_barrier(kNeededNoLonger + (state == kDS ? 2 : 0) + 1 - group, 2 * kWarpgroup);
}

/// scores = X Y^T, of 64 rows of each.
template <int kDv>
__device__ __forceinline__ void start_scores_of_rows(WarpgroupScores& scores, const PanelTile<kDv, kPair>& X, int x_row,
                                                     const PanelTile<kDv, kPair>& Y, int y_row) {
  const auto x = k_along_rows(X).along_mn(x_row), y = k_along_rows(Y).along_mn(y_row);
#pragma unroll
  for (int j = 0; j < kDv; j += 16) wgmma<kChunk>(scores, x.along_k(j), y.along_k(j), j > 0);
}

/// O += y K, of 64 rows of K, or O = y K.
template <int kDk>
__device__ __forceinline__ void start_product_with_rows(float (&O)[kDk / 2], const WarpgroupFragments& y,
                                                        const PanelTile<kDk, kPair>& K, int row,
                                                        bool accumulate = true) {
  const auto k = k_from_row_to_row(K).along_k(row);
#pragma unroll
  for (int i = 0; i < kChunk; i += 16) wgmma<kDk>(O, y[i / 16], k.along_k(i), accumulate || i > 0);
}

/// Writes a gradient to its rows of a tile, and starts to store it. Called by all threads of a warpgroup, after the
/// wait for all that read these rows.
/// @param group whose rows they are: the chunk's number in the pair
/// @param lane lane_index(); fresh_lane() where registers are scarce
template <int kDk>
__device__ __forceinline__ void store_gradient(const PanelTile<kDk, kPair>& tile, float (&sums)[kDk / 2], float scale,
                                               const TensorMap& map, const Pair& pair, int group,
                                               int lane = int(lane_index())) {
#pragma unroll
  for (int i = 0; i < kDk / 2; ++i) sums[i] *= scale;
  const int row = group * kChunk + warp_in_group() * 16;
#pragma unroll
  for (int column = 0; column < kDk; column += 16) {
    std::uint32_t two[4];
    wgmma_fragment(two, sums, column);
    stmatrix(tile.data + tile.unit(row + lane % 16, column + lane / 16 * 8), two);
  }
  fence_async_proxy();
  wait_at_named_barrier(kOwnGroup + group, kWarpgroup);
  if (threadIdx.x % kWarpgroup != 0) return;
  for (int panel = 0; panel < kDk / 64; ++panel) {
    store_tile(map, tile.data + panel * tile.kPanelElements + group * kChunk * 64,
               {.column = panel * 64, .position = pair.first + group * kChunk, .head = pair.h, .batch = pair.b});
  }
  commit_stores();
}

}  // namespace
}  // namespace tutorial::delta_rule
