/// @file
/// `tensor_core`: `both_ends` with gates, and dg from terms that all contain the gate.
///
/// Idea: the factors of `chunkwise` are diagonal matrices or belong to pairs of positions. Those of the pairs are in T
/// and P, which prepare() computes, and multiply Y and Z as these are computed. The diagonal matrices multiply rows or
/// columns of sums in registers. So the walks and the last kernel are those of `both_ends`.
///
/// dg is new. As a difference of sums over rows it would contain what passes no gate, which is larger than dg where
/// gates are strong, and in bf16 nothing would be left of it. But in the last kernel S and dS of the chunk are
/// both there. The gate of position p multiplies what is read from S at p or behind it, what is written before p and
/// read in later chunks, pairs of positions with p between them, and the state on its way through the chunk:
///
///     dg_p = exp(b_e) <S, dS> + sum_{t >= p} read_t + sum_{i < p} write_i + sum_{i < p <= t} pair_ti
///
/// Each term contains the gate. The sums over pairs are computed as differences of row sums and column sums, for
/// which dq and dk have all that is needed: the same rounded Y and Z are the factors of both. So the pairs without p
/// between them cancel but for errors of fp32. The pairs (t, t) are left out and added to dq and dk afterwards. What the
/// last position of all writes to the final state passes no gate, and is left out, too.
/// Improves on: `chunkwise` computes the chunks of a head one after the other, on the CPU.
/// Unchanged: two walks in one launch, then all chunks at once; T in two bf16; beta of at least 2^-32.
/// Equation: S' = dS / scale in the walk from the end. D_q = diag(exp(b)), D_k = diag(f exp(b)), D_e = diag(exp(b_e -
/// b)), T, P and v_new are those of prepared.hpp, Gamma_ti = exp(b_t - b_i). f are the factors of normalised keys, else
/// 1.
///
///     v_new = T (V - D_k K S),  S = exp(b_e) S + K^T D_e v_new
///     X = P^T dO + D_e K S',  dV' = T^T X,  S' = exp(b_e) S' + Q^T D_q dO - K^T D_k dV'
///
///     Y = scale (dO v_new^T) . Gamma below the diagonal, y_t on it;  Z = diag(f) tril(dV v_new^T . Gamma, -1)
///     dQ = scale D_q dO S^T + Y K,   dbeta_t = (dV v_new^T)_tt / (f_t beta_t^2)
///     reading = -D_k dV S^T - Z K,   writing = D_e v_new dS^T + Y^T Q - Z^T K
///     db_t = q_t . dq_t + k_t . (reading_t - writing_t)
///     dg_p = exp(b_e) <S, dS> + sum_i k_i . (D_e v_new dS^T)_i + sum_{t >= p} db_t
///
/// With the pairs (t, t) added, reading + writing is f dy, the gradient for the normalised key y = f k times f. So dK =
/// f dy - (f dy . k) f^2 k, or f dy itself where keys are not normalised.
///
/// Shapes: as `both_ends`; g, dg [B, H, L] fp32.
/// Thread mapping: the walks as in `both_ends`. In gradients_kernel block (chunk and tile of Dk, h, b) has 128 columns
/// of Dk, or 64 if Dk <= 64, Dv > 128 or the tiles do not fit into its shared memory, and a warp for each 16 of them.
/// Synchronization: one barrier per chunk in the walks; four in gradients_kernel.
/// Resources: at Dk = Dv = 128 the two kernels have 120 and 101 KB of shared memory: two blocks per multiprocessor of
/// the latter. Where a block cannot have so much, as on RTX cards, a walk has the tiles of one chunk, 64 KB, and waits
/// for its copies, and a block of the other kernel has 64 columns of Dk, 83 KB.
/// Work: that of `both_ends`, but Y and Z once for all columns where a block has them; 160 ex2 and 10 Dk multiply-adds
/// per position in fp32.
/// Bytes: tensor_core_backward_bytes_moved() has the formula. At Dk = Dv = 128 that is 8.8 KB per position.
/// Bound by: the walks, whose chunks follow one another; with many heads the bytes.
/// Requires: Dk and Dv multiples of 16, up to 256; rows aligned to 16 bytes; to normalise keys, all columns of Dk in
/// one block.
/// Weakness: S, dS and v_new cross device memory, and the walks are chains of mma.
/// Sources: arXiv 2412.06464, section 3.3, for the forward lines. The grouping of dg's terms is ours.

#include <cuda_runtime.h>

#include <algorithm>

#include "05_deltanet_wy/chunk/fragments.cuh"
#include "05_deltanet_wy/delta_rule_backward/dispatch/gradient_walk_errors.cuh"
#include "05_deltanet_wy/delta_rule_backward/dispatch/gradients_with_gates.cuh"
#include "05_deltanet_wy/delta_rule_backward/dispatch/requirements.hpp"
#include "05_deltanet_wy/delta_rule_backward/gradient_chunk.cuh"
#include "05_deltanet_wy/delta_rule_backward/gradient_walk.cuh"
#include "05_deltanet_wy/gated_delta_rule/decayed_warp_products.cuh"
#include "05_deltanet_wy/gated_delta_rule/prepare_gated.hpp"
#include "05_deltanet_wy/gated_delta_rule/prepare_gated_tiles.hpp"
#include "05_deltanet_wy/gated_delta_rule/prepare_packed.hpp"
#include "05_deltanet_wy/gated_delta_rule/running_sums.cuh"
#include "05_deltanet_wy/gated_delta_rule_backward.hpp"
#include "05_deltanet_wy/gated_delta_rule_backward/dispatch/forward_arguments.hpp"
#include "05_deltanet_wy/packed_backward.hpp"
#include "05_deltanet_wy/packed_gradients.hpp"
#include "common/ceil_div.hpp"
#include "common/device/cp_async.cuh"
#include "common/device/device.hpp"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/launch.cuh"
#include "common/device/workspace.hpp"
#include "common/parts.hpp"
#include "common/tile/chunk_products.cuh"
#include "common/tile/head_of_chunks.cuh"
#include "common/tile/load_tile.cuh"
#include "common/tile/packed_chunks.cuh"
#include "common/tile/packed_segments.cuh"
#include "common/tile/requirements.hpp"
#include "common/tile/select_shape.cuh"
#include "common/tile/sequences_alone.cuh"
#include "common/tile/state.cuh"
#include "common/tile/store_tile.cuh"

namespace tutorial::gated_delta_rule {
namespace {

using namespace delta_rule;  // a chunk's blocks as fragments
using namespace tile;        // tiles and states
using delta_rule::scale_rows;

constexpr int kColumns = 64;  // of a walk's block
using ValueTile = SwizzledTile<kColumns>;

/// What the kernels pass on to each other in device memory. They also read dv, which is an output.
struct Workspace : Prepared {
  View<__nv_bfloat16> v_new;     // [B, H, L, Dv]
  View<__nv_bfloat16> v_errors;  // the same: what rounding leaves out, in marked chunks (chunk/alike_keys.cuh)
  uint4 *S, *dS;                 // [B, H, N, Dv / 16, Dk / 16, 32]: before, after each chunk; A fragments of S^T, dS^T
  uint4* blocks;                 // T and P for the walk from the end (for_gradients.hpp)
  float* factors;                // f [B, H, 64 N]
  View<float> dg_parts;          // [tiles of Dk, B, H, L]: what is added up to dg; dg itself if there is one tile
  std::int64_t part;             // elements from one tile's to the next one's
};

/// What the walk from the beginning reads of a chunk, in shared memory.
template <class Shape>
struct Tiles {
  uint4 T[2 * kBlockUnits];
  __nv_bfloat16 K[kChunk * Shape::kDk], V[kChunk * kColumns];
  float decays[kDecays];
};

/// What the walk from the end reads.
template <class Shape>
struct GradientTiles {
  uint4 blocks[3 * kBlockUnits];  // T rounded, its rounding error, P
  __nv_bfloat16 K[kChunk * Shape::kDk], Q[kChunk * Shape::kDk], dO[kChunk * kColumns];
  float decays[kDecays];
};

/// Shared memory of a walk: tiles of kDepth chunks, and rows on their way to device memory.
template <class Tiles, int kDepth>
constexpr std::size_t kWalkBytes = kDepth * sizeof(Tiles) + sizeof(__nv_bfloat16) * kChunk* kColumns;

/// Starts the copy of a chunk's decays.
__device__ __forceinline__ void load_decays_async(float* to, const float* from) {
  const int first = hide_from_compiler(int(threadIdx.x)) * 4;
  if (first < kDecays) cp_async<16>(to + first, from + first);
}

/// The walk from the beginning. @param first the block's column of Dv
template <class Shape, int kDepth, class Arguments>
__device__ __forceinline__ void walk_forwards(const Arguments& a, const Workspace& x, const HeadOfChunks& head,
                                              int first) {
  constexpr int kDk = Shape::kDk;
  const int b = head.b, h = head.h;
  const int columns = min(kColumns, a.Dv - first), warp_column = warp_index() * 16, j = first + warp_column;
  auto* tiles = dynamic_shared<Tiles<Shape>>();  // kDepth
  auto* staging = reinterpret_cast<__nv_bfloat16*>(tiles + kDepth) + warp_index() * kChunk * 16;
  const auto load = [&](int n) {
    Tiles<Shape>& to = tiles[n % kDepth];
    const int t = n * kChunk, b = hide_from_compiler(head.b);
    const std::int64_t chunk = head.first + n;
    load_units_async<2 * kBlockUnits>(int(threadIdx.x), to.T, x.T + chunk * 2 * kBlockUnits);
    load_tile_async(SwizzledTile<kDk>{to.K}, a.k.row(b, h, t), a.k.stride_l, a.L - t, a.Dk);
    load_tile_async(ValueTile{to.V}, a.v.row(b, h, t) + first, a.v.stride_l, a.L - t, columns);
    load_decays_async(to.decays, x.decays + chunk * kDecays);
    cp_async_commit();
  };
  load(0);
  typename Shape::State S;
  load_state<Shape>(S, a.initial_state.data ? a.initial_state.row(b, h, 0) + first : nullptr, a.initial_state.stride_l,
                    a.Dk, columns);
  for (int n = 0; n < head.N; ++n) {
    cp_async_wait<0>();
    __syncthreads();
    if (kDepth == 2 && n + 1 < head.N) load(n + 1);
    Tiles<Shape>& from = tiles[n % kDepth];
    const SwizzledTile<kDk> K{from.K};
    uint4* states = fragments_of(x.S, a, head.first + n, a.Dk / 16, j);

    const auto pass_on_state = [&](int d, const uint4& s) {
      if (j < a.Dv && d * 16 < a.Dk) store_global(states + d * 32, s);
    };
    const bool alike = is_marked(from.T);
    WarpColumns v_new;
    WarpFragments v_errors;
    const auto pass_on_v_new = [&](int i, const uint4& two) { unpack_fragment(v_new, i, two); };
    const auto add_errors = [&](int i, const float(&left)[4], const float(&right)[4]) {
      if (!alike) return;
      float of_rows[2][4], of_state[2][4];
#pragma unroll
      for (int e = 0; e < 8; ++e) of_rows[e / 4][e % 4] = of_state[e / 4][e % 4] = e < 4 ? left[e] : right[e - 4];
      v_errors[i] = errors_of(of_rows[0], of_rows[1]);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        scale_positions(of_state[half], from.decays + kToEnd * kChunk + i * kBlock + half * 8);
      }
      delta_rule::update_state<kDk>(S[0], K, errors_of(of_state[0], of_state[1]), i);
    };
    WarpFragments residual;
    subtract_decayed_product<kDk>(residual, ValueTile{from.V}, warp_column, K, S[0], from.decays + kOfKeys * kChunk,
                                  pass_on_state);
    add_decayed_v_new<kDk>(S[0], residual, from.T, K, from.decays[kOfQueries * kChunk + kChunk - 1],
                           from.decays + kToEnd * kChunk, pass_on_v_new, add_errors);
    if constexpr (kDepth == 1) {
      __syncthreads();  // no warp reads the tiles any more
      if (n + 1 < head.N) load(n + 1);
    }
    const int t = n * kChunk;
    store_warp_output(x.v_new.row(b, h, t) + j, a.Dv, a.L - t, columns - warp_column, v_new, 1, staging);
    if (alike) {
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) unpack_fragment(v_new, i, v_errors[i]);
      store_warp_output(x.v_errors.row(b, h, t) + j, a.Dv, a.L - t, columns - warp_column, v_new, 1, staging);
    }
  }
}

/// An A fragment whose 16 columns, which are positions, are multiplied by their decays and rounded again.
__device__ __forceinline__ uint4 decayed_fragment(const uint4& x, const float* decays) {
  const int p = fresh_lane() % 4 * 2;
  const float2 left = *reinterpret_cast<const float2*>(decays + p);
  const float2 right = *reinterpret_cast<const float2*>(decays + p + 8);
  return make_uint4(scaled(x.x, left), scaled(x.y, left), scaled(x.z, right), scaled(x.w, right));
}

/// The walk from the end.
template <class Shape, int kDepth>
__device__ __forceinline__ void walk_backwards(const Bf16BackwardArguments& g, const Workspace& x,
                                               const HeadOfChunks& head, int first) {
  constexpr int kDk = Shape::kDk;
  const int b = head.b, h = head.h;
  const int columns = min(kColumns, g.Dv - first), warp_column = warp_index() * 16, j = first + warp_column;
  auto* tiles = dynamic_shared<GradientTiles<Shape>>();  // kDepth
  auto* staging = reinterpret_cast<__nv_bfloat16*>(tiles + kDepth) + warp_index() * kChunk * 16;
  const auto load = [&](int n) {
    GradientTiles<Shape>& to = tiles[n % kDepth];
    const int t = n * kChunk, b = hide_from_compiler(head.b);
    const std::int64_t chunk = head.first + n;
    load_units_async<3 * kBlockUnits>(int(threadIdx.x), to.blocks, x.blocks + chunk * 3 * kBlockUnits);
    load_tile_async(SwizzledTile<kDk>{to.K}, g.k.row(b, h, t), g.k.stride_l, g.L - t, g.Dk);
    load_tile_async(SwizzledTile<kDk>{to.Q}, g.q.row(b, h, t), g.q.stride_l, g.L - t, g.Dk);
    load_tile_async(ValueTile{to.dO}, g.d_o.row(b, h, t) + first, g.d_o.stride_l, g.L - t, columns);
    load_decays_async(to.decays, x.decays + chunk * kDecays);
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
    if (kDepth == 2 && n > 0) load(n - 1);
    GradientTiles<Shape>& from = tiles[n % kDepth];
    const SwizzledTile<kDk> K{from.K}, Q{from.Q};
    const float *of_queries = from.decays + kOfQueries * kChunk, *of_keys = from.decays + kOfKeys * kChunk;
    uint4* states = fragments_of(x.dS, g, head.first + n, g.Dk / 16, j);

    WarpFragments outputs;  // dO^T
    load_transposed_values(outputs, ValueTile{from.dO}, warp_column);
    WarpColumns X = {}, dV = {};
    delta_rule::add_from_state(X, K, [&](int d) {
      if (j < g.Dv && d * 16 < g.Dk)
        store_global(states + d * 32, scaled_fragment(S[0][2 * d], S[0][2 * d + 1], g.scale));
      return rounded(S[0][2 * d], S[0][2 * d + 1]);
    });
    decay_columns(X, from.decays + kToEnd * kChunk);
    add_flipped_scores(X, outputs, from.blocks + 2 * kBlockUnits);
    const bool alike = is_marked_flipped(from.blocks);
    const auto block = [&](int matrix, int number) {
      return from.blocks[(matrix * kLowerBlocks + number) * 32 + fresh_lane()];
    };
    if (const float whole = of_queries[kChunk - 1]; alike && whole > kLeastWhole) {
      const float* to_end = from.decays + kToEnd * kChunk;
      add_errors_of_score_blocks(
          X, outputs, [&](int number) { return block(2, number); }, Q, K,
          [&](int t, int i) { return of_queries[t] * to_end[i] / whole; });
    }
    multiply_flipped(dV, X, from.blocks);
    if (alike) multiply_errors_by_blocks(dV, X, [&](int number) { return block(0, number); });
    scale_state<Shape>(S, of_queries[kChunk - 1]);
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      delta_rule::update_state<kDk>(S[0], Q, decayed_fragment(outputs[i], of_queries + i * kBlock), i);
      float left[4], right[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) left[e] = dV[2 * i][e], right[e] = dV[2 * i + 1][e];
      scale_positions(left, of_keys + i * kBlock);
      scale_positions(right, of_keys + i * kBlock + 8);
      delta_rule::update_state<kDk>(S[0], K, opposite(rounded(left, right)), i);
    }
    if constexpr (kDepth == 1) {
      __syncthreads();
      if (n > 0) load(n - 1);
    }
    const int t = n * kChunk;
    store_warp_output(g.dv.row(b, h, t) + j, g.dv.stride_l, g.L - t, columns - warp_column, dV, g.scale, staging);
  }
  if (g.dinitial_state.data) {
    scale_state<Shape>(S, g.scale);
    store_state<Shape>(g.dinitial_state.row(b, h, 0) + first, S, g.dinitial_state.stride_l, g.Dk, columns);
  }
}

/// Grid (tiles of Dv for each walk, H, B). @tparam kDepth chunks whose tiles a block has: two, or one
template <class Shape, int kDepth>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1)
    walks_kernel(Bf16BackwardArguments g, Bf16Arguments a, Workspace x) {
  const int tiles = int(gridDim.x) / 2, tile = int(blockIdx.x);
  const HeadOfChunks head(int(blockIdx.z), int(blockIdx.y), g.H, x.N);
  if (tile < tiles) {
    walk_forwards<Shape, kDepth>(a, x, head, tile * kColumns);
  } else {
    walk_backwards<Shape, kDepth>(g, x, head, (tile - tiles) * kColumns);
  }
}

/// What the kernels pass on, of a sequence that begins at a position.
__device__ __forceinline__ Workspace from_position(Workspace x, int begin) {
  x.v_new.data += begin * x.v_new.stride_l;
  x.v_errors.data += begin * x.v_errors.stride_l;
  x.dg_parts.data += begin * x.dg_parts.stride_l;
  return x;
}

/// The same of packed sequences. Grid (entries of the list x tiles of Dv for each walk, H, B).
/// @param list of sequences, see list_segments(), each a single segment
template <class Shape, int kDepth>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1)
    packed_walks_kernel(PackedBf16BackwardArguments p, Workspace all, const int4* list) {
  const int tiles = (p.all.Dv - 1) / kColumns + 1, tile = int(blockIdx.x) % (2 * tiles);
  const int4 sequence = load_global(list + int(blockIdx.x) / (2 * tiles));
  if (sequence.y == sequence.z) return;
  const Bf16BackwardArguments g = sequence_of(p.all, sequence.x, sequence.y, sequence.z - sequence.y);
  const Workspace x = from_position(all, sequence.y);
  const HeadOfChunks head(int(blockIdx.z), int(blockIdx.y), g.H, x.N, sequence.x, p.N, sequence.y, sequence.z);
  if (tile < tiles) {
    walk_forwards<Shape, kDepth>(g, x, head, tile * kColumns);
  } else {
    walk_backwards<Shape, kDepth>(g, x, head, (tile - tiles) * kColumns);
  }
}

/// What gradients_kernel knows of a chunk's positions, in shared memory.
template <int kWarps>
struct Positions {
  float sums[kChunk];           ///< b
  float factors[kChunk];        ///< f
  float own[kChunk];            ///< y_t
  float parts[kWarps][kChunk];  ///< of row products
  float along[kWarps][kChunk];  ///< of f dy . k
  float state[kWarps];          ///< of exp(b_e) <S, dS> and the sum of C

  __device__ __forceinline__ float decay(int t, int i) const { return ex2(sums[t] - sums[i]); }
};

/// A block's tiles.
template <class Shape>
struct ChunkTilesOf {
  __nv_bfloat16 dO[kChunk * Shape::kDk], dV[kChunk * Shape::kDk], v_new[kChunk * Shape::kDk];
  __nv_bfloat16 Q[kChunk * Shape::kDv], K[kChunk * Shape::kDv], Y[kChunk * kChunk], Z[kChunk * kChunk];
  Positions<Shape::kWarps> at;
};

/// The sum of the warps' parts.
template <int kWarps>
__device__ __forceinline__ float sum_of_parts(const float (&parts)[kWarps][kChunk], int t) {
  float sum = 0;
#pragma unroll
  for (const auto& part : parts) sum += part[t];
  return sum;
}

/// The products of the elements of two fragments.
__device__ __forceinline__ float dot(const uint4& x, const uint4& y) {
  const auto two = [](std::uint32_t x, std::uint32_t y) {
    const float2 a = unpack(x), b = unpack(y);
    return a.x * b.x + a.y * b.y;
  };
  return two(x.x, y.x) + two(x.y, y.y) + two(x.z, y.z) + two(x.w, y.w);
}

/// The gradients of chunk n. @tparam Shape its keys are the columns of Dv, its values the block's of Dk
template <class Shape>
__device__ __forceinline__ void compute_gradients(const Bf16BackwardArguments& g, const Workspace& x,
                                                  const HeadOfChunks& head, int n, int tile) {
  const int b = head.b, h = head.h, first = tile * Shape::kDv;
  const int t = n * kChunk, rows = g.L - t, columns = min(Shape::kDv, g.Dk - first);
  const std::int64_t chunk = head.first + n;
  auto* memory = dynamic_shared<ChunkTilesOf<Shape>>();
  auto& at = memory->at;
  __shared__ bool alike;
  const typename Shape::KeyTile dO{memory->dO}, dV{memory->dV}, v_new{memory->v_new};
  const typename Shape::ValueTile Q{memory->Q}, K{memory->K}, staging{memory->dO};
  const typename Shape::ScoreTile Y{memory->Y}, Z{memory->Z};

  Shape::load(dO, g.d_o.row(b, h, t), g.d_o.stride_l, rows, g.Dv);
  Shape::load(v_new, x.v_new.row(b, h, t), x.v_new.stride_l, rows, g.Dv);
  Shape::load(dV, g.dv.row(b, h, t), g.dv.stride_l, rows, g.Dv);
  Shape::load(Q, g.q.row(b, h, t) + first, g.q.stride_l, rows, columns);
  Shape::load(K, g.k.row(b, h, t) + first, g.k.stride_l, rows, columns);
  cp_async_commit();
  const int warp = __shfl_sync(kAllLanes, int(threadIdx.x) / 32, 0);  // the same in all lanes, as the compiler is told
  if (warp == 0) running_sums(at.sums, g.g, b, h, t, g.L);
  if (threadIdx.x < kChunk) at.factors[threadIdx.x] = load_global(x.factors + chunk * kChunk + threadIdx.x);
  cp_async_wait<0>();
  __syncthreads();
  // Elements of a block on the diagonal that are on the diagonal.
  const auto on_diagonal = [](int row, int column, BlockSums& block, auto f) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int half = e / 2;  // of the rows and of the columns
      if (row == column + e % 2) f(row + half * 8, block[half][half * 2 + e % 2]);
    }
  };
  const auto put_Y = [&](const typename Shape::ScoreTile& to, auto score, auto own) {
    if (warp >= kBlocks) return;
    scores_of_row(
        to, dO, v_new, warp,
        [&](int t, int i, float product) {
          const float y = g.scale * product * at.decay(t, i);
          return t == i ? y : score(y);
        },
        [&](int row, int column, BlockSums& block) {
          on_diagonal(row, column, block, [&](int t, float& y) {
            own(at.own[warp * kBlock + t], y);
            y = 0;
          });
        });
  };
  const auto put_Z = [&](auto score, auto own) {
    if (warp < Shape::kWarps - kBlocks) return;
    const int r = Shape::kWarps - 1 - warp;
    scores_of_row(
        Z, dV, v_new, r,
        [&](int t, int i, float product) {
          const float z = -at.factors[t] * product * at.decay(t, i);
          return t == i ? z : score(z);
        },
        [&](int row, int column, BlockSums& block) {
          on_diagonal(row, column, block, [&](int i, float& z) {
            own(r * kBlock + i, z);
            z = 0;
          });
        });
  };
  const auto put_dbeta = [&](int row, float z) {
    if (first > 0 || row >= rows) return;
    const float f = at.factors[row], beta = fmaxf(load_global(g.beta.row(b, h, t + row)), kLeastBeta);
    store_global(g.dbeta.row(b, h, t + row), -z / (f * beta * beta) / f);
  };
  const auto as_it_is = [](float y) { return y; };
  const auto error_of = [](float y) { return y - float(__nv_bfloat16(y)); };
  const auto not_own = [](auto&&, float) {};
  put_Y(Y, as_it_is, [](float& own, float y) { own = y; });
  put_Z(as_it_is, put_dbeta);
  if (threadIdx.x == 0) alike = is_marked(load_mark(x.T, chunk));
  __syncthreads();

  // What a warp does not have of Dk counts as zeros.
  const int d = first + warp * Shape::kWarpColumns;
  const std::int64_t stride = g.Dk / 16 * 32;
  const int count = d < g.Dk ? g.Dv / 16 : 0;
  const uint4* S = fragments_of(x.S, g, chunk, g.Dk / 16, 0) + d / 16 * 32;
  const uint4* dS = fragments_of(x.dS, g, chunk, g.Dk / 16, 0) + d / 16 * 32;
  const auto fragment = [&](const uint4* states, int j) {
    return j < count ? load_global(states + j * stride) : uint4{};
  };
  const int unit = dO.unit(int(lane_index()) % 16, int(lane_index()) / 16 * 8);
  RowSums products = {};
  typename Shape::Output dK = {};  // reading, then all
  {
    typename Shape::Output dQ = {};
#pragma unroll
    for (int j = 0; j < Shape::kDk / 16; ++j) {
      const uint4 s[] = {fragment(S, j)};
      add_from_fragments<Shape>(dQ, dO, unit, j, s);
      add_from_fragments<Shape>(dK, dV, unit, j, s);
    }
    scale_rows<Shape>(dQ, [&](int t) { return g.scale * ex2(at.sums[t]); });
    scale_rows<Shape>(dK, [&](int t) { return -at.factors[t] * ex2(at.sums[t]); });
    add_from_scores<Shape>(dQ, Y, K);
    add_from_scores<Shape>(dK, Z, K);
    if (alike) {  // what rounding leaves out of Y, Z and v_new. Its scores take the place of Z for a while
      const auto put = [&](auto scores) {
        __syncthreads();
        scores();
        __syncthreads();
      };
      // The barriers of put() stand before and behind it.
      const auto load_values = [&](const View<__nv_bfloat16>& values) {
        Shape::load(v_new, values.row(b, h, t), values.stride_l, rows, g.Dv);
        cp_async_commit();
        cp_async_wait<0>();
      };
      put([&] { put_Z(error_of, not_own); });
      add_from_scores<Shape>(dK, Z, K);
      load_values(x.v_errors);
      put([&] { put_Z(as_it_is, not_own); });
      add_from_scores<Shape>(dK, Z, K);
      // From here on dK has a part of writing, too, which counts as -1 below: so what it has now counts twice.
      add_row_products<Shape>(products, 2, dK, K);
      add_from_transposed_scores<Shape>(dK, Z, K);
      put([&] { put_Y(Z, as_it_is, [](float& own, float y) { own += y; }); });
      add_from_scores<Shape>(dQ, Z, K);
      add_from_transposed_scores<Shape>(dK, Z, Q);
      load_values(x.v_new);
      put([&] { put_Y(Z, error_of, not_own); });
      add_from_scores<Shape>(dQ, Z, K);
      add_from_transposed_scores<Shape>(dK, Z, Q);
      put([&] { put_Z(error_of, not_own); });
      add_from_transposed_scores<Shape>(dK, Z, K);
      put([&] { put_Z(as_it_is, not_own); });
    }
    add_row_products<Shape>(products, 1, dQ, Q);
    add_row_products<Shape>(products, alike ? -1.0f : 1.0f, dK, K);
    add_rows<Shape>(dQ, K, [&](int t) { return at.own[t]; });
    __syncthreads();  // no warp reads dO or dV any more
    store_output<Shape>(g.dq.row(b, h, t) + first, g.dq.stride_l, rows, columns, dQ, staging, 1.0f);
  }
  {
    typename Shape::Output writing = {};
    float states = 0;
#pragma unroll
    for (int j = 0; j < Shape::kDk / 16; ++j) {
      const uint4 s[] = {fragment(dS, j)};
      states += dot(s[0], fragment(S, j));
      add_from_fragments<Shape>(writing, v_new, unit, j, s);
    }
    scale_rows<Shape>(writing, [&](int t) { return at.decay(kChunk - 1, t); });
    RowSums writes = {};
    add_row_products<Shape>(writes, 1, writing, K, rows - 1);
    float sum = 0;
#pragma unroll
    for (const float write : writes) sum += write;
    states = warp_sum(ex2(at.sums[kChunk - 1]) * states + sum);
    if (lane_index() == 0) at.state[warp] = states;
    add_from_transposed_scores<Shape>(writing, Y, Q);
    add_from_transposed_scores<Shape>(writing, Z, K);
    add_row_products<Shape>(products, -1, writing, K, rows - 1);
    store_parts(at.parts[warp], products);
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
      for (int j = 0; j < Shape::kWarpColumns / 8; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) dK[i][j][e] += writing[i][j][e];
      }
    }
  }
  add_rows<Shape>(dK, Q, [&](int t) { return at.own[t]; });
  if (g.normalize_keys) {
    RowSums along = {};
    add_row_products<Shape>(along, 1, dK, K);
    store_parts(at.along[warp], along);
  }
  __syncthreads();
  if (g.normalize_keys) {
    add_rows<Shape>(dK, K, [&](int t) { return -at.factors[t] * at.factors[t] * sum_of_parts(at.along, t); });
  }
  store_output<Shape>(g.dk.row(b, h, t) + first, g.dk.stride_l, rows, columns, dK, Q, 1.0f);
  if (warp > 0) return;
  const int last = kChunk - 2 - 2 * int(lane_index());  // lane 0 has the last two positions
  const float db = sum_of_parts(at.parts, last), db_after = sum_of_parts(at.parts, last + 1);
  float dg = warp_prefix_sum(db + db_after);
#pragma unroll
  for (const float state : at.state) dg += state;
  float* parts = x.dg_parts.row(b, h, t) + tile * x.part;
  if (last < rows) store_global(parts + last * x.dg_parts.stride_l, dg);
  if (last + 1 < rows) store_global(parts + (last + 1) * x.dg_parts.stride_l, dg - db);
}

/// Grid (chunks and tiles of Dk, H, B).
template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kDk <= 128 ? 2 : 1)
    gradients_kernel(Bf16BackwardArguments g, Workspace x) {
  const int key_tiles = (g.Dk - 1) / Shape::kDv + 1;
  compute_gradients<Shape>(g, x, HeadOfChunks(int(blockIdx.z), int(blockIdx.y), g.H, x.N), int(blockIdx.x) / key_tiles,
                           int(blockIdx.x) % key_tiles);
}

/// The same of packed sequences. Grid (packed_chunks() and tiles of Dk, H, B).
template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kDk <= 128 ? 2 : 1)
    packed_gradients_kernel(PackedBf16BackwardArguments p, Workspace all) {
  const int key_tiles = (p.all.Dk - 1) / Shape::kDv + 1;
  const PackedChunk chunk(p.cu_seqlens, p.N, int(blockIdx.x) / key_tiles);
  if (chunk.begin == chunk.end) return;
  const int n = chunk.sequence, begin = load_global(p.cu_seqlens + n);
  const Bf16BackwardArguments g = sequence_of(p.all, n, begin, chunk.end - begin);
  const Workspace x = from_position(all, begin);
  compute_gradients<Shape>(g, x, HeadOfChunks(int(blockIdx.z), int(blockIdx.y), g.H, x.N, n, p.N, begin, chunk.end),
                           (chunk.begin - begin) / kChunk, int(blockIdx.x) % key_tiles);
}

/// dg = the sum of its parts. Grid (blocks of kThreads positions, H, B).
__global__ void __launch_bounds__(kThreads)
    sum_kernel(View<const float> parts, std::int64_t part, int count, View<float> dg, int L) {
  const int t = int(blockIdx.x) * kThreads + int(threadIdx.x), h = int(blockIdx.y), b = int(blockIdx.z);
  if (t >= L) return;
  float sum = 0;
  for (int i = 0; i < count; ++i) sum += load_global(parts.row(b, h, t) + i * part);
  store_global(dg.row(b, h, t), sum);
}

/// Shared memory of gradients_kernel whose blocks have 64 or 128 columns of Dk.
std::size_t gradient_bytes(const Bf16BackwardArguments& g, int columns) {
  std::size_t bytes = 0;
  select_shape<GradientShape>(g.Dv, columns, [&]<class Shape>(Shape) { bytes = sizeof(ChunkTilesOf<Shape>); });
  return bytes;
}

/// Columns of Dk in a block of gradients_kernel.
int key_columns(const Bf16BackwardArguments& g) {
  return g.Dk <= 64 || g.Dv > 128 || !shared_memory_missing(gradient_bytes(g, 128)).empty() ? 64 : 128;
}

/// Bytes of what the kernels pass on, beside those of prepare().
struct Bytes {
  std::int64_t states, v_new, factors, blocks, dg;  // dS takes as much as S, and errors of v_new as much as v_new

  /// @param N chunks of a head
  Bytes(const Bf16BackwardArguments& g, int N)
      : states(std::int64_t(g.B) * g.H * N * g.Dk * g.Dv * 2),
        v_new(std::int64_t(g.B) * g.H * g.L * g.Dv * 2),
        factors(std::int64_t(g.B) * g.H * N * kChunk * 4),
        blocks(std::int64_t(g.B) * g.H * N * 3 * kBlockUnits * std::int64_t(sizeof(uint4))),
        dg(g.Dk <= key_columns(g) ? 0 : std::int64_t(g.B) * g.H * g.L * 4 * ceil_div(g.Dk, key_columns(g))) {}
  std::int64_t all() const { return 2 * states + blocks + 2 * v_new + factors + dg; }
};

/// Memory for what the kernels pass on, with what prepare() leaves.
/// @param arguments of prepare() @param N chunks of a head
template <class Arguments>
Workspace workspace_of(const Bf16BackwardArguments& g, int N, const Arguments& arguments) {
  const Bytes bytes(g, N);
  auto* memory = workspace<unsigned char>("gated_delta_rule --backward: tensor_core", std::size_t(bytes.all()));
  auto *dS = memory + bytes.states, *blocks = dS + bytes.states, *v_new = blocks + bytes.blocks;
  auto* factors = reinterpret_cast<float*>(v_new + 2 * bytes.v_new);
  auto* dg = reinterpret_cast<float*>(v_new + 2 * bytes.v_new + bytes.factors);
  const Workspace x{prepare(arguments, {kLeastBeta, factors, reinterpret_cast<uint4*>(blocks)}),
                    packed(reinterpret_cast<__nv_bfloat16*>(v_new), g.H, g.L, g.Dv),
                    packed(reinterpret_cast<__nv_bfloat16*>(v_new + bytes.v_new), g.H, g.L, g.Dv),
                    reinterpret_cast<uint4*>(memory),
                    reinterpret_cast<uint4*>(dS),
                    reinterpret_cast<uint4*>(blocks),
                    factors,
                    g.Dk <= key_columns(g) ? g.dg : packed(dg, g.H, g.L, 1),
                    std::int64_t(g.B) * g.H * g.L};
  end_part("prepare");
  return x;
}

/// Calls walks(shape, depth, bytes) with tiles of two chunks, or of one where there is no room for two; then
/// gradients(shape) with the shape of the last kernel; and adds up dg.
template <class Walks, class Gradients>
void start_kernels(const Bf16BackwardArguments& g, const Workspace& x, Walks walks, Gradients gradients) {
  select_shape(g.Dk, [&]<class Shape>(Shape shape) {
    constexpr std::size_t kTwo = kWalkBytes<GradientTiles<Shape>, 2>, kOne = kWalkBytes<GradientTiles<Shape>, 1>;
    if (shared_memory_missing(kTwo).empty()) {
      walks(shape, std::integral_constant<int, 2>(), kTwo);
    } else {
      walks(shape, std::integral_constant<int, 1>(), kOne);
    }
    end_part("walks");
  });
  select_shape<GradientShape>(g.Dv, key_columns(g), gradients);
  if (g.Dk > key_columns(g)) {
    launch(sum_kernel, {dim3(unsigned(ceil_div(g.L, kThreads)), unsigned(g.H), unsigned(g.B)), kThreads},
           read_only(x.dg_parts), x.part, ceil_div(g.Dk, key_columns(g)), g.dg, g.L);
  }
  end_part("gradients");
}

}  // namespace

void tensor_core_backward(const Bf16BackwardArguments& g) {
  const Bf16Arguments a = forward_of(g);
  const Workspace x = workspace_of(g, ceil_div(g.L, kChunk), a);
  const auto grid = [&](int blocks) { return dim3(unsigned(blocks), unsigned(g.H), unsigned(g.B)); };
  start_kernels(
      g, x,
      [&]<class Shape, int kDepth>(Shape, std::integral_constant<int, kDepth>, std::size_t bytes) {
        launch(walks_kernel<Shape, kDepth>, {grid(2 * ceil_div(g.Dv, kColumns)), kThreads, bytes}, g, a, x);
      },
      [&]<class Shape>(Shape) {
        launch(gradients_kernel<Shape>,
               {grid(x.N * ceil_div(g.Dk, key_columns(g))), unsigned(Shape::kThreads), sizeof(ChunkTilesOf<Shape>)}, g,
               x);
      });
}

void packed_tensor_core_backward(const PackedBf16BackwardArguments& p) {
  const Bf16BackwardArguments& g = p.all;
  const PackedSequences<Bf16Arguments> forward{forward_of(g), p.cu_seqlens, p.N};
  const int4* list = list_segments(p.cu_seqlens, whole_sequences(g.L, p.N));
  const Workspace x = workspace_of(g, packed_chunks(extents_of(g), p.N), forward);
  const auto grid = [&](int blocks) { return dim3(unsigned(blocks), unsigned(g.H), unsigned(g.B)); };
  start_kernels(
      g, x,
      [&]<class Shape, int kDepth>(Shape, std::integral_constant<int, kDepth>, std::size_t bytes) {
        launch(packed_walks_kernel<Shape, kDepth>, {grid(p.N * 2 * ceil_div(g.Dv, kColumns)), kThreads, bytes}, p, x,
               list);
      },
      [&]<class Shape>(Shape) {
        launch(packed_gradients_kernel<Shape>,
               {grid(x.N * ceil_div(g.Dk, key_columns(g))), unsigned(Shape::kThreads), sizeof(ChunkTilesOf<Shape>)}, p,
               x);
      });
  hand_states_on(p);
}

std::string tensor_core_backward_unsupported(const Bf16BackwardArguments& g) {
  if (g.Dv > 256) return "Dv > 256: a block holds all columns of three tiles";
  if (g.normalize_keys && g.Dk > key_columns(g)) {
    if (g.Dk > 128 || g.Dv > 128) return "keys are not normalised: a block does not have all of Dk";
    return shared_memory_missing(gradient_bytes(g, 128));
  }
  if (const std::string reason = tile::unsupported_extents({g.B, g.H, g.L, g.Dk, g.Dv}); !reason.empty()) return reason;
  const auto aligned = [](const auto&... views) { return (tile::has_aligned_rows(views) && ...); };
  if (!aligned(g.q, g.k, g.v, g.d_o, g.dq, g.dk, g.dv)) return "rows are not aligned to 16 bytes";
  std::size_t bytes = 0;
  select_shape(g.Dk, [&]<class Shape>(Shape) { bytes = kWalkBytes<GradientTiles<Shape>, 1>; });
  bytes = std::max(bytes, gradient_bytes(g, key_columns(g)));
  return shared_memory_missing(bytes);
}

std::int64_t tensor_core_backward_memory(const Bf16BackwardArguments& g) {
  return prepared_memory(forward_of(g)) + Bytes(g, ceil_div(g.L, kChunk)).all();
}

std::int64_t packed_tensor_core_backward_memory(const PackedBf16BackwardArguments& p) {
  const int N = packed_chunks(extents_of(p.all), p.N);
  const PackedSequences<Bf16Arguments> forward{forward_of(p.all), p.cu_seqlens, p.N};
  return prepared_memory(forward) + Bytes(p.all, N).all() + std::int64_t(sizeof(int4)) * p.N;
}

std::int64_t tensor_core_backward_bytes_moved(const Bf16BackwardArguments& g) {
  const Bytes bytes(g, ceil_div(g.L, kChunk));
  const std::int64_t heads = std::int64_t(g.B) * g.H, chunks = heads * ceil_div(g.L, kChunk), positions = heads * g.L;
  const std::int64_t keys = positions * g.Dk * 2, values = bytes.v_new, gates = positions * 4;
  const std::int64_t P = chunks * kBlockUnits * std::int64_t(sizeof(uint4)), decays = chunks * kDecays * 4;
  const std::int64_t key_tiles = ceil_div(g.Dk, key_columns(g)), value_tiles = ceil_div(g.Dv, kColumns);
  const std::int64_t state = 4 * heads * g.Dk * g.Dv;
  const auto there = [&](const View<const float>& view) { return view.data ? state : 0; };
  std::int64_t count =
      2 * keys + 2 * gates + prepared_memory(forward_of(g)) + bytes.factors + bytes.blocks;  // q, k, beta, g
  count += value_tiles * (keys + 2 * P + decays) + 2 * values + bytes.states;                // k, T, v; v_new, S
  count += value_tiles * (2 * keys + 3 * P + decays) + 2 * values + bytes.states;            // k, q, T, P, do; dv, dS
  count += key_tiles * (3 * values + gates + bytes.factors) + 3 * bytes.states + 4 * keys;   // do, v_new, dv; S, dS, S
  count += 2 * gates + key_tiles * gates;                                                    // beta, dbeta, dg
  if (key_tiles > 1) count += (key_tiles + 1) * gates;
  count += 4 * chunks * key_tiles;  // of T a mark
  return count + there(g.initial_state) + there(g.dfinal_state) + there(read_only(g.dinitial_state));
}

}  // namespace tutorial::gated_delta_rule
