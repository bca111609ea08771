/// @file
/// Stage 7, `subchunk_tensor_core`: two levels on tensor cores.
///
/// Idea: stage 4's second level. A decay from key i to query t may be cut anywhere between the two, and what a
/// sub-chunk of 16 queries shares is the place where it begins: before its first row r. From there on it is the
/// query's factor, up to there the key's; both are products of gates, at most 1, and with them inside q and k the
/// scores of 16 queries and 16 keys are one product of bf16 matrices. Only a sub-chunk's scores with itself have no
/// such place. prepare() has computed those, in fp32 and once for all tiles of Dv, and left q decayed from the start
/// of its sub-chunk, k decayed to the end of its own. Here they get the decays of the sub-chunks in between.
/// Mends: stage 6 has an exponential for each term of each score, and computes the scores in each tile of Dv again.
/// Same: the equations, chunks of 64. A walk with the state in registers, as chapter 02's `pipelined`, in place of
/// states in memory.
///
///   q~_t, k~_i    q_t decayed from the start of its sub-chunk, k_i to the end of its own: both by prepare()
///   D_r           the decay of sub-chunk r, [Dk]
///
///   P in sub-chunks, r = query's, s = key's:                e   by prepare(): fp32, pair by pair
///        s = 0  1  2  3                                     #   here: bf16, mma
///     r = 0  e                                                  P_rs = q~_r (k~_s . D_(s+1) ... D_(r-1))^T
///         1  #  e
///         2  #  #  e
///         3  #  #  #  e
///
///   O_r = scale ((q~_r . D_0 ... D_(r-1)) S + sum over s <= r of P_rs V_s)
///   S   = diag(D_0 D_1 D_2 D_3) S + sum over s of (k~_s . D_(s+1) ... D_3)^T V_s       for each chunk
///
/// Shapes: q, k, v, o bf16 and g, states fp32, as in gla.hpp; Prepared. A product with decays is rounded to bf16 once
/// more.
/// Who does what: block (tile, h, b) walks the chunks of head (b, h) with a tile of 128 or 64 columns of Dv; its 4
/// warps share the columns. First the #, in 12 halves, three a warp. When all are done with q~ and k~, the block decays
/// them over the whole chunk, in place, and what is left is chapter 02's.
/// Resources: 107 KB of shared memory at Dk = Dv = 128: two blocks a multiprocessor.
/// Operations: chapter 02's products without the e, and for the decays 3 Dk multiplications a position: half of them
/// for the # and half over the whole chunk.
/// Bytes: of prepare() those it says; here its q~, k~, decays and scores, v once, o once.
/// Limit: with few heads, the time that a block needs for one chunk after the other. Needs: Dk, Dv multiples of 16, Dk
/// at most 256, rows aligned to 16 bytes.
/// Weakness: all of q~ and k~ is taken apart, multiplied and rounded again on its way to the tensor cores, and that
/// costs a third barrier. And B H ceil(Dv / 64) blocks where heads are few, however long the sequence is.
/// Source: arXiv 2312.06635, section 4.3, "secondary-level chunking"; chapter 02's `pipelined`.

#include <cuda_runtime.h>

#include "02_chunkwise/chunk_products.cuh"
#include "02_chunkwise/with_shape.cuh"
#include "03_gla/gla/prepared.hpp"
#include "03_gla/gla/prepared_tiles.cuh"
#include "03_gla/gla/spread.hpp"
#include "common/device/launch.cuh"

namespace tutorial::gla {
namespace {

using namespace linear_attention;  // tiles and products

/// Two bf16 numbers, each times a factor.
__device__ __forceinline__ std::uint32_t times(std::uint32_t two, float2 factors) {
  const float2 x = unpack(two);
  return pack(factors.x * x.x, factors.y * x.y);
}

/// The scores between different sub-chunks: six tiles of 16 x 16, in halves of 8 keys, each [16, 8] for itself.
constexpr int kPairs = kSubChunks * (kSubChunks - 1) / 2;
__device__ __forceinline__ int pair_of(int r, int s) {
  return r * (r - 1) / 2 + s;
}

/// P_rs = q~_r (k~_s . the decays of the sub-chunks between)^T for s < r, three halves a warp.
template <class Shape>
__device__ __forceinline__ void compute_scores_between(__nv_bfloat16* scores, const Tiles<Shape>& tiles) {
  constexpr int kMine = 2 * kPairs / kWarps;
  const int lane = fresh_lane(), warp = warp_index();
  const int q_unit = tiles.Q.unit(lane % 16, lane / 16 * 8), k_unit = tiles.K.unit(lane % 8, lane / 8 % 2 * 8);
  int r[kMine], s[kMine];
  float P[kMine][4] = {};
#pragma unroll
  for (int i = 0; i < kMine; ++i) {
    const int pair = (warp + i * kWarps) / 2;
    r[i] = 1 + (pair >= 1) + (pair >= 3);
    s[i] = pair - pair_of(r[i], 0);
  }
#pragma unroll
  for (int d = 0; d < Shape::kDk; d += 16) {
    float4 decay[3];  // of the sub-chunks 1 and 2, those that can lie between, at d, d + 1, d + 8, d + 9 of the lane
#pragma unroll
    for (int between = 1; between <= 2; ++between) {
      const float* decays = tiles.decays + between * Shape::kDk + d + lane % 4 * 2;
      const float2 low = *reinterpret_cast<const float2*>(decays), high = *reinterpret_cast<const float2*>(decays + 8);
      decay[between] = make_float4(low.x, low.y, high.x, high.y);
    }
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      std::uint32_t q[4], k[2];
      ldmatrix_x4(q, tiles.Q.data + tiles.Q.moved(q_unit, 0, d) + r[i] * kSubChunk * Shape::kDk);
      ldmatrix_x2(k, tiles.K.data + tiles.K.moved(k_unit, 0, d) + (s[i] * kSubChunk + warp % 2 * 8) * Shape::kDk);
      float4 factor = make_float4(1, 1, 1, 1);
#pragma unroll
      for (int between = 1; between <= 2; ++between) {
        const bool counts = s[i] < between && between < r[i];
        factor.x *= counts ? decay[between].x : 1.0f;
        factor.y *= counts ? decay[between].y : 1.0f;
        factor.z *= counts ? decay[between].z : 1.0f;
        factor.w *= counts ? decay[between].w : 1.0f;
      }
      mma_m16n8k16(P[i], q, {times(k[0], {factor.x, factor.y}), times(k[1], {factor.z, factor.w})});
    }
  }
#pragma unroll
  for (int i = 0; i < kMine; ++i) {
    __nv_bfloat16* half = scores + (warp + i * kWarps) * kSubChunk * 8 + lane / 4 * 8 + lane % 4 * 2;
    *reinterpret_cast<std::uint32_t*>(half) = pack(P[i][0], P[i][1]);
    *reinterpret_cast<std::uint32_t*>(half + 8 * 8) = pack(P[i][2], P[i][3]);
  }
}

/// Row r of a sub-chunk times a factor for each of 8 columns.
template <class Tile>
__device__ __forceinline__ void decay_unit(const Tile& tile, int row, int column, const float (&factors)[8]) {
  auto& unit = *reinterpret_cast<uint4*>(tile.data + tile.unit(row, column));
  unit = make_uint4(times(unit.x, {factors[0], factors[1]}), times(unit.y, {factors[2], factors[3]}),
                    times(unit.z, {factors[4], factors[5]}), times(unit.w, {factors[6], factors[7]}));
}

/// q~ becomes q decayed from the chunk's start, k~ k decayed to the chunk's end: in place, 8 columns a thread.
template <class Shape>
__device__ __forceinline__ void decay_over_chunk(const Tiles<Shape>& tiles) {
  constexpr int kUnits = Shape::kDk / 8, kStep = kThreads / kUnits;  // rows at a time
  const int thread = opaque(int(threadIdx.x)), first_row = thread / kUnits, column = thread % kUnits * 8;
  float before[8], after[8];
#pragma unroll
  for (int e = 0; e < 8; ++e) before[e] = after[e] = 1;
#pragma unroll 1
  for (int r = 1; r < kSubChunks; ++r) {  // queries of sub-chunk r, and keys of sub-chunk s
    const int s = kSubChunks - 1 - r;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      before[e] *= tiles.decays[(r - 1) * Shape::kDk + column + e];
      after[e] *= tiles.decays[(s + 1) * Shape::kDk + column + e];
    }
    for (int row = first_row; row < kSubChunk; row += kStep) {
      decay_unit(tiles.Q, r * kSubChunk + row, column, before);
      decay_unit(tiles.K, s * kSubChunk + row, column, after);
    }
  }
}

/// O += P V, the warp's columns.
template <class Shape>
__device__ __forceinline__ void add_from_all_scores(typename Shape::Output& O, const __nv_bfloat16* scores_between,
                                                    const Tiles<Shape>& tiles) {
  const int lane = fresh_lane(), first_column = warp_index() * Shape::kWarpColumns;
  const int v_unit = tiles.V.unit(lane % 16, first_column + lane / 16 * 8);
#pragma unroll
  for (int s = 0; s < kSubChunks; ++s) {
    std::uint32_t v[Shape::kWarpColumns / 16][4];
#pragma unroll
    for (int j = 0; j < Shape::kWarpColumns / 16; ++j) {
      ldmatrix_x4_trans(v[j], tiles.V.data + tiles.V.moved(v_unit, s * kSubChunk, j * 16));
    }
#pragma unroll
    for (int r = s; r < kSubChunks; ++r) {
      std::uint32_t p[4];
      if (r == s) {
        tiles.load_own_scores(p, r);
      } else {
        ldmatrix_x4(p, scores_between + (pair_of(r, s) * 2 * kSubChunk + lane) * 8);
      }
#pragma unroll
      for (int j = 0; j < Shape::kWarpColumns / 16; ++j) {
        mma_m16n8k16(O[r][2 * j], p, {v[j][0], v[j][1]});
        mma_m16n8k16(O[r][2 * j + 1], p, {v[j][2], v[j][3]});
      }
    }
  }
}

/// S = diag(the chunk's decay) S, the warp's columns; in the registers it is the transpose.
template <class Shape>
__device__ __forceinline__ void decay_state(typename Shape::State& S, const float* decays) {
  decays += fresh_lane() % 4 * 2;
#pragma unroll
  for (int d = 0; d < Shape::kDk / 8; ++d) {
    float2 whole{1, 1};
#pragma unroll
    for (int r = 0; r < kSubChunks; ++r) {
      const float2 decay = *reinterpret_cast<const float2*>(decays + r * Shape::kDk + d * 8);
      whole = {whole.x * decay.x, whole.y * decay.y};
    }
#pragma unroll
    for (int j = 0; j < Shape::kWarpColumns / 16; ++j) {
      S[j][d][0] *= whole.x;
      S[j][d][1] *= whole.y;
      S[j][d][2] *= whole.x;
      S[j][d][3] *= whole.y;
    }
  }
}

constexpr int kStages = 2;  // sets of tiles

template <class Shape>
constexpr std::size_t kSharedBytes = kStages* Tiles<Shape>::kBytes + 2 * kPairs* kSubChunk* kSubChunk;

/// Grid (tiles of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1)
    subchunk_kernel(HalfArguments a, Prepared prepared) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), first_column = int(blockIdx.x) * Shape::kDv;
  const int columns = min(Shape::kDv, a.Dv - first_column);
  auto* memory = dynamic_shared<unsigned char>();
  const auto tiles_of = [&](int t) { return Tiles<Shape>(memory + t / kChunk % kStages * Tiles<Shape>::kBytes); };
  auto* scores = reinterpret_cast<__nv_bfloat16*>(memory + kStages * Tiles<Shape>::kBytes);

  const auto load = [&](int t) {
    const Tiles<Shape> tiles = tiles_of(t);
    tiles.load_for_states(a, prepared, opaque(b), h, t / kChunk, first_column, columns);
    tiles.load_for_outputs(a, prepared, opaque(b), h, t / kChunk);
    cp_async_commit();
  };
  load(0);
  typename Shape::State S;
  load_state<Shape>(S, a.initial_state.data ? a.initial_state.row(b, h, 0) + first_column : nullptr,
                    a.initial_state.stride_l, a.Dk, columns);

  for (int t = 0; t < a.L; t += kChunk) {
    cp_async_wait<0>();
    __syncthreads();
    if (t + kChunk < a.L) load(t + kChunk);
    const Tiles<Shape> tiles = tiles_of(t);
    compute_scores_between<Shape>(scores, tiles);
    __syncthreads();
    decay_over_chunk<Shape>(tiles);
    __syncthreads();
    typename Shape::Output O = {};
    add_from_state<Shape>(O, tiles.Q, S);
    add_from_all_scores<Shape>(O, scores, tiles);
    decay_state<Shape>(S, tiles.decays);
    update_state<Shape>(S, tiles.K, tiles.V);
    store_output<Shape>(a.o.row(opaque(b), h, t) + first_column, a.o.stride_l, a.L - t, columns, O, tiles.V,
                        [&](int) { return a.scale; });
  }
  if (a.final_state.data) {
    store_state<Shape>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk, columns);
  }
}

}  // namespace

void subchunk_tensor_core(const HalfArguments& a) {
  const Prepared prepared = prepare(a);
  with_shape(a.Dk, block_columns(without_gates(a)), [&]<class Shape>(Shape) {
    const unsigned tiles = (unsigned(a.Dv) - 1) / Shape::kDv + 1;
    launch(subchunk_kernel<Shape>, {dim3(tiles, unsigned(a.H), unsigned(a.B)), kThreads, kSharedBytes<Shape>}, a,
           prepared);
  });
}

std::string subchunk_tensor_core_limits(const HalfArguments& a) {
  return subchunk_limits(a);
}

std::int64_t subchunk_tensor_core_memory(const HalfArguments& a) {
  return prepared_memory(a);
}

}  // namespace tutorial::gla
