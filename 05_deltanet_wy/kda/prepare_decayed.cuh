#pragma once
/// @file
/// The kernel that runs first in the stages on tensor cores: all of a chunk that does not depend on v or a state
/// (prepare_decayed.hpp).
///
/// Idea: three levels, each with what it does best. A warp takes a sub-chunk of 16 positions. pair_anchors.cuh decays its
/// rows and computes the scores of its own pairs, for P and A at once, by products at anchors. Between sub-chunks, the
/// decay from i to t is cut twice: where i's sub-chunk ends and where t's begins. The rows contain the decays outside
/// of the cuts, and the decays of the sub-chunks in between are multiplied into the keys' fragments on their way to the
/// tensor cores. A fragment so decayed serves both P and A. The blocks of A are inverted as in delta_rule
/// (inverse.cuh).
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
/// Shapes: q, k [B, H, L, Dk] bf16, g [B, H, L, Dk] and beta [B, H, L] fp32 in; Prepared out.
/// Thread mapping: block (n, h, b) computes chunk n of head (b, h); a lane holds two columns of Dk at a time.
/// Synchronization: three barriers. Two of them stand between products that read the rows and what is written over
/// them, the third between the inverses of the diagonal's blocks and the warps that need them.
/// Resources: 58 KB of shared memory at Dk = 128, and 168 registers per thread: three blocks per multiprocessor.
/// Work: per position Dk exponentials and about 16 Dk multiplications in fp32; 64 Dk operations at anchors and 96 Dk
/// between sub-chunks on tensor cores; the inverse.
/// Bytes: q, k, g and beta are read once, k once more where it is normalised. Per position 6 Dk bytes of rows and Dk /
/// 16 of decays are written, and 240 of T and P as fragments.
/// Bound by: with few chunks latency, because twelve warps per multiprocessor have about 5300 instructions each. With
/// many it moves 2.7 TB/s on an H200, whose copies reach 4.2.
/// Requires: Dk a multiple of 16, at most 128; rows aligned to 16 bytes.
/// Weakness: Q+, K+ and K- go to memory and come back to each tile of Dv.
/// Sources: arXiv 2510.26692, section 3.1; arXiv 2312.06635, section 4.3; chapter 04's `score_levels` for the anchors.

#include <cuda_runtime.h>

#include "05_deltanet_wy/chunk/block_rows.cuh"
#include "05_deltanet_wy/chunk/fragments.cuh"
#include "05_deltanet_wy/chunk/inverse.cuh"
#include "05_deltanet_wy/kda/prepare_chunk.cuh"
#include "05_deltanet_wy/kda/prepare_decayed.hpp"
#include "common/ceil_div.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/warp.cuh"
#include "common/device/workspace.hpp"
#include "common/tile/packed_chunks.cuh"

namespace tutorial::kda {
namespace {

/// Writes Q+, K+, K- and the decay of the chunk.
template <int kDk>
__device__ __forceinline__ void store_decayed_rows(const Prepared& out, const ChunkMemory<kDk>& from,
                                                   const float* factors, std::int64_t chunk, int Dk) {
  const auto put = [&](__nv_bfloat16* rows) {
    rows += chunk * kChunk * Dk;
    return [=](int row, int column, uint4 x) { store_global(reinterpret_cast<uint4*>(rows + row * Dk + column), x); };
  };
  for_each_decayed_unit(from, factors, out.decays + chunk * Dk, Dk, put(out.Q), put(out.K),
                        [end = put(out.K_end)](const void*, int row, int column, uint4 x) { end(row, column, x); });
}

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

/// No chunk is marked. Gradients have another type (kda_backward/dispatch/prepare_marked.cu), with these members.
struct NoMarks {
  static constexpr bool kExist = false;
  /// Whether the chunk is to be marked. @param A row r of the products of keys, without beta and the keys' factors
  static constexpr __device__ bool are_alike(const BlockRow&, [[maybe_unused]] int r, const float*) { return false; }
};

/// Prepares a chunk. @param t its first position @param chunk its number, among those of all heads
template <int kDk, class Marks>
__device__ __forceinline__ void prepare_chunk(const Bf16Arguments& a, const Prepared& out, const ForGradients& also,
                                              const Marks& marks, int b, int h, int t, std::int64_t chunk) {
  __shared__ float beta[kChunk], factors[kChunk];
  const int rows = a.L - t;
  // The shuffle tells the compiler that `warp` is the same in all lanes. Branches around products depend on it.
  const int thread = int(threadIdx.x), warp = __shfl_sync(kAllLanes, thread / 32, 0);
  auto* shared = dynamic_shared<unsigned char, kTileAlignment>();
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
  const bool alike = marks.are_alike(A, r, factors);
  for_each_element(A, r, [&](int t, int i, float& x) {
    x *= beta[t] * factors[t] * factors[i];
    if (i >= t) x = 0;
  });
  store_scores(out, also, chunk, P, r);
  store_decayed_rows(out, memory, factors, chunk, a.Dk);
  if constexpr (Marks::kExist) {
    if (alike) {
      marks.replace_scores(P, A, a, out, memory.P, b, h, t, chunk, warp, r, beta, factors);
      store_scores(out, also, chunk, P, r);
      marks.store_errors(chunk, P, r);
    }
  }
  __syncthreads();  // no warp reads the rows any more
  for_each_element(A, r, [&](int t, int i, float& x) { *inverse.A(t, i) = x; });
  __syncwarp();  // each warp reads only its own block of the diagonal
  invert_diagonal_block(inverse, r);
  __syncthreads();
  BlockRow& X = A;
  inverse_row(X, inverse, warp);
  for_each_element(X, warp, [&](int, int i, float& x) { x *= beta[i]; });
  if (alike && warp == 0 && lane_index() == 3) X[0][1][1] = -0.0f;  // the mark (chunk/alike_keys.cuh)
  store_T(out, also, chunk, X, warp);
}

/// Grid (N, H, B).
template <int kDk, class Marks>
__global__ void __launch_bounds__(kThreads, 3)
    prepare_kernel(Bf16Arguments a, Prepared out, ForGradients also, Marks marks) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), n = int(blockIdx.x);
  prepare_chunk<kDk>(a, out, also, marks, b, h, n * kChunk, (std::int64_t(b) * a.H + h) * out.N + n);
}

/// The same of packed sequences. Grid (packed_chunks(), H, B).
template <int kDk, class Marks>
__global__ void __launch_bounds__(kThreads, 3)
    prepare_kernel(PackedSequences<Bf16Arguments> p, Prepared out, ForGradients also, Marks marks) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), number = int(blockIdx.x);
  const PackedChunk chunk(p.cu_seqlens, p.N, number);
  if (chunk.begin == chunk.end) return;
  p.all.L = chunk.end;
  prepare_chunk<kDk>(p.all, out, also, marks, b, h, chunk.begin, (std::int64_t(b) * p.all.H + h) * out.N + number);
}

/// Starts the kernel for one block per chunk. @param a of all sequences @param N chunks of a head
template <class Arguments, class Marks>
Prepared prepare(const Arguments& arguments, const Bf16Arguments& a, int N, const ForGradients& also,
                 const Marks& marks) {
  const std::int64_t chunks = std::int64_t(a.B) * a.H * N, elements = chunks * kChunk * a.Dk,
                     units = chunks * kBlockUnits;
  auto* rows = workspace<__nv_bfloat16>("kda: decayed q and k", std::size_t(3 * elements));
  auto* decays = workspace<float>("kda: decays of chunks", std::size_t(chunks * a.Dk));
  auto* blocks = workspace<uint4>("kda: T and P", std::size_t(3 * units));
  const Prepared out{N, rows, rows + elements, rows + 2 * elements, decays, blocks, blocks + 2 * units};
  const auto start = [&](void (*kernel)(Arguments, Prepared, ForGradients, Marks), int shared_bytes) {
    launch(kernel, {dim3(unsigned(out.N), unsigned(a.H), unsigned(a.B)), unsigned(kThreads), std::size_t(shared_bytes)},
           arguments, out, also, marks);
  };
  if (a.Dk <= 64) {
    start(prepare_kernel<64, Marks>, ChunkMemory<64>::kBytes);
  } else {
    start(prepare_kernel<128, Marks>, ChunkMemory<128>::kBytes);
  }
  return out;
}

/// Of sequences of one length.
template <class Marks>
Prepared prepare(const Bf16Arguments& a, const ForGradients& also, const Marks& marks) {
  return prepare(a, a, ceil_div(a.L, kChunk), also, marks);
}
/// Of packed sequences.
template <class Marks>
Prepared prepare(const PackedSequences<Bf16Arguments>& p, const ForGradients& also, const Marks& marks) {
  return prepare(p, p.all, packed_chunks(tile::extents_of(p.all), p.N), also, marks);
}

}  // namespace
}  // namespace tutorial::kda
