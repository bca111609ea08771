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
/// Shapes: q, k, v, o bf16 and g, states fp32, as in gla.hpp; Prepared. P and what multiplies q~ and k~ in shared
/// memory, the latter in fp32, [5, Dk] and [4, Dk]; a product with them is rounded to bf16 once more.
/// Who does what: block (tile, h, b) walks the chunks of head (b, h) with a tile of 128 or 64 columns of Dv; its 4
/// warps share the columns. The six # are computed in 12 halves, three a warp.
/// Resources: 254 registers, 112 KB of shared memory at Dk = Dv = 128: two blocks a multiprocessor.
/// Operations: chapter 02's products without the e, 2 Dk multiplications a position for the decays.
/// Bytes: of prepare() those it says; here its q~, k~, decays and scores, v once, o once.
/// Limit: with few heads, the time that a block needs for one chunk after the other. Needs: Dk, Dv multiples of 16,
/// Dk at most 256, rows aligned to 16 bytes.
/// Weakness: every fragment of q~ and k~ is taken apart, multiplied and rounded on its way to the tensor core, by all
/// four warps; P needs a second barrier. And B H ceil(Dv / 128) blocks, however long the sequence is.
/// Source: arXiv 2312.06635, section 4.3, "secondary-level chunking"; chapter 02's `pipelined`.

#include <cuda_runtime.h>

#include "02_chunkwise/chunk_products.cuh"
#include "02_chunkwise/with_shape.cuh"
#include "03_gla/gla/prepared.hpp"
#include "03_gla/gla/prepared_tiles.cuh"
#include "03_gla/gla/spread.hpp"
#include "common/device/device.hpp"
#include "common/device/launch.cuh"

namespace tutorial::gla {
namespace {

using namespace linear_attention;  // tiles and products

/// Decays over whole sub-chunks of a chunk, in shared memory. Row r, element d at [r * kDk + d].
template <class Shape>
struct Decays {
  float* from_start;  ///< [5, kDk]: over the sub-chunks before r; r = 4: over the whole chunk
  float* to_end;      ///< [4, kDk]: over those after r

  static constexpr int kElements = (2 * kSubChunks + 1) * Shape::kDk;

  __device__ __forceinline__ explicit Decays(float* memory)
      : from_start(memory), to_end(memory + (kSubChunks + 1) * Shape::kDk) {}

  /// By all threads, an element each.
  __device__ __forceinline__ void compute(const float* decays) const {
    for (int d = opaque(int(threadIdx.x)); d < Shape::kDk; d += kThreads) {
      float before = 1, after = 1;
#pragma unroll
      for (int r = 0; r < kSubChunks; ++r) {
        from_start[r * Shape::kDk + d] = before;
        to_end[(kSubChunks - 1 - r) * Shape::kDk + d] = after;
        before *= decays[r * Shape::kDk + d];
        after *= decays[(kSubChunks - 1 - r) * Shape::kDk + d];
      }
      from_start[kSubChunks * Shape::kDk + d] = before;
    }
  }
};

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

/// P[r, s] = Q_r (K_s . the decays of the sub-chunks between)^T for s < r, three halves a warp.
template <class Shape>
__device__ __forceinline__ void compute_scores_between(__nv_bfloat16* scores, const Tiles<Shape>& tiles) {
  const int lane = fresh_lane(), p = lane % 4 * 2;
#pragma unroll 1
  for (int i = warp_index(); i < 2 * kPairs; i += kWarps) {
    const int pair = i / 2, half = i % 2, r = 1 + (pair >= 1) + (pair >= 3), s = pair - pair_of(r, 0);
    const int q_unit = tiles.Q.unit(lane % 16, lane / 16 * 8);
    const int k_unit = tiles.K.unit(half * 8 + lane % 8, lane / 8 % 2 * 8);
    float P[4] = {};
#pragma unroll
    for (int d = 0; d < Shape::kDk; d += 16) {
      std::uint32_t q[4], k[2];
      ldmatrix_x4(q, tiles.Q.data + tiles.Q.moved(q_unit, 0, d) + r * kSubChunk * Shape::kDk);
      ldmatrix_x2(k, tiles.K.data + tiles.K.moved(k_unit, 0, d) + s * kSubChunk * Shape::kDk);
      for (int between = s + 1; between < r; ++between) {
        const float* decays = tiles.decays + between * Shape::kDk + d + p;
        k[0] = times(k[0], *reinterpret_cast<const float2*>(decays));
        k[1] = times(k[1], *reinterpret_cast<const float2*>(decays + 8));
      }
      mma_m16n8k16(P, q, k);
    }
    __nv_bfloat16* tile = scores + (i * kSubChunk + lane / 4) * 8 + p;
    *reinterpret_cast<std::uint32_t*>(tile) = pack(P[0], P[1]);
    *reinterpret_cast<std::uint32_t*>(tile + 8 * 8) = pack(P[2], P[3]);
  }
}

/// O += (Q . decays from the chunk's start) S, the warp's columns.
template <class Shape>
__device__ __forceinline__ void add_from_decayed_state(typename Shape::Output& O, const typename Shape::KeyTile& Q,
                                                       const Decays<Shape>& decays, const typename Shape::State& S) {
  const int lane = fresh_lane();
  const int q_unit = Q.unit(lane % 16, lane / 16 * 8);
#pragma unroll
  for (int d = 0; d < Shape::kDk / 16; ++d) {
    std::uint32_t s[Shape::kWarpColumns / 8][2];
#pragma unroll
    for (int j = 0; j < Shape::kWarpColumns / 8; ++j) {
      const auto& tiles = S[j / 2];
      s[j][0] = pack(tiles[2 * d][j % 2 * 2], tiles[2 * d][j % 2 * 2 + 1]);
      s[j][1] = pack(tiles[2 * d + 1][j % 2 * 2], tiles[2 * d + 1][j % 2 * 2 + 1]);
    }
#pragma unroll
    for (int r = 0; r < kSubChunks; ++r) {
      std::uint32_t q[4];
      ldmatrix_x4(q, Q.data + Q.moved(q_unit, r * kSubChunk, d * 16));
      const float* factors = decays.from_start + r * Shape::kDk + d * 16 + lane % 4 * 2;
      const float2 low = *reinterpret_cast<const float2*>(factors),
                   high = *reinterpret_cast<const float2*>(factors + 8);
      if (r > 0) {
        q[0] = times(q[0], low);
        q[1] = times(q[1], low);
        q[2] = times(q[2], high);
        q[3] = times(q[3], high);
      }
#pragma unroll
      for (int j = 0; j < Shape::kWarpColumns / 8; ++j) mma_m16n8k16(O[r][j], q, s[j]);
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

/// S = diag(the chunk's decay) S + (K . decays to the chunk's end)^T V, the warp's columns; in the registers it is the
/// transpose.
template <class Shape>
__device__ __forceinline__ void update_decayed_state(typename Shape::State& S, const Tiles<Shape>& tiles,
                                                     const Decays<Shape>& decays) {
  const int lane = fresh_lane(), first_column = warp_index() * Shape::kWarpColumns;
  const float* whole = decays.from_start + kSubChunks * Shape::kDk + lane % 4 * 2;
#pragma unroll
  for (int d = 0; d < Shape::kDk / 8; ++d) {
    const float2 factor = *reinterpret_cast<const float2*>(whole + d * 8);
#pragma unroll
    for (int j = 0; j < Shape::kWarpColumns / 16; ++j) {
      S[j][d][0] *= factor.x;
      S[j][d][1] *= factor.y;
      S[j][d][2] *= factor.x;
      S[j][d][3] *= factor.y;
    }
  }
  const int k_unit = tiles.K.unit(lane % 16, lane / 16 * 8);
  const int v_unit = tiles.V.unit(lane / 16 * 8 + lane % 8, first_column + lane / 8 % 2 * 8);
#pragma unroll
  for (int s = 0; s < kSubChunks; ++s) {
    std::uint32_t v[Shape::kWarpColumns / 16][4];
#pragma unroll
    for (int j = 0; j < Shape::kWarpColumns / 16; ++j) {
      ldmatrix_x4_trans(v[j], tiles.V.data + tiles.V.moved(v_unit, s * kSubChunk, j * 16));
    }
#pragma unroll
    for (int d = 0; d < Shape::kDk / 16; ++d) {
      std::uint32_t k[4];
      ldmatrix_x4_trans(k, tiles.K.data + tiles.K.moved(k_unit, s * kSubChunk, d * 16));
      if (s + 1 < kSubChunks) {
        const float* factors = decays.to_end + s * Shape::kDk + d * 16 + lane / 4;
        const float low = factors[0], high = factors[8];
        k[0] = times(k[0], {low, low});
        k[1] = times(k[1], {low, low});
        k[2] = times(k[2], {high, high});
        k[3] = times(k[3], {high, high});
      }
#pragma unroll
      for (int j = 0; j < Shape::kWarpColumns / 16; ++j) {
        mma_m16n8k16(S[j][2 * d], v[j], {k[0], k[1]});
        mma_m16n8k16(S[j][2 * d + 1], v[j], {k[2], k[3]});
      }
    }
  }
}

constexpr int kStages = 2;  // sets of tiles

template <class Shape>
constexpr std::size_t kSharedBytes =
    kStages* Tiles<Shape>::kBytes + 4 * Decays<Shape>::kElements + 2 * kPairs* kSubChunk* kSubChunk;

/// Grid (tiles of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1)
    subchunk_kernel(HalfArguments a, Prepared prepared) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), first_column = int(blockIdx.x) * Shape::kDv;
  const int columns = min(Shape::kDv, a.Dv - first_column);
  auto* memory = dynamic_shared<unsigned char>();
  const auto tiles_of = [&](int t) { return Tiles<Shape>(memory + t / kChunk % kStages * Tiles<Shape>::kBytes); };
  const Decays<Shape> decays(reinterpret_cast<float*>(memory + kStages * Tiles<Shape>::kBytes));
  auto* scores = reinterpret_cast<__nv_bfloat16*>(decays.from_start + Decays<Shape>::kElements);

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
    decays.compute(tiles.decays);
    compute_scores_between<Shape>(scores, tiles);
    __syncthreads();
    typename Shape::Output O = {};
    add_from_decayed_state<Shape>(O, tiles.Q, decays, S);
    add_from_all_scores<Shape>(O, scores, tiles);
    update_decayed_state<Shape>(S, tiles, decays);
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
  if (const std::string limits = subchunk_limits(a); !limits.empty()) return limits;
  if (a.Dk > 128 && shared_memory_per_block() < int(kSharedBytes<ChunkShape<256, 64>>)) {
    return "Dk > 128: two sets of tiles do not fit into a block's shared memory on this GPU";
  }
  return "";
}

std::int64_t subchunk_tensor_core_memory(const HalfArguments& a) {
  return prepared_memory(a);
}

}  // namespace tutorial::gla
