/// @file
/// Stage 6, `chunk_gpu`: stage 4 on the GPU, a kernel for each of its lines.
///
/// Idea: T, W and U of a chunk need nothing of other chunks, and neither do its outputs once the state that it starts
/// from is known. So all chunks do these at once, and only the states are walked, from chunk to chunk.
/// Mends: stage 5 takes L steps in line; here it is L / C, and in each of them there are two matrix products. Chapter
/// 02's `materialized` could compute every chunk's K^T V at once and then sum: what a chunk adds, K^T U', now contains
/// the state before it, and the products stay in the walk. Same: the equations of stage 4.
///
///   A = tril(diag(beta) K K^T, -1),  (I + A) T = diag(beta)           solve_kernel: T [C, C]
///   W = T K,  U = T V                                                 vectors_kernel
///   U' = U - W S_{n-1},  S_n = S_{n-1} + K^T U'                       states_kernel: U' and each S_{n-1}
///   O_n = scale (Q S_{n-1} + ((Q K^T) . M) U')                        outputs_kernel
///
/// With `normalize_keys` K is diag(r) K, r_t = 1 / sqrt(k_t . k_t + eps). The first kernel finds k_t . k_t on the
/// diagonal of K K^T, which it computes anyway, and leaves r for the others.
///
/// T is made row by row, T_t = beta_t e_t - sum_{i<t} A_ti T_i. A thread has a column of it: the columns do not meet,
/// and a row of A is read by all 64 at once.
///
/// Shapes: q, k [B, H, L, Dk]; v, o [B, H, L, Dv]; beta [B, H, L]; S_0 and final_state [B, H, Dk, Dv]; for the N =
/// ceil(L / C) chunks T [B, H, N, C, C] and states [B, H, N, Dk, Dv]; W [B, H, L, Dk], U and U' [B, H, L, Dv], r [B, H,
/// L]; all fp32 in device memory.
/// Who does what: block (b h n) has a chunk's T; block (b h n, tile) 64 columns of W or U, or of O_n; block (b h, tile)
/// walks with 32 columns of S, because there are few of these and a shared memory of 64 would not fit. A thread has 4 x
/// 4 or 4 x 2 sums of a tile (float_tile.cuh of chapter 02). A tile has 64 rows: chunks of less leave rows of zeros.
/// Resources: 17 to 52 KB of shared memory, in the walk 27 KB and 9 KB more for each 64 of Dk.
/// Work: stage 4's at C = 64, and zeros above the diagonal of T. Bytes: q, v and o once, k in each kernel; W, U, U', T
/// (4 C L a head) and states (4 N Dk Dv a head) written and read. At C = 64, Dk = Dv = 128 that is 4.5 times the inputs
/// and outputs; the tiles of a kernel ask for some of it again, and 6.9 times it is what they ask for.
/// Limit: the walk, of B H Dv / 32 blocks and L / C steps, and the fp32 units.
/// Needs: Dk <= 256, C <= 64; keys as in stage 1.
/// Weakness: four kernels that hand everything on through device memory, and no tensor core. Stage 7 has those.
/// Source: arXiv 2406.06484, section 3.2 and its algorithm; chapter 02's `materialized`.

#include <cuda_runtime.h>

#include <climits>
#include <utility>

#include "02_chunkwise/float_tile.cuh"
#include "05_deltanet_wy/delta_rule.hpp"
#include "05_deltanet_wy/delta_rule/chunk_vectors.hpp"
#include "common/device/launch.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::delta_rule {
namespace {

using namespace linear_attention;  // the tiles

constexpr int kColumns = 64;      // of a tile
constexpr int kWalkColumns = 32;  // of a tile of the state in the walk
constexpr int kMaxKeyDim = 256;
using Tile = FloatTile<kColumns>;
using WalkTile = FloatTile<kWalkColumns>;

int divided_up(int count, int by) {
  return (count - 1) / by + 1;
}

/// A chunk: the positions t to t + rows.
struct Place {
  int b, h, t, rows;

  __device__ __forceinline__ Place(const FloatArguments& a, int head, int n)
      : b(head / a.H), h(head % a.H), t(n * a.C), rows(min(a.C, a.L - t)) {}
};

/// Multiplies a tile of K, which load_tile() has loaded, with the keys' factors. Each thread does the elements that it
/// has loaded.
__device__ __forceinline__ void scale_keys(const Tile& K, const View<float>& factors, const Place& place) {
  if (factors.data == nullptr) return;
  const int column = int(threadIdx.x) % kColumns;
  for (int row = int(threadIdx.x) / kColumns; row < place.rows; row += kTileThreads / kColumns) {
    *K.at(row, column) *= load_global(factors.row(place.b, place.h, place.t + row));
  }
}

/// Grid (B H N).
__global__ void __launch_bounds__(kTileThreads) solve_kernel(FloatArguments a, int N, ChunkVectors x) {
  __shared__ float beta[kTileRows], factor[kTileRows];
  const Tile K{dynamic_shared<float>()}, &A = K;
  const Place place(a, int(blockIdx.x) / N, int(blockIdx.x) % N);
  const int thread = int(threadIdx.x);

  float products[4][4] = {};  // k_t . k_i
  for (int d = 0; d < a.Dk; d += kColumns) {
    load_tile(K, a.k.row(place.b, place.h, place.t) + d, a.k.stride_l, place.rows, a.Dk - d);
    __syncthreads();
    add_scores(products, K, K);
    __syncthreads();
  }
  if (thread < kTileRows) {
    beta[thread] = thread < place.rows ? load_global(a.beta.row(place.b, place.h, place.t + thread)) : 0.0f;
  }
  if (tile_x() == tile_y()) {  // these have the diagonal
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int t = tile_y() + 16 * r;
      factor[t] = a.normalize_keys ? 1 / sqrtf(products[r][r] + kKeyEps) : 1.0f;
      if (a.normalize_keys && t < place.rows) store_global(x.factors.row(place.b, place.h, place.t + t), factor[t]);
    }
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < 4; ++r) {
#pragma unroll
    for (int c = 0; c <= r; ++c) {
      const int t = tile_y() + 16 * r, i = tile_x() + 16 * c;
      *A.at(t, i) = i < t ? beta[t] * factor[t] * factor[i] * products[r][c] : 0.0f;
    }
  }
  __syncthreads();
  if (thread >= a.C) return;
  // Column `thread` of T. It is in registers, so that its rows do not wait for memory; therefore unrolled, to 64.
  float T[kTileRows];
  float* column = x.T + std::int64_t(blockIdx.x) * a.C * a.C + thread;
#pragma unroll
  for (int t = 0; t < kTileRows; ++t) {
    float sum = t == thread ? beta[t] : 0.0f;
#pragma unroll
    for (int i = 0; i < t; ++i) sum -= *A.at(t, i) * T[i];
    T[t] = sum;
    if (t < a.C) store_global(&column[t * a.C], sum);
  }
}

/// Grid (B H N, tiles of the columns of W, then of U).
__global__ void __launch_bounds__(kTileThreads, 2) vectors_kernel(FloatArguments a, int N, ChunkVectors x) {
  const Tile T{dynamic_shared<float>()}, X{T.data + Tile::kElements};
  const Place place(a, int(blockIdx.x) / N, int(blockIdx.x) % N);
  const int key_tiles = (a.Dk - 1) / kColumns + 1, tile = int(blockIdx.y);
  const bool for_keys = tile < key_tiles;
  const int first = (for_keys ? tile : tile - key_tiles) * kColumns;
  const View<const float>& from = for_keys ? a.k : a.v;
  const View<float>& to = for_keys ? x.W : x.U;
  const int columns = (for_keys ? a.Dk : a.Dv) - first;

  load_tile(T, x.T + std::int64_t(blockIdx.x) * a.C * a.C, a.C, a.C, a.C);
  load_tile(X, from.row(place.b, place.h, place.t) + first, from.stride_l, place.rows, columns);
  if (for_keys) scale_keys(X, x.factors, place);
  __syncthreads();
  float sums[4][kColumns / 16] = {};
  add_product<true>(sums, T, X);
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int row = tile_y() + 16 * r;
    if (row < place.rows) store_row(to.row(place.b, place.h, place.t + row) + first, sums[r], 1.0f, columns);
  }
}

/// Grid (B H, tiles of the columns).
__global__ void __launch_bounds__(kTileThreads, 2) states_kernel(FloatArguments a, int N, ChunkVectors x) {
  constexpr int kWide = kWalkColumns / 16;
  const Tile K{dynamic_shared<float>()}, &W = K;
  const WalkTile U{K.data + Tile::kElements};
  const int head = int(blockIdx.x), j = int(blockIdx.y) * kWalkColumns, slices = (a.Dk - 1) / kTileRows + 1;
  const auto state = [&](int slice) { return WalkTile{U.data + (slice + 1) * WalkTile::kElements}; };  // 64 rows of S

  const Place start(a, head, 0);
  for (int slice = 0; slice < slices; ++slice) {
    const int d = slice * kTileRows, rows = a.initial_state.data ? a.Dk - d : 0;
    load_tile(state(slice), a.initial_state.row(start.b, start.h, d) + j, a.initial_state.stride_l, rows, a.Dv - j);
  }
  for (int n = 0; n < N; ++n) {
    const Place place(a, head, n);
    const int b = place.b, h = place.h, t = place.t;
    float written[4][kWide] = {};  // W S, then U'
    for (int slice = 0; slice < slices; ++slice) {
      const int d = slice * kTileRows;
      load_tile(W, x.W.row(b, h, t) + d, a.Dk, place.rows, a.Dk - d);
      __syncthreads();
      add_product<false>(written, W, state(slice));
      __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int row = tile_y() + 16 * r;
#pragma unroll
      for (int c = 0; c < kWide; ++c) {
        const int column = tile_x() * kWide + c;
        const bool is_there = row < place.rows && j + column < a.Dv;
        const float u = is_there ? load_global(&x.U.row(b, h, t + row)[j + column]) : 0.0f;
        written[r][c] = u - written[r][c];
        if (is_there) store_global(&x.written.row(b, h, t + row)[j + column], written[r][c]);
        *U.at(row, column) = written[r][c];
      }
    }
    for (int slice = 0; slice < slices; ++slice) {
      const int d = slice * kTileRows;
      load_tile(K, a.k.row(b, h, t) + d, a.k.stride_l, place.rows, a.Dk - d);
      scale_keys(K, x.factors, place);
      __syncthreads();
      float sums[4][kWide] = {};
      add_transposed_product(sums, K, U);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int row = tile_y() * 4 + r;
#pragma unroll
        for (int c = 0; c < kWide; ++c) {
          const int column = tile_x() * kWide + c;
          float& S = *state(slice).at(row, column);
          if (d + row < a.Dk && j + column < a.Dv) {
            store_global(x.states + ((std::int64_t(head) * N + n) * a.Dk + d + row) * a.Dv + j + column, S);
          }
          S += sums[r][c];
        }
      }
      __syncthreads();
    }
  }
  if (a.final_state.data == nullptr) return;
  for (int slice = 0; slice < slices; ++slice) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int row = tile_y() * 4 + r;
      const float(&S)[kWide] = floats<kWide>(state(slice).at(row, tile_x() * kWide)).of;
      if (slice * kTileRows + row < a.Dk) {
        store_row(a.final_state.row(start.b, start.h, slice * kTileRows + row) + j, S, 1.0f, a.Dv - j);
      }
    }
  }
}

/// Grid (B H N, tiles of the columns).
__global__ void __launch_bounds__(kTileThreads, 2) outputs_kernel(FloatArguments a, int N, ChunkVectors x) {
  const Tile Q{dynamic_shared<float>()}, K{Q.data + Tile::kElements}, S{K.data + Tile::kElements};
  const Place place(a, int(blockIdx.x) / N, int(blockIdx.x) % N);
  const int b = place.b, h = place.h, t = place.t, j = int(blockIdx.y) * kColumns;
  const float* state = x.states + std::int64_t(blockIdx.x) * a.Dk * a.Dv + j;

  float scores[4][4] = {}, O[4][kColumns / 16] = {};
  for (int d = 0; d < a.Dk; d += kTileRows) {
    load_tile(Q, a.q.row(b, h, t) + d, a.q.stride_l, place.rows, a.Dk - d);
    load_tile(K, a.k.row(b, h, t) + d, a.k.stride_l, place.rows, a.Dk - d);
    scale_keys(K, x.factors, place);
    load_tile(S, state + std::int64_t(d) * a.Dv, a.Dv, a.Dk - d, a.Dv - j);
    __syncthreads();
    add_scores(scores, Q, K);
    add_product<false>(O, Q, S);
    __syncthreads();
  }
  const Tile &P = Q, &U = K;
  store_masked(P, scores);
  load_tile(U, x.written.row(b, h, t) + j, a.Dv, place.rows, a.Dv - j);
  __syncthreads();
  add_product<true>(O, P, U);

#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int row = tile_y() + 16 * r;
    if (row < place.rows) store_row(a.o.row(b, h, t + row) + j, O[r], a.scale, a.Dv - j);
  }
}

/// Numbers of the workspace.
struct Counts {
  std::int64_t T, W, U, written, states, factors;

  explicit Counts(const FloatArguments& a) {
    const std::int64_t heads = std::int64_t(a.B) * a.H, chunks = heads * divided_up(a.L, a.C);
    T = chunks * a.C * a.C;
    W = heads * a.L * a.Dk;
    U = heads * a.L * a.Dv;
    written = U;
    states = chunks * a.Dk * a.Dv;
    factors = a.normalize_keys ? heads * a.L : 0;
  }
  std::int64_t all() const { return T + W + U + written + states + factors; }
};

/// Up to which kernel the stage is run.
enum class Until { T, vectors, end };

ChunkVectors run(const FloatArguments& a, Until until) {
  const Counts counts(a);
  float* at = workspace<float>("delta_rule: chunk_gpu", std::size_t(counts.all()));
  const auto take = [&](std::int64_t count) { return std::exchange(at, at + count); };
  ChunkVectors x;
  x.T = take(counts.T);
  x.W = packed(take(counts.W), a.H, a.L, a.Dk);
  x.U = packed(take(counts.U), a.H, a.L, a.Dv);
  x.written = packed(take(counts.written), a.H, a.L, a.Dv);
  x.states = take(counts.states);
  if (a.normalize_keys) x.factors = packed(take(counts.factors), a.H, a.L, 1);

  const int N = divided_up(a.L, a.C);
  const auto heads = unsigned(a.B * a.H), chunks = heads * unsigned(N);
  const auto tiles = [](int width, int columns) { return unsigned(divided_up(width, columns)); };
  const std::size_t tile = Tile::kElements * sizeof(float), walk_tile = WalkTile::kElements * sizeof(float);
  launch(solve_kernel, {chunks, kTileThreads, tile}, a, N, x);
  if (until == Until::T) return x;
  launch(vectors_kernel, {dim3(chunks, tiles(a.Dk, kColumns) + tiles(a.Dv, kColumns)), kTileThreads, 2 * tile}, a, N,
         x);
  if (until == Until::vectors) return x;
  launch(states_kernel,
         {dim3(heads, tiles(a.Dv, kWalkColumns)), kTileThreads, tile + (1 + tiles(a.Dk, kTileRows)) * walk_tile}, a, N,
         x);
  launch(outputs_kernel, {dim3(chunks, tiles(a.Dv, kColumns)), kTileThreads, 3 * tile}, a, N, x);
  return x;
}

}  // namespace

void chunk_gpu(const FloatArguments& a) {
  run(a, Until::end);
}

ChunkVectors chunk_vectors(const FloatArguments& a) {
  return run(a, Until::vectors);
}

std::string chunk_gpu_limits(const FloatArguments& a) {
  if (a.C > kTileRows) return "C > 64: a chunk is a tile of 64 rows";
  if (a.Dk > kMaxKeyDim) return "Dk > 256: a tile of the state would not fit into shared memory";
  if (std::int64_t(a.B) * a.H * divided_up(a.L, a.C) > INT_MAX) return "B H > 2^31 - 1 chunks: the grid";
  if (divided_up(a.Dv, kWalkColumns) > 65535) return "Dv > 65535 tiles of 32 columns: the grid's second dimension";
  if (a.L > INT_MAX - kTileRows) return "L > 2^31 - 65: positions are counted in int";
  return "";
}

std::int64_t chunk_gpu_memory(const FloatArguments& a) {
  return 4 * Counts(a).all();
}

std::int64_t chunk_gpu_moved(const FloatArguments& a) {
  const Counts counts(a);
  const std::int64_t heads = std::int64_t(a.B) * a.H, positions = heads * a.L;
  const std::int64_t keys = counts.W, values = counts.U;  // of k, q and W; of v, o and U
  const std::int64_t key_tiles = divided_up(a.Dk, kColumns), value_tiles = divided_up(a.Dv, kColumns);
  const std::int64_t walk_tiles = divided_up(a.Dv, kWalkColumns);
  const std::int64_t state = heads * a.Dk * a.Dv;
  std::int64_t count = keys + positions + counts.T;                       // solve: k, beta; T
  count += (key_tiles + value_tiles) * counts.T + 2 * keys + 2 * values;  // vectors: T, k, v; W, U
  count += walk_tiles * 2 * keys + 2 * values + counts.states;            // states: W, k, U; U', S_n
  count += value_tiles * 2 * keys + counts.states + 2 * values;           // outputs: q, k, S_n, U'; o
  count += (a.initial_state.data ? state : 0) + (a.final_state.data ? state : 0);
  if (a.normalize_keys) {  // each thread asks for the factor of each element that it scales
    const std::int64_t key_columns = key_tiles * kColumns;
    count += positions * (1 + key_columns * (1 + walk_tiles + value_tiles));
  }
  return 4 * count;
}

}  // namespace tutorial::delta_rule
