#pragma once
/// @file
/// A block of `cluster` (cluster.cu): its shared memory, and what all warpgroups do but the chain.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "05_deltanet_wy/chunk/warpgroup_products.cuh"
#include "05_deltanet_wy/kda.hpp"
#include "05_deltanet_wy/kda/chunk_anchor.cuh"
#include "05_deltanet_wy/kda/chunk_scores.cuh"
#include "05_deltanet_wy/kda/clear_rows.cuh"
#include "05_deltanet_wy/kda/store_J_and_R.cuh"
#include "05_deltanet_wy/kda/sub_chunk_anchors.cuh"
#include "common/device/bulk_copy.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/mbarrier.cuh"
#include "common/device/memory.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/pack.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/push_shared.cuh"
#include "common/device/stmatrix.cuh"
#include "common/device/warp.cuh"
#include "common/device/wgmma.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/float_panels.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::kda {

/// The tensors that bulk copies read, and o. A kernel takes them as `const __grid_constant__ RawMaps`.
struct RawMaps {
  TensorMap q, k, v, g, o;
};

/// Requires: an empty one_anchor_unsupported().
inline RawMaps raw_maps(const Bf16Arguments& a) {
  const TensorSizes keys = tile::tensor_sizes(a, a.Dk), values = tile::tensor_sizes(a, a.Dv);
  return {tile_map(a.q, keys, tile::kChunk), tile_map(a.k, keys, tile::kChunk), tile_map(a.v, values, tile::kChunk),
          tile::float_tile_map(a.g, keys, tile::kChunk), tile::output_map(a)};
}

inline constexpr int kOwnSlots = 2;           ///< of a block: chunks that it prepares
inline constexpr int kPeerSlot = kOwnSlots;   ///< the slot of the chunks that come from the other block
inline constexpr int kSlots = kOwnSlots + 1;  ///< in all

/// The rank of the block that prepares chunk n.
__device__ __forceinline__ int rank_of(int n) {
  return n % 2;
}

/// Barriers of a block. They lie in dynamic shared memory, as everything that another block reaches.
struct ClusterBarriers {
  Barrier raw[kOwnSlots];  ///< q, k and g are there
  Barrier full[kSlots], empty[kSlots];
  Barrier v_full, v_empty;
  Barrier output_full, output_empty;
  Barrier place_free;                    ///< the other block's chain has read what this block has pushed
  int ways[kOwnSlots][4];                ///< that each warp's columns allow (chunk_anchor.cuh)
  float factors[tile::kChunk];           ///< of keys that are still to be normalised
  alignas(16) unsigned char outbox[16];  ///< bytes of a message; their values do not matter
  alignas(16) unsigned char inbox[16];   ///< those of the other block

  /// Called by one thread of the block.
  __device__ __forceinline__ void init() {
    for (Barrier& barrier : raw) barrier.init(1);
    for (int i = 0; i < kSlots; ++i) full[i].init(1), empty[i].init(4);
    v_full.init(1);
    v_empty.init(4);
    output_full.init(4);
    output_empty.init(1);
    place_free.init(1);
    fence_barrier_init();
  }
};

/// Where the walk of a block stands: a Ring whose stages are slots, of its own chunks and those of the other block in
/// turn.
class SlotRing {
 public:
  /// Stands before chunk 0. @param rank of the block
  __device__ __forceinline__ explicit SlotRing(int rank) : rank_(rank) {}

  /// The slot of the next chunk.
  __device__ __forceinline__ int stage() const { return is_own() ? n_ / 2 % kOwnSlots : kPeerSlot; }
  /// Waits until it is full.
  __device__ __forceinline__ void wait(Barrier* full, SourceLocation where = SourceLocation::current()) const {
    full[stage()].wait_cluster(unsigned(is_own() ? n_ / 2 / kOwnSlots : n_ / 2) % 2, where);
  }
  /// Goes on to the next chunk.
  __device__ __forceinline__ void advance() { ++n_; }

 private:
  __device__ __forceinline__ bool is_own() const { return rank_of(n_) == rank_; }

  int rank_, n_ = 0;
};

/// What a walk reads of a slot beside the decays.
template <int kDk>
struct WalkTiles {
  tile::PanelTile<kDk> K, Q, J;  ///< K+, Q+, -J
  delta_rule::SquarePanel R;     ///< -R

  /// @param slot a full one
  __device__ __forceinline__ explicit WalkTiles(const ChunkSlot<kDk>& slot)
      : K(slot.K()), Q(slot.Q()), J(slot.J()), R(slot.R()) {}
};

/// A block's shared memory.
template <class Shape>
struct ClusterMemory {
  static constexpr int kValueBytes = int(delta_rule::ValuePanel::kPanelBytes);
  static constexpr int kV = kSlots * ChunkSlot<Shape::kDk>::kBytes, kO = kV + kValueBytes, kP = kO + kValueBytes;
  static constexpr int kSplit = kP + int(delta_rule::SquarePanel::kPanelBytes);
  static constexpr int kBarriers = kSplit + delta_rule::SplitBlocks::kBytes;
  static constexpr int kBytes = kBarriers + int(sizeof(ClusterBarriers));

  unsigned char* memory;  ///< kBytes, aligned to 1024

  /// A slot of 64 KB.
  __device__ __forceinline__ ChunkSlot<Shape::kDk> slot(int i) const {
    return {memory + i * ChunkSlot<Shape::kDk>::kBytes};
  }
  /// The tile of V.
  __device__ __forceinline__ delta_rule::ValuePanel V() const { return {at(kV)}; }
  /// The tile of O.
  __device__ __forceinline__ delta_rule::ValuePanel O() const { return {at(kO)}; }
  /// The scores, on their way from one warpgroup to the other.
  __device__ __forceinline__ delta_rule::SquarePanel P() const { return {at(kP)}; }
  /// What the warpgroup of the inverse needs for itself.
  __device__ __forceinline__ delta_rule::SplitBlocks blocks() const { return {at(kSplit)}; }
  /// U, of which part 0 is rounded and part 1 the rounding error. Each takes the place of what is not needed any more:
  /// decays of sub-chunks, or blocks.
  __device__ __forceinline__ delta_rule::SquarePanel U(const ChunkSlot<Shape::kDk>& slot, int part) const {
    static_assert(delta_rule::SquarePanel::kPanelBytes <= delta_rule::SplitBlocks::kBytes);
    return part == 0 ? slot.U() : delta_rule::SquarePanel{at(kSplit)};
  }
  /// The barriers.
  __device__ __forceinline__ ClusterBarriers& barriers() const {
    return *reinterpret_cast<ClusterBarriers*>(memory + kBarriers);
  }

 private:
  __device__ __forceinline__ __nv_bfloat16* at(int offset) const {
    return reinterpret_cast<__nv_bfloat16*>(memory + offset);
  }
};

/// The named barriers of the two warpgroups that prepare a chunk.
enum PreparingBarrier : unsigned {
  kOfInverse = 1,  ///< of the warpgroup of the inverse alone
  kOfRows,         ///< of the warpgroup of the rows alone
  kRowsDecayed,    ///< rows are there from which A and P are computed, and the P before is not needed any more
  kScoresRead,     ///< not on the short way: neither warpgroup needs q~, k+~ and k~ any more
  kRowsReady,      ///< P, Q+, K+, K- and the chunk's decays are there; own scores and growths are not needed any more
};
inline constexpr unsigned kPreparing = 2 * tile::kWarpgroup;  ///< threads that meet there

/// Where a cluster's walk lies in its sequence. Positions in `Bf16Arguments` that are only a part count from `first`
/// on.
struct WalkedPart {
  int first;         ///< position of the first chunk
  int begin;         ///< of the first output
  int first_column;  ///< of the block
};

/// One thread of block `rank` loads q, k and g of the chunks that the block prepares.
template <class Heads, class Shape>
__device__ __forceinline__ void load_raw_chunks(const Bf16Arguments& a, const RawMaps& maps,
                                                const ClusterMemory<Shape>& memory, int rank, const WalkedPart& part) {
  ClusterBarriers& barriers = memory.barriers();
  for (int j = 0, t = rank * tile::kChunk; t < a.L; ++j, t += 2 * tile::kChunk) {
    const int i = j % kOwnSlots;
    if (j >= kOwnSlots) {
      barriers.empty[i].wait((j / kOwnSlots - 1) % 2);
      barriers.place_free.wait_cluster((j - kOwnSlots) % 2);
      fence_async_proxy();  // threads have read and written the slot
    }
    if (j > 0) barriers.place_free.arrive_expect(sizeof(barriers.inbox));  // the message that chunk j - 1 has been read
    const ChunkSlot<Shape::kDk> slot = memory.slot(i);
    const auto g = slot.g();
    TileOrigin origin{.position = part.first + t, .head = int(blockIdx.y), .batch = Heads::batch(a.B)};
    barriers.raw[i].arrive_expect(2 * tile::kChunk * Shape::kDk * unsigned(sizeof(__nv_bfloat16)) + g.kLoadedBytes);
    tile::load_panels(g, maps.g, barriers.raw[i], origin);
    tile::load_panels(slot.K(), maps.k, barriers.raw[i], origin);
    tile::load_panels(slot.Q(), maps.q, barriers.raw[i], origin);
    origin.position += 2 * tile::kChunk;
    if (t + 2 * tile::kChunk >= a.L) continue;
    for (int panel = 0; panel < Shape::kDk / 64; ++panel, origin.column += 64) {
      prefetch_tile(maps.q, origin);
      prefetch_tile(maps.k, origin);
    }
    origin.column = 0;
    for (int panel = 0; panel < Shape::kDk / 32; ++panel, origin.column += 64) prefetch_tile(maps.g, origin);
  }
}

/// One thread sends the chunks that the block prepares to the other block.
template <class Shape>
__device__ __forceinline__ void send_chunks(const Bf16Arguments& a, const ClusterMemory<Shape>& memory, int rank) {
  ClusterBarriers& barriers = memory.barriers();
  for (int j = 0, t = rank * tile::kChunk; t < a.L; ++j, t += 2 * tile::kChunk) {
    const ChunkSlot<Shape::kDk> slot = memory.slot(j % kOwnSlots);
    barriers.full[j % kOwnSlots].wait(j / kOwnSlots % 2);
    if (j > 0) barriers.place_free.wait_cluster((j - 1) % 2);
    const auto push = [&](int offset, int bytes) {
      push_shared(memory.slot(kPeerSlot).memory + offset, slot.memory + offset, unsigned(bytes),
                  barriers.full[kPeerSlot], 1 - rank);
    };
    push(0, slot.kRowBytes);
    push(slot.kR, int(delta_rule::SquarePanel::kPanelBytes));
  }
}

/// One thread loads V, and tells the other block when it may push a chunk.
template <class Heads, class Shape>
__device__ __forceinline__ void request_values(const Bf16Arguments& a, const RawMaps& maps,
                                               const ClusterMemory<Shape>& memory, int rank, const WalkedPart& part) {
  ClusterBarriers& barriers = memory.barriers();
  auto ring = Ring<1>::producer();
  for (int n = 0, t = 0; t < a.L; ++n, t += tile::kChunk) {
    ring.wait(&barriers.v_empty);
    fence_async_proxy();  // V has been read by ldmatrix
    barriers.v_full.arrive_expect(memory.kValueBytes);
    tile::load_panels(
        memory.V(), maps.v, barriers.v_full,
        {.column = part.first_column, .position = part.first + t, .head = int(blockIdx.y), .batch = Heads::batch(a.B)});
    ring.advance();
    if (rank_of(n) == rank) continue;
    if (n >= 2) barriers.empty[kPeerSlot].wait((n / 2 - 1) % 2);
    barriers.full[kPeerSlot].arrive_expect(ChunkSlot<Shape::kDk>::kPushBytes);
    // The chain has used the decays that it has loaded from there, so the push needs no fence before it.
    if (n >= 2) push_shared(barriers.inbox, barriers.outbox, sizeof(barriers.inbox), barriers.place_free, 1 - rank);
  }
}

/// One thread stores O.
template <class Heads, class Shape>
__device__ __forceinline__ void store_outputs(const Bf16Arguments& a, const RawMaps& maps,
                                              const ClusterMemory<Shape>& memory, const WalkedPart& part) {
  ClusterBarriers& barriers = memory.barriers();
  auto ring = Ring<1>::consumer();
  for (int t = 0; t < a.L; t += tile::kChunk) {
    const TileOrigin origin{
        .column = part.first_column, .position = part.first + t, .head = int(blockIdx.y), .batch = Heads::batch(a.B)};
    ring.wait(&barriers.output_full);
    if (Heads::kArePacked && a.L - t < tile::kChunk) {  // not the rows of the next sequence
      const delta_rule::ValuePanel O = memory.O();
      for (int row = 0; row < a.L - t; ++row) {
        auto* to = a.o.row(origin.batch, origin.head, t + row) + part.first_column;
        for (int column = 0; column < min(Shape::kDv, a.Dv - part.first_column); column += 8) {
          store_global(reinterpret_cast<uint4*>(to + column),
                       *reinterpret_cast<const uint4*>(O.data + O.unit(row, column)));
        }
      }
    } else if (origin.position >= part.begin) {
      store_tile(maps.o, memory.O().data, origin);
      commit_stores();
      wait_stores_read<0>();
    }
    barriers.output_empty.arrive();
    ring.advance();
  }
}

/// The warpgroup that moves tiles: one thread of each warp.
template <class Heads, class Shape>
__device__ __forceinline__ void move_tiles(const Bf16Arguments& a, const RawMaps& maps,
                                           const ClusterMemory<Shape>& memory, int rank, const WalkedPart& part) {
  switch (threadIdx.x % tile::kWarpgroup) {
    case 0:
      return request_values<Heads>(a, maps, memory, rank, part);
    case 32:
      return load_raw_chunks<Heads>(a, maps, memory, rank, part);
    case 64:
      return send_chunks(a, memory, rank);
    case 96:
      return store_outputs<Heads>(a, maps, memory, part);
  }
}

/// The warpgroup of the rows: decays the rows of every second chunk, and computes P.
template <bool kNormalize, class Heads, class Shape>
__device__ __forceinline__ void prepare_rows(const Bf16Arguments& a, const ClusterMemory<Shape>& memory, int rank) {
  ClusterBarriers& barriers = memory.barriers();
  const int warp = __shfl_sync(kAllLanes, tile::warp_in_group(), 0);
  for (int j = 0, n = rank; n * tile::kChunk < a.L; ++j, n += 2) {
    const ChunkSlot<Shape::kDk> slot = memory.slot(j % kOwnSlots);
    barriers.raw[j % kOwnSlots].wait(j / kOwnSlots % 2);
    const int rows = a.L - n * tile::kChunk;
    if (Heads::kArePacked && rows < tile::kChunk) clear_rows(slot, rows, kOfRows);
    if (kNormalize) find_factors(slot, warp, barriers.factors);
    const Way way = decay_with_anchors<kNormalize>(slot, warp, barriers.ways[j % kOwnSlots], kOfRows, barriers.factors);
    if (way == kLongWay) {
      if (kNormalize) normalize_keys(slot, warp, barriers.factors);
      decay_sub_chunk(slot, warp);
    }
    wait_at_named_barrier(kRowsDecayed, kPreparing);
    delta_rule::BlockRow scores = {};
    if (way == kOneAnchor) {
      scores_with_one_anchor(reinterpret_cast<tile::WarpgroupScores&>(scores), slot.Q(), slot, warp);
    } else if (way == kTwoAnchors) {
      scores_with_two_anchors(scores, slot.Q(), slot, warp);
    } else {
      decayed_scores(scores, slot, warp, 0);
    }
    tile::ScoreFragments P;
    round_scores(P, scores, warp);
    tile::put_fragments(memory.P(), P);
    if (way != kOneAnchor) {
      const int thread = int(threadIdx.x) % tile::kWarpgroup;
      wait_at_named_barrier(kScoresRead, kPreparing);
      way == kTwoAnchors ? decay_keys_to_end(slot, thread) : decay_to_ends(slot, thread);
    }
    arrive_at_named_barrier(kRowsReady, kPreparing);
  }
}

/// -R = P U and -J = U^T K-, of which each warp has 16 rows, and stores them.
template <class Shape>
__device__ __forceinline__ void multiply_inverse(const ClusterMemory<Shape>& memory, const ChunkSlot<Shape::kDk>& slot,
                                                 int warp) {
  using delta_rule::SquarePanel;
  constexpr int kDk = Shape::kDk;
  const int lane = int(lane_index()), row = SquarePanel::unit(warp * 16 + lane % 16, lane / 16 * 8);
  const int column = SquarePanel::unit(lane / 16 * 8 + lane % 8, warp * 16 + lane / 8 % 2 * 8);
  tile::WarpgroupScores R;
  tile::WarpgroupState<Shape::kDk> J;
  tile::ScoreFragments factor;
#pragma unroll
  for (int i = 0; i < tile::kChunk; i += 16) {
    ldmatrix_x4(factor[i / 16], memory.P().data + SquarePanel::advance(row, 0, i));
  }
  wgmma_fence(R, factor);
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    const auto u = tile::k_from_row_to_row(memory.U(slot, part));
#pragma unroll
    for (int i = 0; i < tile::kChunk; i += 16) wgmma<tile::kChunk>(R, factor[i / 16], u.along_k(i), part + i > 0);
  }
  wgmma_commit();
  wgmma_wait<0>(R);
  tile::put_rows(slot.R(), R);
  const auto keys = tile::k_from_row_to_row(slot.K_end());
#pragma unroll
  for (int part = 0; part < 2; ++part) {
#pragma unroll
    for (int i = 0; i < tile::kChunk; i += 16) {
      ldmatrix_x4_trans(factor[i / 16], memory.U(slot, part).data + SquarePanel::advance(column, i, 0));
    }
    wgmma_fence(J, factor);
#pragma unroll
    for (int i = 0; i < tile::kChunk; i += 16) wgmma<kDk>(J, factor[i / 16], keys.along_k(i), part + i > 0);
    wgmma_commit();
    wgmma_wait<0>(J);
  }
  wait_at_named_barrier(kOfInverse, tile::kWarpgroup);  // no warp needs U or K- any more
  tile::put_rows(slot.J(), J);
}

/// The warpgroup of the inverse: computes A of every second chunk, inverts it, and multiplies the inverse into P and
/// K-.
template <class Heads, class Shape>
__device__ __forceinline__ void prepare_inverse(const Bf16Arguments& a, const ClusterMemory<Shape>& memory, int rank) {
  using delta_rule::kBlock, delta_rule::kBlocks;
  constexpr int kDk = Shape::kDk;
  ClusterBarriers& barriers = memory.barriers();
  const int warp = __shfl_sync(kAllLanes, tile::warp_in_group(), 0), row = kBlocks - 1 - warp;
  const int thread = int(threadIdx.x) % tile::kWarpgroup;
  const auto beta_of = [&](int n) {
    const int position = n * tile::kChunk + warp * kBlock + int(lane_index());
    return lane_index() < kBlock && position < a.L
               ? load_global(a.beta.row(Heads::batch(a.B), int(blockIdx.y), position))
               : 0.0f;
  };
  float next_beta = beta_of(rank);
  for (int j = 0, n = rank; n * tile::kChunk < a.L; ++j, n += 2) {
    const ChunkSlot<kDk> slot = memory.slot(j % kOwnSlots);
    const float beta = next_beta;
    next_beta = beta_of(n + 2);
    wait_at_named_barrier(kRowsDecayed, kPreparing);
    delta_rule::BlockRow A = {};
    const Way way = common_way(barriers.ways[j % kOwnSlots]);
    if (way == kOneAnchor) {
      scores_with_one_anchor(reinterpret_cast<tile::WarpgroupScores&>(A), slot.K(), slot, warp);
    } else if (way == kTwoAnchors) {
      scores_with_two_anchors(A, slot.K(), slot, warp);
    } else {
      decayed_scores(A, slot, warp, 1);
    }
    if (way != kOneAnchor) arrive_at_named_barrier(kScoresRead, kPreparing);
    delta_rule::SplitRow U;
    invert_scores(U, memory.blocks(), kOfInverse, warp, A, beta);
    wait_at_named_barrier(kRowsReady, kPreparing);
    const float decay = thread < kDk ? slot.prepared_decays()[thread] : 0.0f;
    fence_async_proxy();  // the blocks, too, were stored for ldmatrix: U replaces them for products
    wait_at_named_barrier(kOfInverse, tile::kWarpgroup);  // U comes where the decays and the blocks lie
    put_row(memory.U(slot, 0), memory.U(slot, 1), U, row);
    fence_async_proxy();
    wait_at_named_barrier(kOfInverse, tile::kWarpgroup);
    multiply_inverse(memory, slot, warp);
    if (thread < kDk) store_for_copies(slot.chunk_decays() + thread, decay);
    fence_async_proxy();
    wait_at_named_barrier(kOfInverse, tile::kWarpgroup);
    if (thread == 0) barriers.full[j % kOwnSlots].arrive();
  }
}

}  // namespace tutorial::kda
