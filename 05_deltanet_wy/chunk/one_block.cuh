#pragma once
/// @file
/// A block of `one_block`, with and without gates (dispatch/one_block.cu of both operators): its shared memory, and what
/// all its warps do but the chains. one_block_chains.cuh has these, and the kernel.
///
/// What gates add is a type, `Decays`:
///
///     Decays::Arguments            those of the operator
///     Decays::kExist               whether there are decays, computed by a warp
///     Decays::kBytes               of a chunk's decays, which lie beside its Q and K and use their barriers
///     Decays::Source               that warp: put() computes those of one chunk after the other
///     Decays::multiply_pairs()     sums of K K^T or Q K^T, times the decay of each pair of positions, where they need it
///     Decays::Chain                a chain's part (one_block_chains.cuh)
///
/// Whose heads these are is another type, BatchHeads or PackedHeads (packed_heads.cuh).

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "05_deltanet_wy/chunk/matrices.cuh"
#include "05_deltanet_wy/chunk/packed_heads.cuh"
#include "05_deltanet_wy/chunk/split_triangle.cuh"
#include "05_deltanet_wy/chunk/warpgroup_inverse.cuh"
#include "05_deltanet_wy/chunk/warpgroup_products.cuh"
#include "05_deltanet_wy/delta_rule.hpp"
#include "common/device/bulk_copy.cuh"
#include "common/device/mbarrier.cuh"
#include "common/device/memory.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/warp.cuh"
#include "common/device/wgmma.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/rows_of_sequence.cuh"
#include "common/tile/store_tile.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::delta_rule {

inline constexpr int kChains = 2;  ///< of a block, with 64 columns each
inline constexpr int kPairs = 4;   ///< pairs of Q and K in shared memory
inline constexpr int kPlaces = 2;  ///< of V and O, of T and P, and of blocks

/// Threads that load Q and K.
template <class Decays, class Heads>
constexpr int kLoadingThreads = Decays::kExist || Heads::kArePacked ? 32 : 1;

/// A block's shared memory.
template <class Shape, class Decays>
struct OneBlockMemory {
  using KeyTile = typename Shape::KeyTile;  ///< Q or K

  static constexpr int kKeyBytes = tile::kChunk * Shape::kDk * int(sizeof(__nv_bfloat16));
  static constexpr int kValueBytes = int(ValuePanel::kPanelBytes);  ///< of a chain
  static constexpr int kV = 2 * kPairs * kKeyBytes, kMatrices = kV + kPlaces * kChains * kValueBytes;
  static constexpr int kSplit = kMatrices + kPlaces * ChunkMatrices::kBytes;
  static constexpr int kDecays = kSplit + kPlaces * SplitBlocks::kBytes;
  static constexpr int kBytes = kDecays + kPairs * Decays::kBytes;

  unsigned char* memory;  ///< kBytes, aligned to 1024

  /// A tile of K.
  __device__ __forceinline__ KeyTile K(int stage) const { return {at(2 * stage * kKeyBytes)}; }
  /// A tile of Q.
  __device__ __forceinline__ KeyTile Q(int stage) const { return {at((2 * stage + 1) * kKeyBytes)}; }
  /// A chain's columns of V, and later of O.
  __device__ __forceinline__ ValuePanel V(int stage, int chain) const {
    return {at(kV + (stage * kChains + chain) * kValueBytes)};
  }
  /// T and P.
  __device__ __forceinline__ ChunkMatrices matrices(int stage) const {
    return ChunkMatrices(memory + kMatrices + stage * ChunkMatrices::kBytes);
  }
  /// The blocks from which T is computed.
  __device__ __forceinline__ SplitBlocks blocks(int stage) const { return {at(kSplit + stage * SplitBlocks::kBytes)}; }
  /// The decays of the chunk whose Q and K have this stage.
  __device__ __forceinline__ float* decays(int stage) const {
    return reinterpret_cast<float*>(memory + kDecays + stage * Decays::kBytes);
  }

 private:
  __device__ __forceinline__ __nv_bfloat16* at(int offset) const {
    return reinterpret_cast<__nv_bfloat16*>(memory + offset);
  }
};

/// A block's barriers.
template <class Decays>
struct OneBlockBarriers {
  Barrier full[kPairs], empty[kPairs];                                ///< Q and K, and decays
  Barrier v_full[kPlaces], output_full[kPlaces];                      ///< V, and O in the same place
  Barrier diagonal_full[kPlaces], diagonal_inverted[kPlaces];         ///< -A_cc, and U_cc in the same place
  Barrier T_full[kPlaces], P_full[kPlaces], matrices_empty[kPlaces];  ///< T and P, and their slot

  /// Called by one thread of the block.
  __device__ __forceinline__ void init() {
    for (Barrier& barrier : full) barrier.init(Decays::kExist ? 2 : 1);
    for (Barrier& barrier : empty) barrier.init(4 + 4 * kChains);  // the warps that compute T, and those of the chains
    for (int i = 0; i < kPlaces; ++i) v_full[i].init(1), output_full[i].init(4 * kChains);
    for (int i = 0; i < kPlaces; ++i) diagonal_full[i].init(4), diagonal_inverted[i].init(2);
    for (int i = 0; i < kPlaces; ++i) T_full[i].init(4), P_full[i].init(4);
    for (Barrier& barrier : matrices_empty) barrier.init(4 * kChains);
    fence_barrier_init();
  }
};

/// U_cc of two neighbouring blocks, by one warp: lanes 0 to 15 have the columns of the first one, the others those of
/// the second. In put_inverse() both halves of a warp compute the same.
/// @param first the first block. In its place and the next one's is -A_cc in fp32
/// @param factor of column lane % 16 of the lane's block
__device__ __forceinline__ void put_two_inverses(const SplitBlocks& blocks, int first, float factor) {
  const int c = first + int(lane_index()) / kBlock, column = int(lane_index()) % kBlock;
  float* memory = blocks.in_fp32(c, c);
  float x[kBlock];
  solve_column(x, memory, column, factor);
  __syncwarp();  // all lanes have read A
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    SplitFragment<4> rows;
#pragma unroll
    for (int i = 0; i < 4; ++i) rows.set(i, x[8 * half + 2 * i], x[8 * half + 2 * i + 1]);
    auto* to = reinterpret_cast<uint4*>(memory) + column % 8 + column / 8 * 16 + half * 8;
    to[0] = make_uint4(rows.high[0], rows.high[1], rows.high[2], rows.high[3]);
    to[SplitBlocks::kHalf / 8] = make_uint4(rows.low[0], rows.low[1], rows.low[2], rows.low[3]);
  }
}

/// A warpgroup that computes T, but for the inverses on the diagonal: the parts of MatrixGroup::invert().
class RowGroup : public MatrixGroup {
 public:
  /// Has no blocks of its own: they change with the chunk.
  __device__ __forceinline__ RowGroup() : MatrixGroup(0, nullptr) {}

  using MatrixGroup::multiply;
  using MatrixGroup::put_row;

  /// What put_two_inverses() in another warp continues: stores block warp_ of the diagonal of -A in
  /// fp32, where U_cc will lie.
  __device__ __forceinline__ void put_diagonal(const SplitBlocks& blocks, const tile::WarpgroupScores& K_K,
                                               float beta) const {
    const auto& N = reinterpret_cast<const BlockRow&>(K_K);
    const int lane = int(lane_index());
    const float2 beta_of_rows{__shfl_sync(kAllLanes, beta, lane / 4), __shfl_sync(kAllLanes, beta, lane / 4 + 8)};
    float* memory = blocks.in_fp32(warp_, warp_);
    const auto put = [&](const BlockSums& of_N) {
      BlockSums block;
#pragma unroll
      for (int i = 0; i < 8; ++i) block[i / 4][i % 4] = of_N[i / 4][i % 4];
      multiply_rows(block, beta_of_rows);
      for_each_of_block(block, [&](int row, int column, float& x) { memory[row * kBlock + column] = x; });
    };
    switch (warp_) {
      case 0:
        put(N[0]);
        break;
      case 1:
        put(N[1]);
        break;
      case 2:
        put(N[2]);
        break;
      case 3:
        put(N[3]);
        break;
    }
  }

  /// Stores T alone. Blocks above the diagonal are not written.
  __device__ __forceinline__ void store_lower(const SplitTriangle& T, const SplitRow& U) const {
    store_row(T, U, row_, unit_of_block());
  }

  /// Makes T alone zero above the diagonal, where store_lower() does not write.
  __device__ __forceinline__ void clear(const SplitTriangle& T) const {
    clear_upper_blocks(T, row_);
  }
};

/// One thread loads Q and K, or one warp. With decays it computes those of the chunk meanwhile. A warp of packed heads
/// makes keys zeros that are another sequence's.
/// @param arrived for the bytes of such a chunk
template <class Shape, class Decays, class Heads>
__device__ __forceinline__ void load_pairs(const typename Decays::Arguments& a, const Heads& heads,
                                           const tile::ChunkMaps& maps, const OneBlockMemory<Shape, Decays>& memory,
                                           OneBlockBarriers<Decays>& barriers, Barrier* arrived) {
  using namespace tile;
  const int b = heads.batch(a.B), h = heads.head(), first = heads.first_position();
  auto ring = Ring<kPairs>::producer();
  typename Decays::Source source(a, b, h);
  for (int t = 0; t < a.L; t += kChunk) {
    ring.wait(barriers.empty);
    Barrier& full = barriers.full[ring.stage()];
    const bool is_cut = Heads::kArePacked && a.L - t < kChunk;
    if (kLoadingThreads<Decays, Heads> == 1 || lane_index() == 0) {
      Barrier& loaded = is_cut ? *arrived : full;
      loaded.arrive_expect(2 * memory.kKeyBytes);
      load_panels(memory.K(ring.stage()), maps.k, loaded, {.position = first + t, .head = h, .batch = b});
      load_panels(memory.Q(ring.stage()), maps.q, loaded, {.position = first + t, .head = h, .batch = b});
    }
    if (is_cut) clear_and_pass_on(*arrived, full, a.L - t, memory.K(ring.stage()));
    if constexpr (Decays::kExist) {
      source.put(memory.decays(ring.stage()));
      __syncwarp();
      if (lane_index() == 0) full.arrive();
    }
    ring.advance();
  }
}

/// One thread stores O, and loads V into the same place; a warp of packed heads.
/// @param arrived as in load_pairs()
template <class Shape, class Decays, class Heads>
__device__ __forceinline__ void move_values(const typename Decays::Arguments& a, const Heads& heads,
                                            const tile::ChunkMaps& maps, const TensorMap& o,
                                            const OneBlockMemory<Shape, Decays>& memory,
                                            OneBlockBarriers<Decays>& barriers, Barrier* arrived) {
  using namespace tile;
  const int b = heads.batch(a.B), h = heads.head(), first = heads.first_position();
  const int first_column = int(blockIdx.x) * kChains * Shape::kDv;
  const bool is_first = !Heads::kArePacked || lane_index() == 0;
  auto ring = Ring<kPlaces>::consumer();
  const int chains = min(kChains, (a.Dv - first_column - 1) / Shape::kDv + 1);  // that have columns
  const auto load_values = [&](int t, int stage) {
    if (t >= a.L) return;
    const bool is_cut = Heads::kArePacked && a.L - t < kChunk;
    if (is_first) {
      Barrier& loaded = is_cut ? *arrived : barriers.v_full[stage];
      loaded.arrive_expect(chains * memory.kValueBytes);
      for (int i = 0; i < chains; ++i) {
        load_panels(memory.V(stage, i), maps.v, loaded,
                    {.column = first_column + i * Shape::kDv, .position = first + t, .head = h, .batch = b});
      }
    }
    // Both chains' columns, whether all of them exist or not.
    if (is_cut) clear_and_pass_on(*arrived, barriers.v_full[stage], a.L - t, memory.V(stage, 0), memory.V(stage, 1));
  };
  for (int i = 0; i < kPlaces; ++i) load_values(i * kChunk, i);
  for (int t = 0; t < a.L; t += kChunk) {
    ring.wait(barriers.output_full);
    if (Heads::kArePacked && a.L - t < kChunk) {
      for (int i = 0; i < chains; ++i) {
        const int column = first_column + i * Shape::kDv;
        store_tile_by<32>(int(lane_index()), a.o.row(b, h, t) + column, a.o.stride_l, a.L - t, a.Dv - column,
                          memory.V(ring.stage(), i), [] {});
      }
      return;
    }
    if (is_first && t >= heads.warm_up()) {
      for (int i = 0; i < chains; ++i) {
        store_tile(o, memory.V(ring.stage(), i).data,
                   {.column = first_column + i * Shape::kDv, .position = first + t, .head = h, .batch = b});
      }
      commit_stores();
      wait_stores_read<0>();
    }
    load_values(t + kPlaces * kChunk, ring.stage());
    ring.advance();
  }
}

/// Two neighbouring warps, the first with an even number, invert the blocks on the diagonal, two each.
template <class Shape, class Decays, class Heads>
__device__ __forceinline__ void invert_diagonals(const typename Decays::Arguments& a, const Heads& heads,
                                                 const OneBlockMemory<Shape, Decays>& memory,
                                                 OneBlockBarriers<Decays>& barriers) {
  using namespace tile;
  const int b = heads.batch(a.B), h = heads.head();
  const int first = int(threadIdx.x) % kWarpgroup / 32 % 2 * 2;  // of two blocks on the diagonal
  auto ring = Ring<kPlaces>::consumer();
  const auto beta_of = [&](int t) {
    const int position = t + first * kBlock + int(lane_index());
    return position < a.L ? load_global(a.beta.row(b, h, position)) : 0.0f;
  };
  float beta = beta_of(0);
  for (int t = 0; t < a.L; t += kChunk) {
    ring.wait(barriers.diagonal_full);
    put_two_inverses(memory.blocks(ring.stage()), first, -beta);
    __syncwarp();
    if (lane_index() == 0) barriers.diagonal_inverted[ring.stage()].arrive();
    ring.advance();
    beta = beta_of(t + kChunk);
  }
}

/// A warpgroup computes T of all chunks, but for the inverses on the diagonal.
template <class Shape, class Decays, class Heads>
__device__ __forceinline__ void compute_inverses(const typename Decays::Arguments& a, const Heads& heads,
                                                 const OneBlockMemory<Shape, Decays>& memory,
                                                 OneBlockBarriers<Decays>& barriers) {
  using namespace tile;
  const int b = heads.batch(a.B), h = heads.head();
  const RowGroup rows;
  const auto beta_of = [&](int t) {
    const int position = t + rows.position();
    return lane_index() < kBlock && position < a.L ? load_global(a.beta.row(b, h, position)) : 0.0f;
  };
  auto ring = Ring<kPairs>::consumer();
  auto block_ring = Ring<kPlaces>::consumer();
  auto matrix_ring = Ring<kPlaces>::producer();
  for (int i = 0; i < kPlaces; ++i) rows.clear(memory.matrices(i).T);
  float beta = beta_of(0);
  WarpgroupScores K_K, N;
  // K K^T of the chunk that ring points to. After the last chunk it is computed from whatever lies there, and not used:
  // under a condition the compiler would wait for the product at once.
  const auto start_keys = [&](bool exists) {
    if (exists) ring.wait(barriers.full);
    wgmma_fence(K_K);
    start_scores(K_K, memory.K(ring.stage()), memory.K(ring.stage()));
    wgmma_commit();
  };
  // N = K K^T. The warps that invert get -A_cc: its blocks on the diagonal times -beta.
  const auto put_diagonal = [&](int t, int stage) {
#pragma unroll
    for (int i = 0; i < kChunk / 2; ++i) N[i] = K_K[i];
    if constexpr (Decays::kExist) {
      Decays::multiply_pairs(N, memory.decays(ring.stage()));
      __syncwarp();  // all lanes have read the decays
    }
    if (lane_index() == 0) barriers.empty[ring.stage()].arrive();
    ring.advance();
    rows.put_diagonal(memory.blocks(stage), N, beta);
    __syncwarp();
    if (lane_index() == 0) barriers.diagonal_full[stage].arrive();
    beta = beta_of(t + kChunk);  // here, so that the shuffles of beta do not wait for the next load
  };
  start_keys(true);
  wgmma_wait<0>(K_K);
  put_diagonal(0, 0);
  for (int t = 0; t < a.L; t += kChunk) {
    const bool has_next = t + kChunk < a.L;
    const SplitBlocks blocks = memory.blocks(block_ring.stage());
    block_ring.wait(barriers.diagonal_inverted);
    block_ring.advance();
    rows.put_row(blocks, N);
    start_keys(has_next);
    wait_at_named_barrier(1, kWarpgroup);  // all rows of W are there
    wgmma_wait<0>(K_K);
    if (has_next) put_diagonal(t + kChunk, block_ring.stage());
    SplitRow U = {};
    rows.multiply(U, blocks);
    matrix_ring.wait(barriers.matrices_empty);
    rows.store_lower(memory.matrices(matrix_ring.stage()).T, U);
    fence_async_proxy();
    __syncwarp();
    if (lane_index() == 0) barriers.T_full[matrix_ring.stage()].arrive();
    matrix_ring.advance();
  }
}

}  // namespace tutorial::delta_rule
