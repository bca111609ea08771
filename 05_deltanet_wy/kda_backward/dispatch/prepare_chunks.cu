/// @file
/// The kernel that runs first in `warpgroups`: that of `one_anchor` of the operator up to the inverse. T, P and K- go to
/// memory where J and R went, because both walks and the gradients need them.
///
/// A chunk where many keys are alike is marked. There P and T are computed from q, k and g in fp32 (kda_backward/dispatch/alike_scores.cuh),
/// and what rounding leaves out of P and K- goes to memory, too.
/// Unchanged: rows, scores and their three ways, inverse, memory and barriers.
/// Equation: prepare_chunks.hpp.
/// Shapes: q, k [B, H, L, Dk] bf16, g [B, H, L, Dk] and beta [B, H, L] fp32 in; PreparedChunks out.
/// Thread mapping: block (n, h, b) prepares chunk n of head (b, h).
/// Synchronization: that of `one_anchor`, without the barrier for J, and one at which the block learns of alike keys.
/// Fences: before bulk copies read what threads have stored.
/// Resources: 74 KB of shared memory: three blocks per multiprocessor.
/// Bytes: per position 8 Dk + 4 in; 6 Dk + 384 and Dk / 16 of decays out. In marked chunks 8 Dk more in, 2 Dk + 128 out.
/// Bound by: the memory's bandwidth.
/// Requires: an empty one_anchor_unsupported().

#include <cuda_runtime.h>

#include "05_deltanet_wy/chunk/warpgroup_inverse.cuh"
#include "05_deltanet_wy/delta_rule_backward/forward_arguments.hpp"
#include "05_deltanet_wy/kda/chunk_anchor.cuh"
#include "05_deltanet_wy/kda/chunk_scores.cuh"
#include "05_deltanet_wy/kda/chunk_slot.cuh"
#include "05_deltanet_wy/kda/store_J_and_R.cuh"
#include "05_deltanet_wy/kda/sub_chunk_anchors.cuh"
#include "05_deltanet_wy/kda_backward/dispatch/alike_scores.cuh"
#include "05_deltanet_wy/kda_backward/dispatch/prepare_chunks.hpp"
#include "common/ceil_div.hpp"
#include "common/device/bulk_copy.cuh"
#include "common/device/early_start.cuh"
#include "common/device/launch.cuh"
#include "common/device/mbarrier.cuh"
#include "common/device/memory.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/workspace.hpp"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/float_panels.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::kda {
namespace {

using namespace tile;
using namespace delta_rule;  // blocks and their inverse

constexpr unsigned kOfBlock = 1;  // named barrier: all threads

/// The tensors that bulk copies read and write.
struct ChunkMaps {
  TensorMap q, k, g;
  TensorMap Q, K, K_end, matrices;
};

/// Bytes of shared memory: a slot, and blocks of the inverse, in whose place is T's rounding error later.
template <int kDk>
constexpr std::size_t kSharedBytes = ChunkSlot<kDk>::kBytes + SplitBlocks::kBytes;
static_assert(AlikeSlice::kBytes <= SplitBlocks::kBytes, "a marked chunk's scores take the place of the inverse");

/// Starts to store a tile. Called by one thread.
template <int kColumns>
__device__ __forceinline__ void store_panels(const TensorMap& map, const PanelTile<kColumns>& tile, TileOrigin origin) {
#pragma unroll
  for (int panel = 0; panel < kColumns / 64; ++panel) {
    store_tile(map, tile.data + panel * tile.kPanelElements, origin);
    origin.column += 64;
  }
}

/// The length of row t, of which a thread has one half and its neighbour the other.
template <int kDk>
__device__ __forceinline__ float length_of_row(const PanelTile<kDk>& rows, int t) {
  const int first = int(lane_index()) % 2 * kDk / 2;
  float squares = 0;
#pragma unroll 4
  for (int d = first; d < first + kDk / 2; d += 8) {
    const uint4 units = *reinterpret_cast<const uint4*>(rows.data + rows.unit(t, d));
    for (const std::uint32_t x : {units.x, units.y, units.z, units.w}) {
      const float2 two = unpack(x);
      squares += two.x * two.x + two.y * two.y;
    }
  }
  return sqrtf(squares + shuffle_xor(squares, 1));
}

/// The bound of a chunk (chunk/zero_starts.cuh). It turns S into (diag(exp(b_end)) - K-^T T K+) S + K-^T T V, and a sum
/// stretches no vector by more than its terms do together:
///
///     max of exp(b_end) + sum over t and i <= t of |K-_t| |T_ti| |K+_i|
///
/// Called by the block's threads when K+, K- and T are in shared memory. @param decay exp(b_end) of the thread's column
template <int kDk>
__device__ __forceinline__ float bound_of_chunk(const ChunkSlot<kDk>& slot, const SquarePanel& T, int warp,
                                                float decay) {
  __shared__ float lengths[kChunk], of_warps[2][kWarpgroup / 32];
  constexpr float kRounding = 1.01f;  // of T, of which there is a second part, and of these sums
  const int lane = int(lane_index()), t = warp * kBlock + lane / 2;
  const float of_key = length_of_row(slot.K(), t), of_end = length_of_row(slot.K_end(), t);
  if (lane % 2 == 0) lengths[t] = of_key;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int i = lane % 2 * kChunk / 2; i < (lane % 2 + 1) * kChunk / 2; i += 8) {
    const uint4 units = *reinterpret_cast<const uint4*>(T.data + T.unit(t, i));
    const std::uint32_t two[] = {units.x, units.y, units.z, units.w};
#pragma unroll
    for (int x = 0; x < 4; ++x) {
      const float2 of_T = unpack(two[x]);
      sum += fabsf(of_T.x) * lengths[i + 2 * x] + fabsf(of_T.y) * lengths[i + 2 * x + 1];
    }
  }
  sum = warp_sum(of_end * sum);
  const float largest = warp_max(decay);
  if (lane == 0) of_warps[0][warp] = sum, of_warps[1][warp] = largest;
  __syncthreads();
  float bound = 0, most = 0;
  for (int w = 0; w < kWarpgroup / 32; ++w) bound += of_warps[0][w], most = max(most, of_warps[1][w]);
  return most + kRounding * bound;
}

/// P and A of a marked chunk, and what rounding leaves out of K-.
template <int kDk>
__device__ __forceinline__ void scores_of_marked_chunk(BlockRow& P, BlockRow& A, const Bf16Arguments& a,
                                                       const PreparedChunks& out, const ChunkSlot<kDk>& slot,
                                                       float* memory, int b, int h, int n, int warp,
                                                       const float* factors) {
  const PanelTile<kDk> K_end = slot.K_end();
  __nv_bfloat16* errors = out.K_errors + ((std::int64_t(b) * a.H + h) * out.N + n) * kChunk * a.Dk;
  scores_of_alike_keys(
      P, A, a, b, h, n * kChunk, warp, warp, factors, memory,
      [&](int row, int d) { return __bfloat162float(K_end.data[K_end.unit(row, d / 8 * 8) + d % 8]); },
      [&](int row, int d, float x) { store_global(errors + row * a.Dk + d, __nv_bfloat16(x)); });
}

/// Writes what rounding leaves out of the warp's rows of P. @param P before it is rounded @param rows [64, 64]
__device__ __forceinline__ void store_score_errors(__nv_bfloat16* rows, const BlockRow& P, int warp) {
  const int lane = int(lane_index());
#pragma unroll
  for (int c = 0; c < kBlocks; ++c) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i % 2 * 8, column = i / 2 * 8 + lane % 4 * 2;
      float two[] = {P[c][i / 2][i % 2 * 2], P[c][i / 2][i % 2 * 2 + 1]};
#pragma unroll
      for (int x = 0; x < 2; ++x) {
        if (c > warp || (c == warp && column + x > row)) two[x] = 0;
      }
      keep_errors(two);
      auto* to = rows + (warp * kBlock + row) * kChunk + c * kBlock + column;
      store_global(reinterpret_cast<std::uint32_t*>(to), pack(two[0], two[1]));
    }
  }
}

/// Grid (N, H, B).
template <int kDk, bool kNormalize>
__global__ void __launch_bounds__(kWarpgroup, 3)
    prepare_chunks_kernel(Bf16Arguments a, PreparedChunks out, const __grid_constant__ ChunkMaps maps) {
  __shared__ Barrier raw;
  __shared__ float factors[kChunk];      // of keys
  __shared__ int ways[kWarpgroup / 32];  // that the warps' columns allow; later whether they allow one anchor
  const int b = int(blockIdx.z), h = int(blockIdx.y), n = int(blockIdx.x), t = n * kChunk;
  // The shuffle tells the compiler that `warp` is the same in all lanes. Branches around products depend on it.
  const int thread = int(threadIdx.x), warp = __shfl_sync(kAllLanes, thread / 32, 0), lane = int(lane_index());
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const ChunkSlot<kDk> slot{memory};
  auto* behind_slot = reinterpret_cast<__nv_bfloat16*>(memory + ChunkSlot<kDk>::kBytes);
  const SplitBlocks blocks{behind_slot};
  const SquarePanel U[2] = {slot.U(), {behind_slot}}, scores_of_queries = slot.R();  // -T in two bf16, P
  const TileOrigin origin{.position = t, .head = h, .batch = b};
  const std::int64_t chunk = (std::int64_t(b) * a.H + h) * out.N + n;
  let_next_kernel_start();
  if (thread == 0) {
    raw.init(1);
    fence_barrier_init();
    const auto g = slot.g();
    raw.arrive_expect(2 * kChunk * kDk * unsigned(sizeof(__nv_bfloat16)) + g.kLoadedBytes);
    load_panels(g, maps.g, raw, origin);
    load_panels(slot.K(), maps.k, raw, origin);
    load_panels(slot.Q(), maps.q, raw, origin);
  }
  const int position = t + warp * kBlock + lane;
  const float beta =
      lane < kBlock && position < a.L ? fmaxf(load_global(a.beta.row(b, h, position)), kLeastBeta) : 0.0f;
  __syncthreads();
  raw.wait(0);

  if (kNormalize) find_factors(slot, warp, factors);
  const Way way = decay_with_anchors<kNormalize>(slot, warp, ways, kOfBlock, factors);
  if (way == kLongWay) {
    if (kNormalize) normalize_keys(slot, warp, factors);
    decay_sub_chunk(slot, warp);
  }
  __syncthreads();
  if (kNormalize && thread < kChunk) store_global(out.factors + chunk * kChunk + thread, factors[thread]);
  BlockRow scores = {}, A = {};
  if (way == kOneAnchor) {
    scores_with_one_anchor(reinterpret_cast<WarpgroupScores&>(scores), slot.Q(), slot, warp);
    scores_with_one_anchor(reinterpret_cast<WarpgroupScores&>(A), slot.K(), slot, warp);
  } else if (way == kTwoAnchors) {
    scores_with_two_anchors(scores, slot.Q(), slot, warp);
    scores_with_two_anchors(A, slot.K(), slot, warp);
    wait_at_named_barrier(kOfBlock, kWarpgroup);  // no warp needs the keys' rows any more
    decay_keys_to_end(slot, thread);
  } else {
    decayed_scores(scores, slot, warp, 0);
    decayed_scores(A, slot, warp, 1);
    __syncthreads();  // no warp needs rows of sub-chunks any more
    decay_to_ends(slot, thread);
  }
  const bool alike = __syncthreads_or(are_alike(A, warp)) != 0;
  if (alike) {
    scores_of_marked_chunk(scores, A, a, out, slot, reinterpret_cast<float*>(behind_slot), b, h, n, warp,
                           kNormalize ? factors : nullptr);
    store_score_errors(out.P_errors + chunk * kChunk * kChunk, scores, warp);
  }
  ScoreFragments P;
  round_scores(P, scores, warp);
  // The mark (chunk/alike_keys.cuh): of -T it is row 0 of the blocks, too, but that is another warp's.
  const std::uint32_t mark = alike && lane == 3 ? 0x80000000u : 0;
  if (warp == 0) P[0][2] |= mark;

  SplitRow blocks_of_U;
  invert_scores(blocks_of_U, blocks, kOfBlock, warp, A, beta);
  const float decay = thread < kDk ? slot.prepared_decays()[thread] : 1.0f;
  const bool allows = __all_sync(kAllLanes, decay >= ex2(kLeastPowerOfChunk));
  if (lane == 0) ways[warp] = allows;
  fence_async_proxy();  // the blocks, too, were stored for ldmatrix: U replaces them for copies
  __syncthreads();      // U comes where the decays and the blocks lie
  const bool has_anchor = ways[0] && ways[1] && ways[2] && ways[3];
  if (thread < a.Dk) store_global(out.decays + chunk * a.Dk + thread, has_anchor ? -decay : decay);
  if (thread == 0) {
    store_global(out.anchors + chunk, has_anchor);
    store_panels(maps.Q, slot.Q(), origin);
    store_panels(maps.K, slot.K(), origin);
    store_panels(maps.K_end, slot.K_end(), origin);
  }
  if (warp == kBlocks - 1) blocks_of_U[0].high[2] |= mark;
  put_row(U[0], U[1], blocks_of_U, kBlocks - 1 - warp);
  put_fragments(scores_of_queries, P);
  fence_async_proxy();
  __syncthreads();
  if (thread == 0) {
    TileOrigin rows{.position = n * kMatrixRows, .head = h, .batch = b};
    for (const SquarePanel& matrix : {U[0], U[1], scores_of_queries}) {
      store_panels(maps.matrices, matrix, rows);
      rows.position += kChunk;
    }
    commit_stores();
  }
  if (out.bounds) {
    const float bound = bound_of_chunk(slot, U[0], warp, thread < a.Dk ? decay : 0.0f);
    if (thread == 0) store_global(out.bounds + chunk, bound);
  }
  if (thread == 0) wait_stores_read<0>();
}

std::int64_t all_chunks(const Bf16Arguments& a) {
  return std::int64_t(a.B) * a.H * ceil_div(a.L, kChunk);
}

}  // namespace

PreparedChunks prepare_chunks(const Bf16Arguments& a, float* bounds) {
  const std::int64_t chunks = all_chunks(a), elements = chunks * kChunk * a.Dk, N = ceil_div(a.L, kChunk);
  auto* rows = workspace<__nv_bfloat16>("kda --backward: decayed q and k", std::size_t(3 * elements));
  auto* matrices =
      workspace<__nv_bfloat16>("kda --backward: T and P", std::size_t(chunks * kMatrixRows * std::int64_t(kChunk)));
  auto* decays = workspace<float>("kda --backward: decays of chunks", std::size_t(chunks * a.Dk));
  auto* anchors = workspace<int>("kda --backward: anchors of chunks", std::size_t(chunks));
  auto* factors =
      a.normalize_keys ? workspace<float>("kda --backward: factors of keys", std::size_t(chunks * kChunk)) : nullptr;
  auto* K_errors = workspace<__nv_bfloat16>("kda --backward: errors of K", std::size_t(elements));
  auto* P_errors =
      workspace<__nv_bfloat16>("kda --backward: errors of P", std::size_t(chunks * kChunk * std::int64_t(kChunk)));
  const PreparedChunks out{int(N), rows,     rows + elements, rows + 2 * elements, matrices, decays, anchors, factors,
                           bounds, K_errors, P_errors};
  const TensorSizes keys = tensor_sizes(a, a.Dk);
  const auto map = [&](__nv_bfloat16* data, std::int64_t rows, int columns) {
    return tile_map(packed(data, a.H, rows, columns), {a.B, a.H, rows, columns}, kChunk);
  };
  const ChunkMaps maps{tile_map(a.q, keys, kChunk),
                       tile_map(a.k, keys, kChunk),
                       float_tile_map(a.g, keys, kChunk),
                       map(out.Q, N * kChunk, a.Dk),
                       map(out.K, N * kChunk, a.Dk),
                       map(out.K_end, N * kChunk, a.Dk),
                       map(out.matrices, N * kMatrixRows, kChunk)};
  const auto start = [&](auto kernel, std::size_t shared_bytes) {
    launch(kernel, {dim3(unsigned(out.N), unsigned(a.H), unsigned(a.B)), unsigned(kWarpgroup), shared_bytes}, a, out,
           maps);
  };
  if (a.Dk <= 64) {
    start(a.normalize_keys ? prepare_chunks_kernel<64, true> : prepare_chunks_kernel<64, false>, kSharedBytes<64>);
  } else {
    start(a.normalize_keys ? prepare_chunks_kernel<128, true> : prepare_chunks_kernel<128, false>, kSharedBytes<128>);
  }
  return out;
}

std::int64_t prepared_chunks_memory(const Bf16Arguments& a) {
  const std::int64_t factors = a.normalize_keys ? 4 * kChunk : 0;
  return all_chunks(a) *
         (kChunk * 8 * std::int64_t(a.Dk) + 2 * (kMatrixRows + kChunk) * kChunk + 4 * a.Dk + 4 + factors);
}

}  // namespace tutorial::kda
