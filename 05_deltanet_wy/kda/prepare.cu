/// @file
/// The kernel that runs first in the stages on tensor cores: all of a chunk that does not depend on v or a state
/// (prepared.hpp).
///
/// Idea: three levels, each with what it does best. A warp takes a sub-chunk of 16 positions. own_scores.cuh decays its
/// rows and computes the scores of its own pairs, for P and A at once, by products at anchors. Between sub-chunks, the
/// decay from i to t is cut twice: where i's sub-chunk ends and where t's begins. The rows contain the decays outside of
/// the cuts, and the decays of the sub-chunks in between are multiplied into the keys' fragments on their way to the
/// tensor cores. A fragment so decayed serves both P and A. The blocks of A are inverted as in delta_rule
/// (chunk_inverse.cuh).
///
///     q~, k+~ of sub-chunk r      q_t, k_t decayed from the sub-chunk's start      D_r  the decay of sub-chunk r
///     k~ of sub-chunk s           k_i decayed to the sub-chunk's end
///     block (r, s), s < r         of P: q~_r (k~_s . D_(s+1) ... D_(r-1))^T;  of A: k+~_r in place of q~_r, times beta
///
///     warp                        0         1         2         3
///     rows, and pairs of them   r = 0     r = 1     r = 2     r = 3
///     row of blocks of P and A  row 3     row 2     row 1     row 0
///     row of the inverse        row 0     row 1     row 2     row 3      a row r has r + 1 blocks
///
/// All factors are products of gates, at most 1. Nothing is divided, and there is no sum of logarithms. Keys are
/// normalised at the end: f_t multiplies row t of A, K+ and K-, and column t of A and P, all in fp32.
///
/// Shapes: q, k [B, H, L, Dk] bf16, g [B, H, L, Dk] and beta [B, H, L] fp32 in; Prepared or PreparedTiles out.
/// Thread mapping: block (n, h, b) computes chunk n of head (b, h); a lane holds two columns of Dk at a time.
/// Synchronization: three barriers. Two of them stand between products that read the rows and what is written over
/// them, the third between the inverses of the diagonal's blocks and the warps that need them.
/// Resources: 58 KB of shared memory at Dk = 128, and 168 registers per thread: three blocks per multiprocessor.
/// Work: per position Dk exponentials and about 16 Dk multiplications in fp32; 64 Dk operations at anchors and 96 Dk
/// between sub-chunks on tensor cores; the inverse.
/// Bytes: q, k, g and beta are read once, k once more where it is normalised. Per position 6 Dk bytes of rows and Dk / 16
/// of decays are written, and 240 of T and P as fragments, or 384 as rows.
/// Bound by: instructions. About 5300 per warp depend on each other in many places, and twelve warps per multiprocessor
/// do not fill the gaps.
/// Requires: Dk a multiple of 16, at most 128; rows aligned to 16 bytes.
/// Weakness: Q+, K+ and K- go to memory and come back to each tile of Dv.
/// Sources: arXiv 2510.26692, section 3.1; arXiv 2312.06635, section 4.3; chapter 04's `score_levels` for the anchors.

#include <cuda_runtime.h>

#include "05_deltanet_wy/delta_rule/block_rows.cuh"
#include "05_deltanet_wy/delta_rule/chunk_inverse.cuh"
#include "05_deltanet_wy/delta_rule/fragments.cuh"
#include "05_deltanet_wy/delta_rule/prepared.hpp"
#include "05_deltanet_wy/delta_rule/tile_rows.cuh"
#include "05_deltanet_wy/kda/own_scores.cuh"
#include "05_deltanet_wy/kda/prepared.hpp"
#include "common/ceil_div.hpp"
#include "common/device/launch.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/memory.cuh"
#include "common/device/mma.cuh"
#include "common/device/pack.cuh"
#include "common/device/warp.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::kda {
namespace {

using namespace delta_rule;  // blocks and their inverse
using namespace tile;        // tiles and sub-chunks

/// A chunk in shared memory.
template <int kDk>
struct ChunkMemory {
  SwizzledTile<kDk> Q, K, K_end;  ///< q~, k+~, k~ [64, kDk]
  float* decays;                  ///< D [4, kDk]
  float *P, *A;                   ///< the scores of each sub-chunk's own pairs [64, 16], with q and with k as queries

  static constexpr int kTiles = 3 * kChunk * kDk * 2, kDecays = 4 * kSubChunks * kDk, kScores = 4 * kChunk * kSubChunk;
  static constexpr int kBytes = kTiles + kDecays + 2 * kScores;
  static_assert(InverseMemory::kBytes <= kTiles, "the inverse is computed where the rows were");

  __device__ __forceinline__ explicit ChunkMemory(unsigned char* memory)
      : Q{reinterpret_cast<__nv_bfloat16*>(memory)},
        K{Q.data + kChunk * kDk},
        K_end{K.data + kChunk * kDk},
        decays(reinterpret_cast<float*>(memory + kTiles)),
        P(decays + kSubChunks * kDk),
        A(P + kChunk * kSubChunk) {}
};

/// A lane's two columns of a sub-chunk's rows. Rows and columns that do not exist become zeros, which for g means gates
/// of 1; the last ones that exist are loaded in their place, because loads under a condition would be branches. Most
/// sub-chunks are whole, and their addresses take a third of the instructions.
/// @param is_whole whether all of its rows and columns exist
__device__ __forceinline__ void load_rows(RawRows& rows, const Bf16Arguments& a, int b, int h, int first, int d,
                                          bool is_whole) {
  const auto load = [&](int t, const __nv_bfloat16* q, const __nv_bfloat16* k, const float* g) {
    rows.q[t] = load_global(reinterpret_cast<const std::uint32_t*>(q));
    rows.k[t] = load_global(reinterpret_cast<const std::uint32_t*>(k));
    rows.g[t] = load_global(reinterpret_cast<const float2*>(g));
  };
  if (is_whole) {
    const __nv_bfloat16 *q = a.q.row(b, h, first) + d, *k = a.k.row(b, h, first) + d;
    const float* g = a.g.row(b, h, first) + d;
#pragma unroll
    for (int t = 0; t < kSubChunk; ++t) load(t, q + t * a.q.stride_l, k + t * a.k.stride_l, g + t * a.g.stride_l);
    return;
  }
  const bool has_columns = d < a.Dk;
  d = min(d, a.Dk - 2);
#pragma unroll
  for (int t = 0; t < kSubChunk; ++t) {
    const int position = min(first + t, a.L - 1);
    load(t, a.q.row(b, h, position) + d, a.k.row(b, h, position) + d, a.g.row(b, h, position) + d);
    if (has_columns && first + t < a.L) continue;
    rows.q[t] = rows.k[t] = 0;
    rows.g[t] = {0, 0};
  }
}

/// Fills the rows, decays and own scores of the warp's sub-chunk.
template <int kDk>
__device__ __forceinline__ void prepare_sub_chunk(const ChunkMemory<kDk>& to, const Bf16Arguments& a, int b, int h,
                                                  int t, int sub_chunk) {
  const int first = sub_chunk * kSubChunk;
  OwnScores scores = {};
#pragma unroll 1
  for (int slice = 0; slice < kDk; slice += kSlice) {
    const int column = slice + int(lane_index()) * 2;
    RawRows rows;
    load_rows(rows, a, b, h, t + first, column, t + first + kSubChunk <= a.L && slice + kSlice <= a.Dk);
    const float2 decay = decay_rows(rows, SubChunkRows<kDk>{to.Q, to.K, to.K_end, first, slice}, scores);
    *reinterpret_cast<float2*>(to.decays + sub_chunk * kDk + column) = decay;
  }
  store_own_scores(to.P + first * kSubChunk, to.A + first * kSubChunk, scores);
}

/// f_t = 1 / sqrt(k_t . k_t + eps) of the warp's sub-chunk, or 1.
__device__ __forceinline__ void find_factors(float* factors, const Bf16Arguments& a, int b, int h, int first) {
  const int lane = int(lane_index());
  float factor = 1;
  for (int t = 0; t < kSubChunk && a.normalize_keys; ++t) {
    float squares = 0;
    for (int d = lane * 2; d < a.Dk && first + t < a.L; d += 64) {
      const float2 k = unpack(load_global(reinterpret_cast<const std::uint32_t*>(a.k.row(b, h, first + t) + d)));
      squares += k.x * k.x + k.y * k.y;
    }
    squares = warp_sum(squares);
    if (lane == t) factor = rsqrtf(squares + kKeyEps);
  }
  if (lane < kSubChunk) factors[lane] = factor;
}

/// P, A = the blocks (r, 0) to (r, r) of the scores with q and with k as queries, before the factors. One warp computes
/// both, because they have the same keys.
template <int kDk>
__device__ __forceinline__ void decayed_products(BlockRow& P, BlockRow& A, const ChunkMemory<kDk>& from, int r) {
  const int lane = int(lane_index());
  const int query = from.Q.unit(r * kBlock + lane % 16, lane / 16 * 8);
  const int key = from.K_end.unit(lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
#pragma unroll
  for (int d = 0; d < kDk; d += 16) {
    std::uint32_t of_P[4], of_A[4];
    ldmatrix_x4(of_P, from.Q.data + from.Q.advance(query, 0, d));
    ldmatrix_x4(of_A, from.K.data + from.K.advance(query, 0, d));
    float2 between[2] = {{1, 1}, {1, 1}};  // the decays of sub-chunks c + 1 to r - 1, of the lane's columns
#pragma unroll
    for (int c = kBlocks - 2; c >= 0; --c) {
      if (c >= r) continue;
      std::uint32_t k[4];
      ldmatrix_x4(k, from.K_end.data + from.K_end.advance(key, c * kBlock, d));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (c + 1 < r) {
          const float2 decay =
              *reinterpret_cast<const float2*>(from.decays + (c + 1) * kDk + d + half * 8 + lane % 4 * 2);
          between[half] = {between[half].x * decay.x, between[half].y * decay.y};
          k[half] = scaled(k[half], between[half]);
          k[half + 2] = scaled(k[half + 2], between[half]);
        }
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        mma_m16n8k16(P[c][half], of_P, {k[2 * half], k[2 * half + 1]});
        mma_m16n8k16(A[c][half], of_A, {k[2 * half], k[2 * half + 1]});
      }
    }
  }
  const auto insert_own = [&](BlockRow& scores, const float* own) {
    for_each_element(scores, r, [&](int t, int i, float& x) {
      if (i >= r * kBlock) x = own[t * kSubChunk + i - r * kBlock];
    });
  };
  insert_own(P, from.P);
  insert_own(A, from.A);
}

/// Writes Q+, K+, K- and the decay of the chunk: the rows with the decays between their sub-chunk and the chunk's start
/// or end, rounded once more. 8 columns per thread.
/// @param factors f [64]
template <int kDk>
__device__ __forceinline__ void store_decayed_rows(const PreparedRows& out, const ChunkMemory<kDk>& from,
                                                   const float* factors, std::int64_t chunk, int Dk) {
  constexpr int kUnits = kDk / 8, kStep = kThreads / kUnits;  // rows at a time
  const int first_row = int(threadIdx.x) / kUnits, column = int(threadIdx.x) % kUnits * 8;
  if (column >= Dk) return;
  const int unit = from.Q.unit(first_row, column);
  const std::int64_t element = (chunk * kChunk + first_row) * Dk + column;
  // Row `first_row + rows`, a multiple of 8 further.
  const auto put = [&](__nv_bfloat16* to, const SwizzledTile<kDk>& tile, int rows, const float(&decay)[8], float f) {
    const uint4 x = *reinterpret_cast<const uint4*>(tile.data + tile.advance(unit, rows, 0));
    store_global(reinterpret_cast<uint4*>(to + element + rows * Dk),
                 make_uint4(scaled(x.x, {f * decay[0], f * decay[1]}), scaled(x.y, {f * decay[2], f * decay[3]}),
                            scaled(x.z, {f * decay[4], f * decay[5]}), scaled(x.w, {f * decay[6], f * decay[7]})));
  };
  float before[8] = {1, 1, 1, 1, 1, 1, 1, 1}, after[8] = {1, 1, 1, 1, 1, 1, 1, 1};
#pragma unroll
  for (int r = 0; r < kSubChunks; ++r) {  // rows of sub-chunk r from the start, and of sub-chunk s to the end
    const int s = kSubChunks - 1 - r;
#pragma unroll
    for (int i = 0; i < kSubChunk; i += kStep) {
      const int row = r * kSubChunk + i, key = s * kSubChunk + i;
      put(out.Q, from.Q, row, before, 1);
      put(out.K, from.K, row, before, factors[first_row + row]);
      put(out.K_end, from.K_end, key, after, factors[first_row + key]);
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      before[e] *= from.decays[r * kDk + column + e];
      after[e] *= from.decays[s * kDk + column + e];
    }
  }
  if (first_row > 0) return;
  auto* decays = reinterpret_cast<float4*>(out.decays + chunk * Dk + column);
  store_global(decays, make_float4(before[0], before[1], before[2], before[3]));
  store_global(decays + 1, make_float4(before[4], before[5], before[6], before[7]));
}

// How each kind of output stores the scores of a chunk, and T.
__device__ __forceinline__ void store_scores(const Prepared& out, const ForGradients& also, std::int64_t chunk,
                                             BlockRow& P, int r) {
  if (also.blocks) store_flipped_blocks(also.blocks + (chunk * 3 + 2) * kBlockUnits, P, r);
  store_blocks(out.P + chunk * kBlockUnits, P, r);
}
__device__ __forceinline__ void store_T(const Prepared& out, const ForGradients& also, std::int64_t chunk, BlockRow& T,
                                        int r) {
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    if (also.blocks) store_flipped_blocks(also.blocks + (chunk * 3 + part) * kBlockUnits, T, r);
    store_blocks(out.T + (chunk * 2 + part) * kBlockUnits, T, r);
  }
}
__device__ __forceinline__ void store_scores(const PreparedTiles& out, const ForGradients&, std::int64_t chunk,
                                             BlockRow& P, int r) {
  store_rows(out.tiles + (chunk * kPreparedRows + 2 * kChunk) * kChunk, P, r);
}
__device__ __forceinline__ void store_T(const PreparedTiles& out, const ForGradients&, std::int64_t chunk, BlockRow& T,
                                        int r) {
  for_each_element(T, r, [](int, int, float& x) { x = -x; });
  __nv_bfloat16* rows = out.tiles + chunk * kPreparedRows * kChunk;
  store_rows(rows, T, r);
  store_rows(rows + kChunk * kChunk, T, r);
}

/// Grid (N, H, B).
/// @tparam Out Prepared or PreparedTiles
template <int kDk, class Out>
__global__ void __launch_bounds__(kThreads, 3) prepare_kernel(Bf16Arguments a, Out out, ForGradients also) {
  __shared__ float beta[kChunk], factors[kChunk];
  const int b = int(blockIdx.z), h = int(blockIdx.y), n = int(blockIdx.x), t = n * kChunk, rows = a.L - t;
  const std::int64_t chunk = (std::int64_t(b) * a.H + h) * out.N + n;
  // The shuffle tells the compiler that `warp` is the same in all lanes. Branches around products depend on it.
  const int thread = int(threadIdx.x), warp = __shfl_sync(kAllLanes, thread / 32, 0);
  auto* shared = dynamic_shared<unsigned char>();
  const ChunkMemory<kDk> memory(shared);
  const InverseMemory inverse{reinterpret_cast<float*>(shared)};  // where the rows were

  // The load runs while the rows are prepared.
  const float strength = thread < min(rows, kChunk) ? load_global(a.beta.row(b, h, t + thread)) : 0.0f;
  prepare_sub_chunk(memory, a, b, h, t, warp);
  find_factors(factors + warp * kSubChunk, a, b, h, t + warp * kSubChunk);
  if (thread < kChunk) beta[thread] = thread < rows ? fmaxf(strength, also.least_beta) : 0.0f;
  __syncthreads();
  if (also.factors && thread < kChunk) store_global(also.factors + chunk * kChunk + thread, factors[thread]);

  // The warp with the most blocks here has the fewest in the inverse.
  const int r = kBlocks - 1 - warp;
  BlockRow P = {}, A = {};
  decayed_products(P, A, memory, r);
  for_each_element(P, r, [&](int t, int i, float& x) {
    x *= factors[i];
    if (i > t) x = 0;
  });
  for_each_element(A, r, [&](int t, int i, float& x) {
    x *= beta[t] * factors[t] * factors[i];
    if (i >= t) x = 0;
  });
  store_scores(out, also, chunk, P, r);
  store_decayed_rows(out, memory, factors, chunk, a.Dk);
  __syncthreads();  // no warp reads the rows any more
  for_each_element(A, r, [&](int t, int i, float& x) { *inverse.A(t, i) = x; });
  __syncwarp();  // each warp reads only its own block of the diagonal
  invert_diagonal_block(inverse, r);
  __syncthreads();
  BlockRow& X = A;
  inverse_row(X, inverse, warp);
  for_each_element(X, warp, [&](int, int i, float& x) { x *= beta[i]; });
  store_T(out, also, chunk, X, warp);
}

std::int64_t all_chunks(const Bf16Arguments& a) {
  return std::int64_t(a.B) * a.H * ceil_div(a.L, kChunk);
}

PreparedRows rows_of(const Bf16Arguments& a) {
  const std::int64_t chunks = all_chunks(a), elements = chunks * kChunk * a.Dk;
  auto* rows = workspace<__nv_bfloat16>("kda: decayed q and k", std::size_t(3 * elements));
  return {ceil_div(a.L, kChunk), rows, rows + elements, rows + 2 * elements,
          workspace<float>("kda: decays of chunks", std::size_t(chunks * a.Dk))};
}

std::int64_t rows_memory(const Bf16Arguments& a) {
  return all_chunks(a) * (3 * kChunk * 2 * std::int64_t(a.Dk) + 4 * std::int64_t(a.Dk));
}

/// One block for each chunk.
template <class Out>
Out filled(const Bf16Arguments& a, const Out& out, const ForGradients& also = {}) {
  const auto start = [&](auto kernel, int shared_bytes) {
    launch(kernel, {dim3(unsigned(out.N), unsigned(a.H), unsigned(a.B)), unsigned(kThreads), std::size_t(shared_bytes)},
           a, out, also);
  };
  if (a.Dk <= 64) {
    start(prepare_kernel<64, Out>, ChunkMemory<64>::kBytes);
  } else {
    start(prepare_kernel<128, Out>, ChunkMemory<128>::kBytes);
  }
  return out;
}

}  // namespace

Prepared prepare(const Bf16Arguments& a, const ForGradients& also) {
  const std::int64_t units = all_chunks(a) * kBlockUnits;
  auto* blocks = workspace<uint4>("kda: T and P", std::size_t(3 * units));
  return filled(a, Prepared{rows_of(a), blocks, blocks + 2 * units}, also);
}

std::int64_t prepared_memory(const Bf16Arguments& a) {
  return rows_memory(a) + all_chunks(a) * 3 * kBlockUnits * std::int64_t(sizeof(uint4));
}

PreparedTiles prepare_tiles(const Bf16Arguments& a) {
  auto* tiles = workspace<__nv_bfloat16>("kda: tiles of T and P", std::size_t(all_chunks(a)) * kPreparedRows * kChunk);
  return filled(a, PreparedTiles{rows_of(a), tiles});
}

std::int64_t prepared_tiles_memory(const Bf16Arguments& a) {
  return rows_memory(a) + all_chunks(a) * kPreparedRows * kChunk * 2;
}

}  // namespace tutorial::kda
