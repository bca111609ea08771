/// @file
/// Stage 4, `fused`: the state stays on the chip, and one kernel is left.
///
/// Idea: the columns of the state are independent: column j of S and of O needs only column j of V. So each block takes
/// a tile of columns of one head, keeps these columns of the state in shared memory, and walks the chunks with them.
/// Grows out of: 3_materialized.cu
/// Improves on: the states of `materialized`, which cross device memory four times.
/// Unchanged: chunks of 64 and the products of a chunk. The kernel is the third one of `materialized`, except that it
/// keeps S itself. It adds K^T V to S when all threads have read S.
/// Equation:
///
///   O_n = scale (Q_n S + ((Q_n K_n^T) . M) V_n), then S += K_n^T V_n        S, V, O: 32 columns of Dv
///
/// Shapes: q, k [B, H, L, Dk]; v, o [B, H, L, Dv]; S_0 and final_state [B, H, Dk, Dv]; all fp32 in device memory.
/// Thread mapping: block (b, h, tile) has 32 columns, fewer than in `materialized`, so that there are enough blocks:
/// one for every multiprocessor at B H = 32 and Dv = 128. Q, K and S are divided into slices of 64 along Dk. The block
/// finishes a slice before it begins the next. It adds the slice's part of the scores and of Q S. After a barrier
/// (until then other threads read the old state) it adds K^T V to the slice of S. Each thread has 4 x 4 scores and 4 x
/// 2 sums of the other products (common/tile/float_tile.cuh).
///
///      slice: load | scores, Q S | S += K^T V | next slice ... | P | O += P V | next chunk        |: a barrier
///
/// Resources: tiles of Q (later of P), K and V, and one of S for each slice: 61 KB at Dk = 128. Up to 32 sums in
/// registers.
/// Work: 4 Dk Dv + 64 (Dk + Dv) operations per position, but each of the Dv / 32 blocks of a head computes the
/// scores, 64 / 2 Dk per position, for itself.
/// Bytes: v, o and the states once, q and k once for each tile of columns. The second-level cache serves the repeated
/// reads, because the blocks of a head run side by side.
/// Bound by: the fp32 units; with few heads the L / 64 chunks that a block walks one after the other, each of which
/// waits for its loads.
/// Requires: Dk <= 384. For Q, K, V and six slices of the state, 97 KB per block are needed then, which every GPU since
/// compute capability 8.0 has for a block.
/// Weakness: it computes multiply-adds one by one, although the hardware has units for whole matrix products.
/// `mma_products` uses them.
/// Sources: arXiv 2312.06635, algorithm 1 without materialization.

#include <cuda_runtime.h>

#include "02_chunkwise/linear_attention.hpp"
#include "common/ceil_div.hpp"
#include "common/device/launch.cuh"
#include "common/tile/float_tile.cuh"

namespace tutorial::linear_attention {
namespace {

using namespace tile;

constexpr int kChunkLength = kTileRows;
constexpr int kColumns = 32;  // of Dv, per block
using KeyTile = FloatTile<64>;
using ValueTile = FloatTile<kColumns>;

/// Grid (tiles of the columns) x (B H), in one dimension: the blocks of a head are neighbours.
__global__ void __launch_bounds__(kTileThreads, 2) fused_kernel(FloatArguments a) {
  const KeyTile Q{dynamic_shared<float>()}, K{Q.data + KeyTile::kElements}, &P = Q;
  const ValueTile V{K.data + KeyTile::kElements};
  const auto state = [&](int d) { return ValueTile{V.data + (1 + d / kTileRows) * ValueTile::kElements}; };

  const int tiles = (a.Dv - 1) / kColumns + 1;
  const int head = int(blockIdx.x) / tiles, b = head / a.H, h = head % a.H;
  const int j = int(blockIdx.x) % tiles * kColumns, columns = a.Dv - j;

  for (int d = 0; d < a.Dk; d += kTileRows) {
    const bool given = a.initial_state.data != nullptr;
    load_tile(state(d), given ? a.initial_state.row(b, h, d) + j : nullptr, a.initial_state.stride_l,
              given ? a.Dk - d : 0, columns);
  }
  for (int t = 0; t < a.L; t += kChunkLength) {
    const int rows = a.L - t;
    load_tile(V, a.v.row(b, h, t) + j, a.v.stride_l, rows, columns);
    float scores[4][4] = {}, O[4][kColumns / 16] = {};
    for (int d = 0; d < a.Dk; d += kTileRows) {
      load_tile(Q, a.q.row(b, h, t) + d, a.q.stride_l, rows, a.Dk - d);
      load_tile(K, a.k.row(b, h, t) + d, a.k.stride_l, rows, a.Dk - d);
      __syncthreads();
      add_scores(scores, Q, K);
      add_product<false>(O, Q, state(d));
      __syncthreads();
      float S[4][kColumns / 16] = {};
      add_transposed_product(S, K, V);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
#pragma unroll
        for (int c = 0; c < kColumns / 16; ++c) {
          *state(d).at(tile_y() * 4 + r, tile_x() * (kColumns / 16) + c) += S[r][c];
        }
      }
      __syncthreads();
    }
    store_masked(P, scores);
    __syncthreads();
    add_product<true>(O, P, V);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int row = tile_y() + 16 * r;
      if (row < rows) store_row(a.o.row(b, h, t + row) + j, O[r], a.scale, columns);
    }
    __syncthreads();
  }
  if (a.final_state.data == nullptr) return;
  for (int d = tile_y(); d < a.Dk; d += 16) {
    const ValueTile S = state(d);
    for (int c = tile_x(); c < min(kColumns, columns); c += 16) {
      store_global(&a.final_state.row(b, h, d)[j + c], *S.at(d % kTileRows, c));
    }
  }
}

}  // namespace

void fused(const FloatArguments& a) {
  const auto blocks = unsigned(a.B * a.H) * unsigned(ceil_div(a.Dv, kColumns));
  const int slices = ceil_div(a.Dk, kTileRows);
  const auto elements = std::size_t(2 * KeyTile::kElements + (1 + slices) * ValueTile::kElements);
  launch(fused_kernel, {blocks, kTileThreads, elements * sizeof(float)}, a);
}

}  // namespace tutorial::linear_attention
