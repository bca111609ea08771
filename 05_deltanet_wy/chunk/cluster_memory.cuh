#pragma once
/// @file
/// A block of `cluster` or `three_blocks`, with and without gates: its shared memory, and what the
/// warpgroups do that compute T and P.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <type_traits>

#include "05_deltanet_wy/chunk/matrices.cuh"
#include "05_deltanet_wy/chunk/warpgroup_products.cuh"
#include "05_deltanet_wy/delta_rule.hpp"
#include "common/device/eviction.hpp"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/mbarrier.cuh"
#include "common/device/memory.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/push_shared.cuh"
#include "common/device/warp.cuh"
#include "common/device/wgmma.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::delta_rule {

inline constexpr int kClusterStages = 2;  ///< tiles of Q and K for the chain, and of V
inline constexpr int kGroups = 4;         ///< warpgroups of a cluster that compute T and P, each with its own slot
inline constexpr int kWalking = 2;        ///< blocks of a cluster that walk

/// Which blocks compute T and P. In `cluster`: both, in turn, beside their walks.
struct BothBlocks {
  static constexpr int kComputing = 2;  ///< blocks
  static constexpr int kPairs = 1;      ///< tiles of Q and K in each for T and P
  static constexpr bool kWalks = true;  ///< such a block has a chain, too
  static constexpr int kMessages = 1;   ///< that it gets when a slot has been read
};

/// In `three_blocks`: a third one, which has room for three pairs of tiles.
struct ThirdBlock {
  static constexpr int kComputing = 1, kPairs = kClusterStages + 1, kMessages = kWalking;
  static constexpr bool kWalks = false;
};

/// In `cluster`: the rank of the block that computes T and P of chunk n.
__device__ __forceinline__ int rank_of(int n) {
  return n % 2;
}
/// In `cluster`: which of that block's two warpgroups does it.
__device__ __forceinline__ int group_of(int n) {
  return n / 2 % 2;
}

/// Barriers of a block. They lie in dynamic shared memory, as everything that another block reaches.
struct ClusterBarriers {
  Barrier k_full[kClusterStages], q_full[kClusterStages], empty[kClusterStages];
  Barrier v_full[kClusterStages], v_empty[kClusterStages];
  Barrier output_full, output_empty;
  Barrier pair_full[kGroups], pair_empty[kGroups];  ///< the tiles of Q and K from which a group computes
  Barrier matrices_full[kGroups];
  Barrier slot_free[kGroups];            ///< the chains that tell this block have read what lies in a group's slot
  Barrier slot_read;                     ///< in `cluster`: this block's chain has read what the other block has stored
  alignas(16) unsigned char outbox[16];  ///< bytes of a message; their values do not matter
  alignas(16) unsigned char inbox[16];   ///< those of other blocks

  /// Called by one thread of the block.
  /// @param slot_readers arrivals at slot_free: the chain's warps, and who expects messages
  __device__ __forceinline__ void init(unsigned slot_readers = 4 + 1) {
    for (Barrier& barrier : k_full) barrier.init(1);
    for (Barrier& barrier : q_full) barrier.init(1);
    for (Barrier& barrier : empty) barrier.init(4);
    for (int i = 0; i < kClusterStages; ++i) v_full[i].init(1), v_empty[i].init(4);
    for (int i = 0; i < kGroups; ++i) pair_full[i].init(1), pair_empty[i].init(4), slot_free[i].init(slot_readers);
    for (Barrier& barrier : matrices_full) barrier.init(1);
    slot_read.init(4);
    output_full.init(4);
    output_empty.init(2);
    fence_barrier_init();
  }
};

/// A warpgroup of a cluster that computes T and P of every fourth chunk. It loads beta one such chunk ahead.
class ClusterGroup : public MatrixGroup {
 public:
  using MatrixGroup::MatrixGroup;

  /// What it has in registers of a chunk that it computes.
  struct Rows {
    SplitRow U;
    RoundedRow P;
  };

  /// Before its first chunk. @param n that chunk
  __device__ __forceinline__ void start(const Bf16Arguments& a, int n) { next_beta_ = beta_of(a, n); }
  /// While the products of a chunk run.
  __device__ __forceinline__ void begin(Rows&) { beta_ = next_beta_; }
  /// From the products.
  /// @param next the warpgroup's next chunk
  __device__ __forceinline__ void compute(Rows& rows, tile::WarpgroupScores& K_K, tile::WarpgroupScores& Q_K,
                                          const Bf16Arguments& a, int next) {
    rows = {};  // only some blocks of each are written
    next_beta_ = beta_of(a, next);
    round(rows.P, Q_K);
    invert(rows.U, K_K, beta_);
  }
  /// Stores the matrices.
  __device__ __forceinline__ void store(const ChunkMatrices& out, const Rows& rows) const {
    MatrixGroup::store(out, rows.U, rows.P);
  }

 private:
  __device__ __forceinline__ float beta_of(const Bf16Arguments& a, int n) const {
    const int t = n * tile::kChunk + position();
    return lane_index() < kBlock && t < a.L ? load_global(a.beta.row(int(blockIdx.z), int(blockIdx.y), t)) : 0.0f;
  }

  float beta_, next_beta_;
};

/// A block's shared memory.
/// @tparam Sharing which blocks compute
/// @tparam Matrices,Group_ what lies in a slot, and computes it. gated_delta_rule/gated_matrices.cuh has others
template <class Shape, class Sharing_ = BothBlocks, class Matrices = ChunkMatrices, class Group_ = ClusterGroup>
struct ClusterMemory {
  using Sharing = Sharing_;                 ///< which blocks compute T and P
  using Slot = Matrices;                    ///< what lies in a slot
  using Group = Group_;                     ///< what computes it
  using KeyTile = typename Shape::KeyTile;  ///< Q or K

  static constexpr int kKeyBytes = tile::kChunk * Shape::kDk * int(sizeof(__nv_bfloat16));
  static constexpr int kValueBytes = int(ValuePanel::kPanelBytes);
  static constexpr int kMatrices = 2 * (kClusterStages + 1) * kKeyBytes, kV = kMatrices + kGroups * Matrices::kStride;
  static constexpr int kO = kV + kClusterStages * kValueBytes;
  static constexpr int kSplit = Sharing::kWalks ? kO + kValueBytes : kV;
  static constexpr int kBarriers = kSplit + kGroups / Sharing::kComputing * Group::kBytes;
  static constexpr int kBytes = kBarriers + int(sizeof(ClusterBarriers));

  unsigned char* memory;  ///< kBytes, aligned to 1024

  /// A tile of K for the chain, or for T and P.
  __device__ __forceinline__ KeyTile K(int stage) const { return {at(2 * stage * kKeyBytes)}; }
  /// A tile of Q.
  __device__ __forceinline__ KeyTile Q(int stage) const { return {at((2 * stage + 1) * kKeyBytes)}; }
  /// A tile of V.
  __device__ __forceinline__ ValuePanel V(int stage) const { return {at(kV + stage * kValueBytes)}; }
  /// The tile of O.
  __device__ __forceinline__ ValuePanel O() const { return {at(kO)}; }
  /// T and P of every fourth chunk.
  __device__ __forceinline__ Matrices matrices(int slot) const {
    return Matrices(memory + kMatrices + slot * Matrices::kStride);
  }
  /// The stage from which T and P of chunk n are computed.
  __device__ __forceinline__ int pair_stage(int n) const {
    return kClusterStages + 1 - Sharing::kPairs + n % Sharing::kPairs;
  }
  /// What a warpgroup of those that compute matrices needs for itself.
  __device__ __forceinline__ Group matrix_group(int group) const {
    return Group(group, memory + kSplit + group * Group::kBytes);
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

/// Tells the other block, where T and P of chunk n are computed, that this block's chain has read what lay in their
/// place.
__device__ __forceinline__ void pass_place_on(ClusterBarriers& barriers, Ring<1>& read_ring, int n, int rank) {
  if (rank_of(n) == rank) return;
  read_ring.wait(&barriers.slot_read);
  push_shared(barriers.inbox, barriers.outbox, sizeof(barriers.inbox), barriers.slot_free[group_of(n)], 1 - rank);
  read_ring.advance();
}

/// One thread of computing block `rank` of (., h, b) loads Q and K for the warpgroups that compute T and P. The chains
/// load the same rows a few chunks later, so the second-level cache should keep them.
/// @param first position of the first chunk
template <class Memory>
__device__ __forceinline__ void load_pairs(const Bf16Arguments& a, const tile::ChunkMaps& maps, const Memory& memory,
                                           int rank, int first = 0) {
  ClusterBarriers& barriers = memory.barriers();
  constexpr int kOwn = kGroups / Memory::Sharing::kComputing;
  auto ring = Ring<kOwn>::consumer();  // waits until the warpgroup that had the tiles is done
  for (int n = rank; n * tile::kChunk < a.L; n += Memory::Sharing::kComputing) {
    const TileOrigin origin{.position = first + n * tile::kChunk, .head = int(blockIdx.y), .batch = int(blockIdx.z)};
    if (n >= Memory::Sharing::kComputing * Memory::Sharing::kPairs) {
      ring.wait(barriers.pair_empty);
      ring.advance();
    }
    Barrier& full = barriers.pair_full[n / Memory::Sharing::kComputing % kOwn];
    full.arrive_expect(2 * memory.kKeyBytes);
    tile::load_panels(memory.K(memory.pair_stage(n)), maps.k, full, origin, Eviction::kLast);
    tile::load_panels(memory.Q(memory.pair_stage(n)), maps.q, full, origin, Eviction::kLast);
  }
}

/// Warpgroup `group` of computing block `rank` computes what lies in the slots for every fourth chunk of block (., h,
/// b), for both blocks that walk.
template <class Arguments, class Memory>
__device__ __forceinline__ void compute_shared_matrices(const Arguments& a, const Memory& memory, int rank, int group) {
  using Sharing = typename Memory::Sharing;
  using Group = typename Memory::Group;
  // What the loop compares decides what the compiler keeps in uniform registers, in the whole kernel. A build in which
  // it was chunks had the faster `three_blocks`, one in which it was positions the faster `cluster`. With gates it
  // spills if it is chunks.
  constexpr bool kCounts = !Sharing::kWalks && std::is_same_v<Group, ClusterGroup>;
  group = __shfl_sync(kAllLanes, group, 0);  // tells the compiler that it is the same in all lanes
  ClusterBarriers& barriers = memory.barriers();
  Group matrices = memory.matrix_group(group);
  const bool is_first = threadIdx.x % tile::kWarpgroup == 0;
  const int chunks = (a.L + tile::kChunk - 1) / tile::kChunk, first = rank + Sharing::kComputing * group;
  matrices.clear(memory.matrices(first));
  matrices.start(a, first);
  for (int n = first; kCounts ? n < chunks : n * tile::kChunk < a.L; n += kGroups) {
    tile::WarpgroupScores K_K, Q_K;
    typename Group::Rows rows;
    const int own = hide_from_compiler(group), slot = n % kGroups, stage = memory.pair_stage(n);
    const auto K = memory.K(stage), Q = memory.Q(stage);
    barriers.pair_full[own].wait(unsigned(n) / kGroups % 2);
    wgmma_fence(K_K, Q_K);
    tile::start_scores(K_K, K, K);
    tile::start_scores(Q_K, Q, K);
    wgmma_commit();
    matrices.begin(rows);
    wgmma_wait<0>(K_K, Q_K);
    if (lane_index() == 0) barriers.pair_empty[own].arrive();
    matrices.compute(rows, K_K, Q_K, a, n + kGroups);
    if (n >= kGroups) {
      if (is_first) barriers.slot_free[own].arrive_expect(Sharing::kMessages * sizeof(barriers.inbox));
      barriers.slot_free[own].wait_cluster((unsigned(n) / kGroups - 1) % 2);
    }
    const typename Memory::Slot out = memory.matrices(slot);
    matrices.store(out, rows);
    fence_async_proxy();
    wait_at_named_barrier(1 + unsigned(own), tile::kWarpgroup);
    if (is_first) {
      void* bytes = out.T.panel.data;
      const int peer = Sharing::kWalks ? 1 - rank : n % kWalking;
      push_shared(bytes, bytes, out.kBytes, barriers.matrices_full[slot], peer);
      if (Sharing::kWalks) barriers.matrices_full[slot].arrive();
    }
  }
}

}  // namespace tutorial::delta_rule
