/// @file
/// `tensor_core`: `both_ends` of `delta_rule` with a gate per row, and what is left within sub-chunks in fp32.
///
/// Idea: prepare() of the operator leaves rows that contain their decays, so both walks are those of `both_ends`: K- and
/// K+ where forwards K+ and K- were. The last kernel is new. In dq and dk the decays belong to the columns of the
/// result, so they are multiplied into sums. From a sub-chunk to the next one, sums are multiplied by the decay of the
/// sub-chunk between them (Horner's rule). So one product of a block of Y or Z with decayed rows is all that a pair of
/// sub-chunks takes, and the products with S and dS go the same way:
///
///     rows of sub-chunk r:   dO S^T  -> . D_0 + Y_r0 k~_0 -> . D_1 + Y_r1 k~_1 -> ... -> . e
///     keys of sub-chunk s:   v_new dS^T -> . D_3 -> ... -> . D_(s+1) -> . f;   Y_3s^T q~_3 + Z_3s^T k+~_3 -> . D_2 ...
///
/// The sums go through shared memory to two warps per sub-chunk with a column per lane. They multiply them by e and f
/// and add the 120 pairs of its 16 positions, whose decays are products of gates, in fp32.
///
/// There they also have all terms of dg, one per column. The gate of position p multiplies what is read from S at p or
/// behind it, what is written before p and read in later chunks, pairs of positions with p between them,
/// and the row of the state on its way through the chunk:
///
///     dg_p = exp(b_e) . rows(S . dS) + sum_{t >= p} read_t + sum_{i < p} write_i + sum_{i < p <= t} pair_ti
///
/// Each term contains the gate. The sums over pairs are differences of the sums for dq and those for dk, which have the
/// same rounded Y and Z as factors. The pairs (t, t) are left out and added to dq and dk afterwards. Where sums
/// cancel, only errors of the products between sub-chunks remain, and these contain gates.
/// Improves on: `chunkwise` computes the chunks of a head one after the other, on the CPU.
/// Unchanged: two walks in one launch, then all chunks at once; T in two bf16; beta of at least 2^-32. In chunks that are
/// marked (chunk/alike_keys.cuh) v_new, X, dV and dS are two bf16, too, where the walks multiply them, and K-, P and Y.
/// Equation: S' = dS / scale in the walk from the end; Q+, K+, K-, T and P are those of prepared.hpp, q~, k+~ and k~
/// rows decayed within their sub-chunk; e and f the decays from the start and to the end of a position's sub-chunk
///
///     v_new = T (V - K+ S),  S = diag(exp(b_end)) S + K-^T v_new
///     X = P^T dO + K- S',  dV' = T^T X,  S' = diag(exp(b_end)) S' + Q+^T dO - K+^T dV'
///     Y = scale tril(dO v_new^T),  Z = -tril(dV v_new^T, -1),  dbeta_t = (dV v_new^T)_tt / beta_t^2
///
/// Shapes: q, k, dq, dk [B, H, L, Dk], v, do, dv [B, H, L, Dv] bf16; g, dg [B, H, L, Dk], beta, dbeta [B, H, L] and the
/// user's states fp32; v_new, S and dS as in `both_ends`.
/// Thread mapping: the walks as in `both_ends`. In gradients_kernel block (chunk and tile of 64 columns of Dk, h, b) has
/// eight warps. In products a warp has 16 columns, of the sums for queries and reads or of those for writes. Around them
/// it has a sub-chunk and 32 columns, one per lane.
/// Synchronization: one barrier per chunk in the walks; six in gradients_kernel. In marked chunks two and three more.
/// Resources: at Dk = Dv = 128 the two kernels have 150 and 108 KB of shared memory.
/// Work: that of prepare(), and per position 16 Dk Dv + 240 Dk + 160 Dv + 160 Dv ceil(Dk / 64) operations on tensor
/// cores; 45 Dk operations of pairs in fp32.
/// Bytes: tensor_core_backward_bytes_moved() has the formula. At Dk = Dv = 128 that is 13.9 KB per position.
/// Bound by: the walks and the bytes alike.
/// Requires: Dk and Dv multiples of 16, both at most 128; rows aligned to 16 bytes.
/// Weakness: with normalised keys dk passes once more through memory; S, dS, v_new and the decayed rows cross it.
/// Sources: arXiv 2510.26692, section 3.1, for the forward lines. Their adjoint in two levels is ours.

#include <cuda_runtime.h>

#include <algorithm>

#include "05_deltanet_wy/chunk/fragments.cuh"
#include "05_deltanet_wy/chunk/warp_products.cuh"
#include "05_deltanet_wy/delta_rule_backward/dispatch/copies.hpp"
#include "05_deltanet_wy/delta_rule_backward/dispatch/gradient_walk_errors.cuh"
#include "05_deltanet_wy/delta_rule_backward/dispatch/gradients_with_gates.cuh"
#include "05_deltanet_wy/delta_rule_backward/dispatch/requirements.hpp"
#include "05_deltanet_wy/delta_rule_backward/forward_arguments.hpp"
#include "05_deltanet_wy/delta_rule_backward/gradient_chunk.cuh"
#include "05_deltanet_wy/delta_rule_backward/gradient_walk.cuh"
#include "05_deltanet_wy/kda/prepare_decayed.hpp"
#include "05_deltanet_wy/kda_backward.hpp"
#include "05_deltanet_wy/kda_backward/dispatch/forward_arguments.hpp"
#include "05_deltanet_wy/kda_backward/dispatch/prepare_marked.hpp"
#include "05_deltanet_wy/kda_backward/dispatch/sub_chunk_gradients.cuh"
#include "05_deltanet_wy/packed_backward.hpp"
#include "05_deltanet_wy/packed_gradients.hpp"
#include "common/ceil_div.hpp"
#include "common/device/cp_async.cuh"
#include "common/device/device.hpp"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/launch.cuh"
#include "common/device/workspace.hpp"
#include "common/parts.hpp"
#include "common/tile/base2.cuh"
#include "common/tile/chunk_products.cuh"
#include "common/tile/decay_rows.cuh"
#include "common/tile/head_of_chunks.cuh"
#include "common/tile/load_tile.cuh"
#include "common/tile/packed_chunks.cuh"
#include "common/tile/packed_segments.cuh"
#include "common/tile/requirements.hpp"
#include "common/tile/select_shape.cuh"
#include "common/tile/sequences_alone.cuh"
#include "common/tile/state.cuh"
#include "common/tile/store_tile.cuh"
#include "common/tile/sub_chunk.hpp"

namespace tutorial::kda {
namespace {

using namespace delta_rule;  // a chunk's products
using namespace tile;        // tiles and states
using delta_rule::scale_rows;

constexpr int kColumns = 64;  // of a block
constexpr int kMaxDim = 128;
using ValueTile = SwizzledTile<kColumns>;

__host__ __device__ constexpr int column_tiles(int width) {
  return (width - 1) / kColumns + 1;
}

/// What the kernels pass on to each other in device memory. They also read dv, which is an output.
struct Workspace : Prepared {
  View<__nv_bfloat16> v_new;  // [B, H, L, Dv]
  // What rounding leaves out in marked chunks (chunk/alike_keys.cuh): of v_new, of K- and of P
  View<__nv_bfloat16> v_errors;  // [B, H, L, Dv]
  __nv_bfloat16* K_errors;       // [B, H, 64 N, Dk]
  uint4* P_errors;               // [B, H, N, 10, 32], as in `blocks`
  uint4 *S, *dS;                 // [B, H, N, Dv / 16, Dk / 16, 32]: before, after each chunk; A fragments of S^T, dS^T
  uint4* blocks;                 // T and P for the walk from the end (for_gradients.hpp)
  float* factors;                // f [B, H, 64 N]
};

/// What the walk from the beginning reads of a chunk, in shared memory.
template <class Shape>
struct Tiles {
  uint4 T[2 * kBlockUnits];
  __nv_bfloat16 K[kChunk * Shape::kDk], K_end[kChunk * Shape::kDk], V[kChunk * kColumns];
  float decays[Shape::kDk];
};

/// What the walk from the end reads.
template <class Shape>
struct GradientTiles {
  uint4 blocks[3 * kBlockUnits];  // T rounded, its rounding error, P
  __nv_bfloat16 K[kChunk * Shape::kDk], K_end[kChunk * Shape::kDk], Q[kChunk * Shape::kDk], dO[kChunk * kColumns];
  float decays[Shape::kDk];
};

/// Shared memory of a walk: tiles of two chunks, and rows on their way to device memory.
template <class Tiles>
constexpr std::size_t kWalkBytes = 2 * sizeof(Tiles) + sizeof(__nv_bfloat16) * kChunk* kColumns;

/// Starts the copies of what both walks read: K+, K- and decays.
template <int kDk, class Tiles>
__device__ __forceinline__ void load_keys_async(Tiles& to, const Prepared& x, std::int64_t chunk, int Dk) {
  const std::int64_t rows = chunk * kChunk * Dk;
  load_tile_async(SwizzledTile<kDk>{to.K}, x.K + rows, Dk, kChunk, Dk);
  load_tile_async(SwizzledTile<kDk>{to.K_end}, x.K_end + rows, Dk, kChunk, Dk);
  if (const int d = int(threadIdx.x) * 4; d < kDk) cp_async<16>(to.decays + d, x.decays + chunk * Dk + d, d < Dk);
}

/// Puts what rounding leaves out of K- of a chunk in the place of K-, which no warp needs any more after the first barrier.
template <int kDk>
__device__ __forceinline__ void load_key_errors(const SwizzledTile<kDk>& K_end, const Workspace& x, std::int64_t chunk,
                                                int Dk) {
  __syncthreads();
  load_tile_async(K_end, x.K_errors + chunk * kChunk * Dk, Dk, kChunk, Dk);
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
}

/// The walk from the beginning. @param first the block's column of Dv
template <class Shape>
__device__ __forceinline__ void walk_forwards(const Bf16BackwardArguments& g, const Workspace& x,
                                              const HeadOfChunks& head, int first) {
  constexpr int kDk = Shape::kDk;
  const int b = head.b, h = head.h;
  const int columns = min(kColumns, g.Dv - first), warp_column = warp_index() * 16, j = first + warp_column;
  auto* tiles = dynamic_shared<Tiles<Shape>>();  // two
  auto* staging = reinterpret_cast<__nv_bfloat16*>(tiles + 2) + warp_index() * kChunk * 16;
  const auto load = [&](int n) {
    Tiles<Shape>& to = tiles[n % 2];
    const int t = n * kChunk, b = hide_from_compiler(head.b);
    const std::int64_t chunk = head.first + n;
    load_units_async<2 * kBlockUnits>(int(threadIdx.x), to.T, x.T + chunk * 2 * kBlockUnits);
    load_keys_async<kDk>(to, x, chunk, g.Dk);
    load_tile_async(ValueTile{to.V}, g.v.row(b, h, t) + first, g.v.stride_l, g.L - t, columns);
    cp_async_commit();
  };
  load(0);
  typename Shape::State S;
  load_state<Shape>(S, g.initial_state.data ? g.initial_state.row(b, h, 0) + first : nullptr, g.initial_state.stride_l,
                    g.Dk, columns);
  for (int n = 0; n < head.N; ++n) {
    cp_async_wait<0>();
    __syncthreads();
    if (n + 1 < head.N) load(n + 1);
    Tiles<Shape>& from = tiles[n % 2];
    const SwizzledTile<kDk> K{from.K}, K_end{from.K_end};
    uint4* states = fragments_of(x.S, g, head.first + n, g.Dk / 16, j);

    const auto pass_on_state = [&](int d, const uint4& s) {
      if (j < g.Dv && d * 16 < g.Dk) store_global(states + d * 32, s);
    };
    const bool alike = is_marked(from.T);
    WarpColumns v_new;
    WarpFragments v_errors;
    const auto pass_on_v_new = [&](int i, const uint4& two) { unpack_fragment(v_new, i, two); };
    const auto add_errors = [&](int i, float(&left)[4], float(&right)[4]) {
      if (!alike) return;
      v_errors[i] = errors_of(left, right);
      delta_rule::update_state<kDk>(S[0], K_end, v_errors[i], i);
    };
    WarpFragments residual;
    subtract_product<kDk>(residual, ValueTile{from.V}, warp_column, K, S[0], pass_on_state);
    decay_rows<Shape>(S, [&](int d) { return *reinterpret_cast<const float2*>(from.decays + d); });
    add_v_new<kDk>(S[0], residual, from.T, K_end, pass_on_v_new, nullptr, add_errors);
    const int t = n * kChunk;
    store_warp_output(x.v_new.row(b, h, t) + j, g.Dv, g.L - t, columns - warp_column, v_new, 1, staging);
    if (alike) {
      load_key_errors(K_end, x, head.first + n, g.Dk);
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) {
        delta_rule::update_state<kDk>(S[0], K_end, rounded(v_new[2 * i], v_new[2 * i + 1]), i);
        unpack_fragment(v_new, i, v_errors[i]);
      }
      store_warp_output(x.v_errors.row(b, h, t) + j, g.Dv, g.L - t, columns - warp_column, v_new, 1, staging);
    }
  }
}

/// X += P^T O, transposed, with P in device memory, as in add_flipped_scores(). A kernel before has written it.
__device__ __forceinline__ void add_scores_from_memory(WarpColumns& X, const WarpFragments& O, const uint4* P) {
  const int lane = fresh_lane();
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
    for (int t = i; t < kBlocks; ++t) multiply(X, i, O[t], load_for_update(P + lower_block(t, i) * 32 + lane));
  }
}

/// The walk from the end.
template <class Shape>
__device__ __forceinline__ void walk_backwards(const Bf16BackwardArguments& g, const Workspace& x,
                                               const HeadOfChunks& head, int first) {
  constexpr int kDk = Shape::kDk;
  const int b = head.b, h = head.h;
  const int columns = min(kColumns, g.Dv - first), warp_column = warp_index() * 16, j = first + warp_column;
  auto* tiles = dynamic_shared<GradientTiles<Shape>>();  // two
  auto* staging = reinterpret_cast<__nv_bfloat16*>(tiles + 2) + warp_index() * kChunk * 16;
  const auto load = [&](int n) {
    GradientTiles<Shape>& to = tiles[n % 2];
    const int t = n * kChunk, b = hide_from_compiler(head.b);
    const std::int64_t chunk = head.first + n;
    load_units_async<3 * kBlockUnits>(int(threadIdx.x), to.blocks, x.blocks + chunk * 3 * kBlockUnits);
    load_keys_async<kDk>(to, x, chunk, g.Dk);
    load_tile_async(SwizzledTile<kDk>{to.Q}, x.Q + chunk * kChunk * g.Dk, g.Dk, kChunk, g.Dk);
    load_tile_async(ValueTile{to.dO}, g.d_o.row(b, h, t) + first, g.d_o.stride_l, g.L - t, columns);
    cp_async_commit();
  };
  load(head.N - 1);
  typename Shape::State S;  // dS / scale
  load_state<Shape>(S, g.dfinal_state.data ? g.dfinal_state.row(b, h, 0) + first : nullptr, g.dfinal_state.stride_l,
                    g.Dk, columns);
  scale_state<Shape>(S, 1 / g.scale);
  for (int n = head.N - 1; n >= 0; --n) {
    cp_async_wait<0>();
    __syncthreads();
    if (n > 0) load(n - 1);
    GradientTiles<Shape>& from = tiles[n % 2];
    const SwizzledTile<kDk> K{from.K}, K_end{from.K_end}, Q{from.Q};
    uint4* states = fragments_of(x.dS, g, head.first + n, g.Dk / 16, j);

    WarpFragments outputs;  // dO^T
    load_transposed_values(outputs, ValueTile{from.dO}, warp_column);
    WarpColumns X = {}, dV = {};
    delta_rule::add_from_state(X, K_end, [&](int d) {
      if (j < g.Dv && d * 16 < g.Dk)
        store_global(states + d * 32, scaled_fragment(S[0][2 * d], S[0][2 * d + 1], g.scale));
      return rounded(S[0][2 * d], S[0][2 * d + 1]);
    });
    add_flipped_scores(X, outputs, from.blocks + 2 * kBlockUnits);
    const bool alike = is_marked_flipped(from.blocks);
    if (alike) {
      delta_rule::add_from_state(X, K_end, [&](int d) {
        float left[4], right[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) left[e] = S[0][2 * d][e], right[e] = S[0][2 * d + 1][e];
        return errors_of(left, right);
      });
      load_key_errors(K_end, x, head.first + n, g.Dk);
      delta_rule::add_from_state(X, K_end, [&](int d) { return rounded(S[0][2 * d], S[0][2 * d + 1]); });
      add_scores_from_memory(X, outputs, x.P_errors + (head.first + n) * kBlockUnits);
    }
    multiply_flipped(dV, X, from.blocks);
    if (alike) {
      multiply_errors_by_blocks(dV, X, [&](int number) { return from.blocks[number * 32 + fresh_lane()]; });
    }
    decay_rows<Shape>(S, [&](int d) { return *reinterpret_cast<const float2*>(from.decays + d); });
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      delta_rule::update_state<kDk>(S[0], Q, outputs[i], i);
      delta_rule::update_state<kDk>(S[0], K, opposite(rounded(dV[2 * i], dV[2 * i + 1])), i);
      if (alike) {
        float left[4], right[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) left[e] = dV[2 * i][e], right[e] = dV[2 * i + 1][e];
        delta_rule::update_state<kDk>(S[0], K, opposite(errors_of(left, right)), i);
      }
    }
    const int t = n * kChunk;
    store_warp_output(g.dv.row(b, h, t) + j, g.dv.stride_l, g.L - t, columns - warp_column, dV, g.scale, staging);
  }
  if (g.dinitial_state.data) {
    scale_state<Shape>(S, g.scale);
    store_state<Shape>(g.dinitial_state.row(b, h, 0) + first, S, g.dinitial_state.stride_l, g.Dk, columns);
  }
}

/// One of the walks. @param tile of Dv for each walk
template <class Shape>
__device__ __forceinline__ void walk(const Bf16BackwardArguments& g, const Workspace& x, const HeadOfChunks& head,
                                     int tile) {
  const int tiles = column_tiles(g.Dv);
  if (tile < tiles) {
    walk_forwards<Shape>(g, x, head, tile * kColumns);
  } else {
    walk_backwards<Shape>(g, x, head, (tile - tiles) * kColumns);
  }
}

/// Grid (tiles of Dv for each walk, H, B).
template <class Shape>
__global__ void __launch_bounds__(kThreads, 1) walks_kernel(Bf16BackwardArguments g, Workspace x) {
  walk<Shape>(g, x, HeadOfChunks(int(blockIdx.z), int(blockIdx.y), g.H, x.N), int(blockIdx.x));
}

/// What the kernels pass on, of a sequence that begins at a position.
__device__ __forceinline__ Workspace from_position(Workspace x, int begin) {
  x.v_new.data += begin * x.v_new.stride_l;
  x.v_errors.data += begin * x.v_errors.stride_l;
  return x;
}

/// The same of packed sequences. Grid (entries of the list x tiles of Dv for each walk, H, B).
/// @param list of sequences, see list_segments(), each a single segment
template <class Shape>
__global__ void __launch_bounds__(kThreads, 1)
    packed_walks_kernel(PackedBf16BackwardArguments p, Workspace all, const int4* list) {
  const int tiles = 2 * column_tiles(p.all.Dv);
  const int4 sequence = load_global(list + int(blockIdx.x) / tiles);
  if (sequence.y == sequence.z) return;
  const Bf16BackwardArguments g = sequence_of(p.all, sequence.x, sequence.y, sequence.z - sequence.y);
  walk<Shape>(g, from_position(all, sequence.y),
              HeadOfChunks(int(blockIdx.z), int(blockIdx.y), g.H, all.N, sequence.x, p.N, sequence.y, sequence.z),
              int(blockIdx.x) % tiles);
}

/// The gradients of 64 columns of Dk of chunk n. @tparam Shape its keys are the columns of Dv
template <class Shape>
__device__ __forceinline__ void compute_gradients(const Bf16BackwardArguments& g, const Workspace& x,
                                                  const HeadOfChunks& head, int n, int tile) {
  const std::int64_t chunk = head.first + n;
  const int stride = g.Dk / 16 * 32;
  sub_chunks::gradients_of_chunk<Shape>(g,
                                        {head.b, head.h, n, tile * kColumns, x.v_new, x.factors + chunk * kChunk,
                                         x.v_errors, &x.T[chunk * 2 * kBlockUnits + 3].y},
                                        sub_chunks::StateFragments{fragments_of(x.S, g, chunk, g.Dk / 16, 0), stride},
                                        sub_chunks::StateFragments{fragments_of(x.dS, g, chunk, g.Dk / 16, 0), stride});
}

/// Grid (chunks and tiles of Dk, H, B).
template <class Shape>
__global__ void __launch_bounds__(sub_chunks::kGradientThreads, 2)
    gradients_kernel(Bf16BackwardArguments g, Workspace x) {
  const int key_tiles = column_tiles(g.Dk);
  compute_gradients<Shape>(g, x, HeadOfChunks(int(blockIdx.z), int(blockIdx.y), g.H, x.N), int(blockIdx.x) / key_tiles,
                           int(blockIdx.x) % key_tiles);
}

/// The same of packed sequences. Grid (packed_chunks() and tiles of Dk, H, B).
template <class Shape>
__global__ void __launch_bounds__(sub_chunks::kGradientThreads, 2)
    packed_gradients_kernel(PackedBf16BackwardArguments p, Workspace all) {
  const int key_tiles = column_tiles(p.all.Dk);
  const PackedChunk chunk(p.cu_seqlens, p.N, int(blockIdx.x) / key_tiles);
  if (chunk.begin == chunk.end) return;
  const int n = chunk.sequence, begin = load_global(p.cu_seqlens + n);
  const Bf16BackwardArguments g = sequence_of(p.all, n, begin, chunk.end - begin);
  compute_gradients<Shape>(g, from_position(all, begin),
                           HeadOfChunks(int(blockIdx.z), int(blockIdx.y), g.H, all.N, n, p.N, begin, chunk.end),
                           (chunk.begin - begin) / kChunk, int(blockIdx.x) % key_tiles);
}

/// Bytes of what the kernels pass on, beside those of prepare().
struct Bytes {
  std::int64_t states, v_new, factors, blocks;  // dS takes as much as S, and errors of v_new as much as v_new
  std::int64_t K_errors, P_errors;

  /// @param N chunks of a head
  Bytes(const Bf16BackwardArguments& g, int N)
      : states(std::int64_t(g.B) * g.H * N * g.Dk * g.Dv * 2),
        v_new(std::int64_t(g.B) * g.H * g.L * g.Dv * 2),
        factors(std::int64_t(g.B) * g.H * N * kChunk * 4),
        blocks(std::int64_t(g.B) * g.H * N * 3 * kBlockUnits * std::int64_t(sizeof(uint4))),
        K_errors(std::int64_t(g.B) * g.H * N * kChunk * g.Dk * 2),
        P_errors(blocks / 3) {}
  std::int64_t all() const { return 2 * states + blocks + 2 * v_new + factors + K_errors + P_errors; }
};

/// Memory for what the kernels pass on, with what prepare() leaves.
/// @param arguments of prepare() @param N chunks of a head
template <class Arguments>
Workspace workspace_of(const Bf16BackwardArguments& g, int N, const Arguments& arguments) {
  const Bytes bytes(g, N);
  auto* memory = workspace<unsigned char>("kda --backward: tensor_core", std::size_t(bytes.all()));
  auto *dS = memory + bytes.states, *blocks = dS + bytes.states, *v_new = blocks + bytes.blocks;
  auto* v_errors = v_new + bytes.v_new;
  auto* factors = reinterpret_cast<float*>(v_errors + bytes.v_new);
  auto* K_errors = reinterpret_cast<__nv_bfloat16*>(reinterpret_cast<unsigned char*>(factors) + bytes.factors);
  auto* P_errors = reinterpret_cast<uint4*>(reinterpret_cast<unsigned char*>(K_errors) + bytes.K_errors);
  const Workspace x{
      prepare_marked(arguments, {kLeastBeta, factors, reinterpret_cast<uint4*>(blocks)}, {K_errors, P_errors}),
      packed(reinterpret_cast<__nv_bfloat16*>(v_new), g.H, g.L, g.Dv),
      packed(reinterpret_cast<__nv_bfloat16*>(v_errors), g.H, g.L, g.Dv),
      K_errors,
      P_errors,
      reinterpret_cast<uint4*>(memory),
      reinterpret_cast<uint4*>(dS),
      reinterpret_cast<uint4*>(blocks),
      factors};
  end_part("prepare");
  return x;
}

/// Calls walks(shape) and then gradients(shape), each with the shape of its kernel.
template <class Walks, class Gradients>
void start_kernels(const Bf16BackwardArguments& g, Walks walks, Gradients gradients) {
  select_shape(g.Dk, [&]<class Shape>(Shape shape) {
    if constexpr (Shape::kDk <= kMaxDim) walks(shape);
  });
  end_part("walks");
  select_shape(g.Dv, [&]<class Shape>(Shape shape) {
    if constexpr (Shape::kDk <= kMaxDim) gradients(shape);
  });
  if (g.normalize_keys) normalize_rows_backward({g.B, g.H, g.L}, g.k, read_only(g.dk), g.dk, g.Dk);
  end_part("gradients");
}

}  // namespace

void tensor_core_backward(const Bf16BackwardArguments& g) {
  const Workspace x = workspace_of(g, ceil_div(g.L, kChunk), forward_of(g));
  const auto grid = [&](int blocks) { return dim3(unsigned(blocks), unsigned(g.H), unsigned(g.B)); };
  start_kernels(
      g,
      [&]<class Shape>(Shape) {
        launch(walks_kernel<Shape>, {grid(2 * column_tiles(g.Dv)), kThreads, kWalkBytes<GradientTiles<Shape>>}, g, x);
      },
      [&]<class Shape>(Shape) {
        launch(gradients_kernel<Shape>,
               {grid(x.N * column_tiles(g.Dk)), sub_chunks::kGradientThreads, sizeof(sub_chunks::ChunkMemory<Shape>)},
               g, x);
      });
}

void packed_tensor_core_backward(const PackedBf16BackwardArguments& p) {
  const Bf16BackwardArguments& g = p.all;
  const PackedSequences<Bf16Arguments> forward{forward_of(g), p.cu_seqlens, p.N};
  const int4* list = list_segments(p.cu_seqlens, whole_sequences(g.L, p.N));
  const Workspace x = workspace_of(g, packed_chunks(extents_of(g), p.N), forward);
  const auto grid = [&](int blocks) { return dim3(unsigned(blocks), unsigned(g.H), unsigned(g.B)); };
  start_kernels(
      g,
      [&]<class Shape>(Shape) {
        launch(packed_walks_kernel<Shape>,
               {grid(p.N * 2 * column_tiles(g.Dv)), kThreads, kWalkBytes<GradientTiles<Shape>>}, p, x, list);
      },
      [&]<class Shape>(Shape) {
        launch(packed_gradients_kernel<Shape>,
               {grid(x.N * column_tiles(g.Dk)), sub_chunks::kGradientThreads, sizeof(sub_chunks::ChunkMemory<Shape>)},
               p, x);
      });
  hand_states_on(p);
}

std::string tensor_core_backward_unsupported(const Bf16BackwardArguments& g) {
  if (g.Dk > kMaxDim) return "Dk > 128: two chunks do not fit into a block's shared memory";
  if (g.Dv > kMaxDim) return "Dv > 128: a block holds all columns of three tiles";
  if (const std::string reason = tile::unsupported_extents({g.B, g.H, g.L, g.Dk, g.Dv}); !reason.empty()) return reason;
  const auto aligned = [](const auto&... views) { return (tile::has_aligned_rows(views) && ...); };
  if (!aligned(g.q, g.k, g.v, g.g, g.d_o, g.dq, g.dk, g.dv, g.dg)) return "rows are not aligned to 16 bytes";
  std::size_t bytes = 0;
  select_shape(g.Dk, [&]<class Shape>(Shape) { bytes = kWalkBytes<GradientTiles<Shape>>; });
  select_shape(g.Dv, [&]<class Shape>(Shape) { bytes = std::max(bytes, sizeof(sub_chunks::ChunkMemory<Shape>)); });
  return shared_memory_missing(bytes);
}

std::int64_t tensor_core_backward_memory(const Bf16BackwardArguments& g) {
  return prepared_memory(forward_of(g)) + Bytes(g, ceil_div(g.L, kChunk)).all();
}

std::int64_t packed_tensor_core_backward_memory(const PackedBf16BackwardArguments& p) {
  const int N = packed_chunks(extents_of(p.all), p.N);
  return prepared_memory(forward_of(p.all), N) + Bytes(p.all, N).all() + std::int64_t(sizeof(int4)) * p.N;
}

std::int64_t tensor_core_backward_bytes_moved(const Bf16BackwardArguments& g) {
  const Bytes bytes(g, ceil_div(g.L, kChunk));
  const std::int64_t heads = std::int64_t(g.B) * g.H, chunks = heads * ceil_div(g.L, kChunk), positions = heads * g.L;
  const std::int64_t keys = positions * g.Dk * 2, values = bytes.v_new, betas = positions * 4;
  const std::int64_t rows = chunks * kChunk * g.Dk * 2, P = chunks * kBlockUnits * std::int64_t(sizeof(uint4));
  const std::int64_t key_tiles = column_tiles(g.Dk), value_tiles = column_tiles(g.Dv), decays = chunks * g.Dk * 4;
  const std::int64_t state = 4 * heads * g.Dk * g.Dv;
  const auto there = [&](const View<const float>& view) { return view.data ? state : 0; };
  // Where q, k and g are loaded by lanes, rows and columns that do not exist are not left out.
  const std::int64_t padded = chunks * kChunk * key_tiles * kColumns * 2;
  std::int64_t count = 4 * padded + betas + prepared_memory(forward_of(g)) + bytes.factors + bytes.blocks;
  if (g.normalize_keys) count += rows;
  count += value_tiles * (2 * rows + 2 * P + decays) + 2 * values + bytes.states;  // K+, K-, T, v; v_new, S
  count += value_tiles * (3 * rows + 3 * P + decays) + 2 * values + bytes.states;  // Q+, K+, K-, T, P, do; dv, dS
  count += key_tiles * (3 * values + bytes.factors) + 3 * bytes.states;            // do, v_new, dv, f; S twice, dS
  count += 4 * chunks * key_tiles;                                                 // of T a mark
  count += 8 * padded + 4 * keys + 2 * betas;  // q, k and g twice; dq, dk, dg; beta, dbeta
  if (g.normalize_keys) count += 5 * keys;
  return count + there(g.initial_state) + there(g.dfinal_state) + there(read_only(g.dinitial_state));
}

}  // namespace tutorial::kda
