/// @file
/// `subchunk_tensor_core`: two levels on tensor cores.
///
/// Idea: the second level of `chunkwise`, inside chapter 02's `pipelined`. The decay from key i to query t is cut at
/// the start of the query's sub-chunk of 16. The part after the cut is the query's factor, and the part before it is
/// the key's. Both are products of gates, at most 1, and once they are in q and k, the scores of 16 queries and 16
/// earlier keys are a product of two bf16 matrices. Pairs within one sub-chunk have no such cut. prepare() (prepare.cu)
/// computes their scores in fp32, once for all tiles of Dv, and decays q from the start of its sub-chunk and k to the
/// end of its own. The decays of the sub-chunks in between are multiplied here.
/// Grows out of: 4_chunkwise.cpp; port to the GPU: on chapter 02's tiles and fragments, and prepare() comes with it
/// Improves on: `chunk_gpu` takes one exponential per term of each score and computes the scores again in each tile of
/// Dv.
/// Unchanged: the walk of `pipelined`, with the state in registers and the copies of the next chunk in flight during
/// the products of this one.
/// Equation:
///
///     q~_t, k~_i    q_t decayed from the start of its sub-chunk, k_i to the end of its own, both by prepare()
///     D_r           the decay of sub-chunk r, [Dk]
///
///     P in sub-chunks, r = query's, s = key's:                e   by prepare(): fp32, pair by pair
///          s = 0  1  2  3                                     #   here: bf16, mma
///       r = 0  e                                                  P_rs = q~_r (k~_s . D_(s+1) ... D_(r-1))^T
///           1  #  e
///           2  #  #  e
///           3  #  #  #  e
///
///     O_r = scale ((q~_r . D_0 ... D_(r-1)) S + sum over s <= r of P_rs V_s)
///     S   = diag(D_0 D_1 D_2 D_3) S + sum over s of (k~_s . D_(s+1) ... D_3)^T V_s       for each chunk
///
/// Shapes: q, k, v, o bf16 and g, states fp32, as in gla.hpp; what prepare() leaves as in prepare.hpp. In shared
/// memory DecayedTiles and P [64, 64]. A product with decays is rounded to bf16 once more.
/// Thread mapping: block (tile, h, b) walks the chunks of head (b, h) with 128 or 64 columns of Dv; its 4 warps share
/// the columns. First the block computes the # in 12 halves of 8 keys, three per warp. When all warps are done with q~
/// and k~, the block decays them over the whole chunk, in place. What is left is chapter 02's.
/// Resources: 112 KB of shared memory at Dk = Dv = 128: two blocks per multiprocessor.
/// Work: chapter 02's products without the e, and per position 3 Dk multiplications with decays: half of them for the
/// #, half over the whole chunk.
/// Bytes: those of prepare(); then its q~, k~, decays and scores, once per tile of Dv, v once and o once.
/// Bound by: with few heads, the time that a block needs for one chunk after the other.
/// Requires: Dk and Dv multiples of 16, Dk <= 256, Dv <= 512; rows aligned to 16 bytes. Dk > 128: 164 KB of shared
/// memory per block.
/// Weakness: all of q~ and k~ is unpacked, multiplied and rounded again on its way to the tensor cores, which takes a
/// third barrier. And there are only B H ceil(Dv / 64) blocks, however long the sequence is.
/// Sources: arXiv 2312.06635, section 4.3, "secondary-level chunking"; chapter 02's `pipelined`.

#include <cuda_runtime.h>

#include "03_gla/gla/prepare.hpp"
#include "03_gla/gla/prepared_tiles.cuh"
#include "common/device/launch.cuh"
#include "common/tile/block_columns.hpp"
#include "common/tile/chunk_products.cuh"
#include "common/tile/decay_rows.cuh"
#include "common/tile/grid.cuh"
#include "common/tile/select_shape.cuh"
#include "common/tile/state.cuh"
#include "common/tile/store_tile.cuh"

namespace tutorial::gla {
namespace {

using namespace tile;

constexpr int kPipelineDepth = 2;  // chunks in shared memory

template <class Shape>
constexpr std::size_t kSharedBytes = kPipelineDepth* DecayedTiles<Shape>::kBytes +
                                     kChunk* kChunk * sizeof(__nv_bfloat16);

/// A 16 x 8 part of P from the accumulators of mma to shared memory.
template <class Tile>
__device__ __forceinline__ void store_scores(const Tile& P, int t, int i, std::uint32_t upper, std::uint32_t lower) {
  const int lane = fresh_lane(), at = P.unit(t + lane / 4, i) + lane % 4 * 2;
  *reinterpret_cast<std::uint32_t*>(P.data + at) = upper;
  *reinterpret_cast<std::uint32_t*>(P.data + P.advance(at, 8, 0)) = lower;
}

/// P_rs = q~_r (k~_s . D_(s+1) ... D_(r-1))^T for s < r, six tiles of 16 x 16 in halves of 8 keys, three halves per
/// warp.
template <class Shape>
__device__ __forceinline__ void sub_chunk_scores(const typename Shape::ScoreTile& P, const DecayedTiles<Shape>& tiles) {
  const int lane = fresh_lane(), warp = warp_index();
  int r[3], s[3], q_unit[3], k_unit[3];
  float scores[3][4] = {};
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    const int pair = warp / 2 + 2 * i;
    r[i] = 1 + (pair >= 1) + (pair >= 3);
    s[i] = pair - r[i] * (r[i] - 1) / 2;
    q_unit[i] = tiles.Q.unit(r[i] * kSubChunk + lane % 16, lane / 16 * 8);
    k_unit[i] = tiles.K.unit(s[i] * kSubChunk + warp % 2 * 8 + lane % 8, lane / 8 % 2 * 8);
  }
#pragma unroll
  for (int d = 0; d < Shape::kDk; d += 16) {
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      std::uint32_t q[4], k[2];
      ldmatrix_x4(q, tiles.Q.data + tiles.Q.advance(q_unit[i], 0, d));
      ldmatrix_x2(k, tiles.K.data + tiles.K.advance(k_unit[i], 0, d));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float2 factors{1, 1};
#pragma unroll
        for (int m = 1; m <= 2; ++m) {  // the sub-chunks that can lie between
          const float2 decay = tiles.decay(m, d + half * 8 + lane % 4 * 2);
          if (s[i] < m && m < r[i]) factors = {factors.x * decay.x, factors.y * decay.y};
        }
        k[half] = scaled(k[half], factors);
      }
      mma_m16n8k16(scores[i], q, k);
    }
  }
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    store_scores(P, r[i] * kSubChunk, s[i] * kSubChunk + warp % 2 * 8, pack(scores[i][0], scores[i][1]),
                 pack(scores[i][2], scores[i][3]));
  }
  std::uint32_t p[4];  // P_rr from prepare(), one sub-chunk per warp
  tiles.load_own_scores(p, warp);
  store_scores(P, warp * kSubChunk, warp * kSubChunk, p[0], p[1]);
  store_scores(P, warp * kSubChunk, warp * kSubChunk + 8, p[2], p[3]);
}

/// q~ becomes q decayed from the chunk's start, k~ becomes k decayed to the chunk's end: in place, 8 columns per
/// thread.
template <class Shape>
__device__ __forceinline__ void decay_over_chunk(const DecayedTiles<Shape>& tiles) {
  constexpr int kUnits = Shape::kDk / 8, kStep = kThreads / kUnits;  // rows at a time
  const int thread = hide_from_compiler(int(threadIdx.x)), first_row = thread / kUnits, column = thread % kUnits * 8;
  float before[8] = {1, 1, 1, 1, 1, 1, 1, 1}, after[8] = {1, 1, 1, 1, 1, 1, 1, 1};
#pragma unroll 1
  for (int r = 1; r < kSubChunks; ++r) {  // queries of sub-chunk r, and keys of sub-chunk s
    const int s = kSubChunks - 1 - r;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      before[e] *= tiles.decays[(r - 1) * Shape::kDk + column + e];
      after[e] *= tiles.decays[(s + 1) * Shape::kDk + column + e];
    }
    for (int row = first_row; row < kSubChunk; row += kStep) {
      scale_unit(tiles.Q, r * kSubChunk + row, column, before);
      scale_unit(tiles.K, s * kSubChunk + row, column, after);
    }
  }
}

/// Grid (tiles of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1)
    subchunk_kernel(Bf16Arguments a, Prepared prepared) {
  const int b = int(blockIdx.z), h = int(blockIdx.y);
  const int first_column = int(blockIdx.x) * Shape::kDv, columns = min(Shape::kDv, a.Dv - first_column);
  auto* memory = dynamic_shared<unsigned char>();
  const auto tiles_of = [&](int t) {
    return DecayedTiles<Shape>(memory + t / kChunk % kPipelineDepth * DecayedTiles<Shape>::kBytes);
  };
  const typename Shape::ScoreTile P{
      reinterpret_cast<__nv_bfloat16*>(memory + kPipelineDepth * DecayedTiles<Shape>::kBytes)};

  const auto load = [&](int t) {
    const DecayedTiles<Shape> tiles = tiles_of(t);
    load_for_states(tiles, a, prepared, hide_from_compiler(b), h, t, first_column, columns);
    load_for_outputs(tiles, a, prepared, hide_from_compiler(b), h, t);
    cp_async_commit();
  };
  load(0);

  typename Shape::State S;
  const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) + first_column : nullptr;
  load_state<Shape>(S, start, a.initial_state.stride_l, a.Dk, columns);

  for (int t = 0; t < a.L; t += kChunk) {
    cp_async_wait<0>();
    __syncthreads();
    if (t + kChunk < a.L) load(t + kChunk);
    const DecayedTiles<Shape> tiles = tiles_of(t);
    typename Shape::Output O = {};
    sub_chunk_scores<Shape>(P, tiles);
    __syncthreads();
    decay_over_chunk<Shape>(tiles);
    __syncthreads();
    add_from_state<Shape>(O, tiles.Q, S);
    add_from_scores<Shape>(O, P, tiles.V);
    decay_rows<Shape>(S, [&](int d) {
      float2 whole{1, 1};
#pragma unroll
      for (int r = 0; r < kSubChunks; ++r) whole = {whole.x * tiles.decay(r, d).x, whole.y * tiles.decay(r, d).y};
      return whole;
    });
    update_state<Shape>(S, tiles.K, tiles.V);
    store_output<Shape>(a.o.row(hide_from_compiler(b), h, t) + first_column, a.o.stride_l, a.L - t, columns, O, tiles.V,
                        a.scale);
  }
  if (a.final_state.data) {
    store_state<Shape>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk, columns);
  }
}

}  // namespace

void subchunk_tensor_core(const Bf16Arguments& a) {
  const Prepared prepared = prepare(a);
  select_shape(a.Dk, block_columns(extents_of(a)), [&]<class Shape>(Shape) {
    launch(subchunk_kernel<Shape>, {grid_of<Shape>(extents_of(a), 1), kThreads, kSharedBytes<Shape>}, a, prepared);
  });
}

}  // namespace tutorial::gla
