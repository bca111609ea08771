/// @file
/// `one_anchor`: the rows of a chunk have one anchor, so P and A are products of warpgroups, too.
///
/// Idea: prepare_updates() cuts a chunk into sub-chunks, because exp(b_t - b_i) of a pair must not be divided into
/// factors that leave the range of numbers. Most of its instructions are due to that. But Q+ and K+, which the walk
/// needs anyway, already have the decays from the chunk's start, and K- has those to its end:
///
///     exp(b_t - b_i) = exp(b_t) exp(-b_end) exp(b_end - b_i)
///
/// So P is one product of Q+ and K-, and A one of K+ and K-, if exp(-b_end) is multiplied into the left factor on its
/// way to the tensor cores. exp(-b_end) is at least 1. It does no harm as long as everything stays in the range of
/// bf16. This is the short way (chunk_anchor.cuh, which has the bound). A chunk that forgets more takes the long way
/// with its sub-chunks (sub_chunk_anchors.cuh). Each block finds out which of the two its chunk can take.
///
/// All that happens where q, k and g lie in shared memory (chunk_slot.cuh): bulk copies bring them, Q+, K+ and K- take
/// their places, and bulk copies store what the walk reads.
///
///     memory        q k g ->                                                            -> Q+ K+ -> R -> J
///     threads             b, Q+, K+, K- | exp(-b_end) Q+, K+ |      inverse in blocks |
///     tensor cores                                           | P, A                   | R, J
///
/// Grows out of: 4_two_products.cu; large step: the kernel that prepares is written anew, P and A as products
/// of the warpgroup, and rows by running sums where they lie
/// Improves on: in `two_products` the kernel that prepares takes 60 % of the time and more, and memory is not what it
/// waits for.
/// Unchanged: the walk, and what it reads.
///
/// Equation: that of `two_products`. What is rounded: the same, and some factors once more. On the short way these are
/// the left factors of P and A; on the long way the keys of the blocks on the diagonal, and with `normalize_keys` all
/// keys.
///
/// Shapes: those of `two_products`.
/// Thread mapping: block (n, h, b) prepares chunk n of head (b, h). For the rows a lane has two columns of half of the
/// chunk's positions. Warp w has rows 16 w to 16 w + 15 of P, A, R and J, and row 3 - w of the blocks of U.
/// Synchronization: one barrier counts the bytes of q, k and g. Barriers of the block: on the short way, K- takes the
/// place of g, eight rows of each half of the chunk at a time; the rows are there; on the long way, the rows of
/// sub-chunks have been read; U takes the place of decays and of blocks; U is there; J takes the place of K-.
/// Fences: before bulk copies and products of the warpgroup read what threads have stored.
/// Resources: a slot of 64 KB and 10 KB for the blocks of the inverse, so three blocks per multiprocessor.
/// Work: 256 Dk operations per position for P and A on the short way, and two exponentials per position and column; J,
/// R and the inverse as in prepare_updates().
/// Bytes: as `two_products`, but rows that do not exist are not loaded.
/// Bound by: the memory's bandwidth while it prepares; the chain in the walk, with many heads the bandwidth, too.
/// Requires: what `two_products` requires, and rows of g aligned to 16 bytes.
/// Weakness: Q+, K+, J and R go through memory.
/// Sources: those of `two_products` and of chunk_anchor.cuh.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "05_deltanet_wy/chunk/warpgroup_inverse.cuh"
#include "05_deltanet_wy/chunk/zero_starts.cuh"
#include "05_deltanet_wy/kda/chunk_anchor.cuh"
#include "05_deltanet_wy/kda/chunk_scores.cuh"
#include "05_deltanet_wy/kda/chunk_slot.cuh"
#include "05_deltanet_wy/kda/prepare_updates.hpp"
#include "05_deltanet_wy/kda/store_J_and_R.cuh"
#include "05_deltanet_wy/kda/sub_chunk_anchors.cuh"
#include "05_deltanet_wy/kda/transition_bound.cuh"
#include "common/device/bulk_copy.cuh"
#include "common/device/device.hpp"
#include "common/device/early_start.cuh"
#include "common/device/launch.cuh"
#include "common/device/mbarrier.cuh"
#include "common/device/memory.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/walked_heads.cuh"
#include "common/device/wgmma.cuh"
#include "common/device/workspace.hpp"
#include "common/parts.hpp"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/float_panels.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::kda {
namespace {

using namespace tile;
using namespace delta_rule;  // blocks and their inverse

constexpr unsigned kOfBlock = 1;  // named barrier: all threads
constexpr int kBlocksAtOnce = 3;  // on a multiprocessor

/// The tensors that bulk copies read and write.
struct AnchorMaps {
  TensorMap q, k, g;  ///< chunks
  TensorMap Q, K;     ///< chunks
  UpdateMaps updates;
};

/// Bytes of shared memory: a slot, and blocks of the inverse, in whose place is U's rounding error later.
template <int kDk>
constexpr std::size_t kSharedBytes = ChunkSlot<kDk>::kBytes + SplitBlocks::kBytes;

/// Starts to load q, k and g. Called by one thread.
template <int kDk>
__device__ __forceinline__ void load_chunk(const ChunkSlot<kDk>& slot, const AnchorMaps& maps, Barrier& barrier,
                                           const TileOrigin& origin) {
  const auto g = slot.g();
  barrier.arrive_expect(2 * kChunk * kDk * unsigned(sizeof(__nv_bfloat16)) + g.kLoadedBytes);
  load_panels(g, maps.g, barrier, origin);
  load_panels(slot.K(), maps.k, barrier, origin);
  load_panels(slot.Q(), maps.q, barrier, origin);
}

/// Starts to store a chunk's rows. Called by one thread.
template <int kDk>
__device__ __forceinline__ void store_rows(const TensorMap& map, const PanelTile<kDk>& tile, TileOrigin origin) {
#pragma unroll
  for (int panel = 0; panel < kDk / 64; ++panel) {
    store_tile(map, tile.data + panel * tile.kPanelElements, origin);
    origin.column += 64;
  }
}

/// Prepares chunk n of head (b, h). All threads of a block call.
/// @param raw counts the bytes of q, k and g, in a phase of this parity
template <int kDk, bool kNormalize>
__device__ __forceinline__ void prepare_chunk(const Bf16Arguments& a, const PreparedUpdates& out,
                                              const AnchorMaps& maps, Barrier& raw, unsigned parity, int b, int h,
                                              int n) {
  __shared__ int ways[kWarpgroup / 32];  // that the warps' columns allow
  __shared__ float factors[kChunk];      // of keys
  const int t = n * kChunk;
  // The shuffle tells the compiler that `warp` is the same in all lanes. Branches around products depend on it.
  const int thread = int(threadIdx.x), warp = __shfl_sync(kAllLanes, thread / 32, 0), lane = int(lane_index());
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const ChunkSlot<kDk> slot{memory};
  auto* behind_slot = reinterpret_cast<__nv_bfloat16*>(memory + ChunkSlot<kDk>::kBytes);
  const SplitBlocks blocks{behind_slot};
  const SquarePanel U[2] = {slot.U(), {behind_slot}};  // rounded, and the rounding error
  const TileOrigin origin{.position = t, .head = h, .batch = b};
  const std::int64_t chunk = (std::int64_t(b) * a.H + h) * out.N + n;
  if (thread == 0) load_chunk(slot, maps, raw, origin);
  const int position = t + warp * kBlock + lane;
  const float beta = lane < kBlock && position < a.L ? load_global(a.beta.row(b, h, position)) : 0.0f;
  __syncthreads();
  raw.wait(parity);

  if (kNormalize) find_factors(slot, warp, factors);
  const Way way = decay_with_anchors<kNormalize>(slot, warp, ways, kOfBlock, factors);
  const bool is_short = way == kOneAnchor;
  if (way == kLongWay) {
    if (kNormalize) normalize_keys(slot, warp, factors);
    decay_sub_chunk(slot, warp);
  }
  __syncthreads();
  BlockRow scores = {}, A = {};
  if (is_short) {
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
  ScoreFragments P;
  round_scores(P, scores, warp);

  SplitRow blocks_of_U;
  invert_scores(blocks_of_U, blocks, kOfBlock, warp, A, beta);
  if (thread < a.Dk) store_global(out.decays + chunk * a.Dk + thread, slot.prepared_decays()[thread]);
  const float largest_decay = warp == 0 ? largest_of(slot.prepared_decays(), a.Dk) : 0;
  fence_async_proxy();  // the blocks, too, were stored for ldmatrix: U replaces them for products
  __syncthreads();      // U comes where the decays and the blocks lie
  if (thread == 0) {
    store_rows(maps.Q, slot.Q(), origin);
    store_rows(maps.K, slot.K(), origin);
  }
  put_row(U[0], U[1], blocks_of_U, kBlocks - 1 - warp);
  fence_async_proxy();
  __syncthreads();

  // -R = P U, and -J = U^T K-.
  WarpgroupScores R;
  WarpgroupState<kDk> J;
  const auto K_end = k_from_row_to_row(slot.K_end());
  wgmma_fence(R, J, P);
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    const auto u = k_from_row_to_row(U[part]);
#pragma unroll
    for (int i = 0; i < kChunk; i += 16) wgmma<kChunk>(R, P[i / 16], u.along_k(i), part + i > 0);
  }
  wgmma_commit();
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    const auto u = k_from_row_to_row(U[part]);
#pragma unroll
    for (int i = 0; i < kChunk; i += 16) wgmma<kDk>(J, u.along_k(i), K_end.along_k(i), part + i > 0);
  }
  wgmma_commit();
  const TileOrigin rows{.position = t + warp * kBlock, .head = h, .batch = b};
  wgmma_wait<1>(R);
  store_sums(slot.R(), maps.updates.R, R, warp * kBlock, rows);
  wgmma_wait<0>(J);
  wait_at_named_barrier(kOfBlock, kWarpgroup);  // no warp needs K- any more
  store_sums(slot.J(), maps.updates.J, J, warp * kBlock, rows);
  if (out.bounds && n % out.segment >= out.segment - kMostWarmUp) {
    const float bound = bound_of_rows(J, slot.K());
    if (lane == 0) store_global(out.bounds + chunk * 4 + warp, largest_decay + bound);
  }
  if (lane == 0) {
    commit_stores();
    wait_stores_read<0>();
  }
}

/// Grid (N, H, B).
template <int kDk, bool kNormalize>
__global__ void __launch_bounds__(kWarpgroup, kBlocksAtOnce)
    one_anchor_kernel(Bf16Arguments a, PreparedUpdates out, const __grid_constant__ AnchorMaps maps) {
  __shared__ Barrier raw;
  let_next_kernel_start();
  if (threadIdx.x == 0) {
    raw.init(1);
    fence_barrier_init();
  }
  prepare_chunk<kDk, kNormalize>(a, out, maps, raw, 0, int(blockIdx.z), int(blockIdx.y), int(blockIdx.x));
}

/// The same for the heads that the kernel before has left, which often are none: as many blocks as run at once share out
/// their chunks.
template <int kDk, bool kNormalize>
__global__ void __launch_bounds__(kWarpgroup, kBlocksAtOnce)
    chunks_left_kernel(Bf16Arguments a, PreparedUpdates out, const __grid_constant__ AnchorMaps maps) {
  __shared__ Barrier raw;
  let_next_kernel_start();
  if (threadIdx.x == 0) {
    raw.init(1);
    fence_barrier_init();
  }
  unsigned parity = 0;
  for_each_chunk_left(out.heads, a.B * a.H, out.N, [&](int head, int n) {
    prepare_chunk<kDk, kNormalize>(a, out, maps, raw, parity, head / a.H, head % a.H, n);
    parity ^= 1;
    __syncthreads();  // copies and threads have read the slot
    fence_async_proxy();
  });
}

}  // namespace

PreparedUpdates prepare_with_one_anchor(const Bf16Arguments& a, int segment, const WalkedHeads& heads) {
  PreparedUpdates out = reserve_updates(a);
  out.heads = heads;
  out.segment = segment;
  if (segment > 0) out.bounds = workspace<float>("kda: bounds", std::size_t(std::int64_t(a.B) * a.H * out.N * 4));
  const TensorSizes keys = tensor_sizes(a, a.Dk);
  const AnchorMaps maps{tile_map(a.q, keys, kChunk),           tile_map(a.k, keys, kChunk),
                        float_tile_map(a.g, keys, kChunk),     rows_map(out, a, out.Q, a.Dk, kChunk),
                        rows_map(out, a, out.K, a.Dk, kChunk), stored_maps(out, a)};
  const auto start = [&]<int kDk, bool kNormalize>() {
    LaunchConfig config(dim3(unsigned(out.N), unsigned(a.H), unsigned(a.B)), unsigned(kWarpgroup), kSharedBytes<kDk>);
    if (heads.walked == nullptr) return launch(one_anchor_kernel<kDk, kNormalize>, config, a, out, maps);
    const std::int64_t chunks = std::int64_t(a.B) * a.H * out.N, most = kBlocksAtOnce * multiprocessor_count();
    config.grid = dim3(unsigned(std::min(chunks, most)));
    config.starts_early = true;
    launch(chunks_left_kernel<kDk, kNormalize>, config, a, out, maps);
  };
  if (a.Dk <= 64) {
    a.normalize_keys ? start.template operator()<64, true>() : start.template operator()<64, false>();
  } else {
    a.normalize_keys ? start.template operator()<128, true>() : start.template operator()<128, false>();
  }
  return out;
}

void one_anchor(const Bf16Arguments& a) {
  const PreparedUpdates updates = prepare_with_one_anchor(a);
  end_part("prepare");
  walk_with_updates(a, updates);
  end_part("walk");
}

}  // namespace tutorial::kda
