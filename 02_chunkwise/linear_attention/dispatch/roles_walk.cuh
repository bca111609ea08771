#pragma once
/// @file
/// The walk that dispatch starts where a block has little shared memory and no products of warpgroups: some warps load,
/// and four multiply.
///
/// Idea: in walk.cuh all warps load, wait and multiply in turn. Its two sets of tiles and P take 104 KB with 128
/// columns per block, 5 KB more than a block of an RTX card has. Here P lies in the memory of its chunk's Q, so that
/// two sets are 96 KB. A role of its own loads the tiles, and each tile has its own slots, so that the products return
/// it to the loads as soon as they have read it, not only when the chunk is done. The warps that multiply compute no
/// addresses of loads.
///
///     loads       | Q of n + 1 | K of n + 1 | V of n + 1 |            | Q of n + 2 |  | K of n + 2 | V of n + 2 |
///                                                                     ^               ^            ^
///                                                           Q is free |     K is free |            | V is free
///     products    | Q K^T of n | Q S | P to the memory of Q | P V ..... | K^T V ....... | O through V | Q K^T of n + 1
///
/// Who waits for whom: the loads wait for a free slot, and the products for each tile when they first read it. Four
/// warps share the columns of Dv (common/tile/chunk_products.cuh). They wait for each other twice per chunk: until all
/// have read Q, before P overwrites it, and until all have stored their parts of P.
///
/// There are two loaders. They differ in how tiles are requested and how the roles tell each other:
/// - BulkCopies: one thread requests whole tiles by tensor maps. Barriers in shared memory count bytes and arrivals.
/// - CpAsync: 64 threads copy 16 bytes at a time. The roles meet at named barriers, where one of them only arrives.
///
/// Unchanged: the products, precision, segments (../8_sequence_parallel.cu explains them), and the first kernel of a
/// walk in segments, which is that of walk.cuh.
/// Resources: four warps that multiply, and one (BulkCopies) or two (CpAsync) that load. Shared memory in KB, 64 or 128
/// columns per block: 48 or 64 for Dk <= 64, 80 or 96 for Dk <= 128; with bulk copies up to 1 KB more, for barriers and
/// alignment. At Dk = Dv = 128 each thread has up to 255 registers: one block per multiprocessor.
/// Bound by: the products of a warp, which has its scheduler almost for itself. Where a card's tensor cores are slow,
/// they are busy most of the time. Where they are fast, the warp waits for ldmatrix and for its own sums.
/// Requires: Dk <= 128, what `tensor_core` requires, and with BulkCopies what `bulk_copies` requires.
/// Weakness: no warp multiplies while the four store P and O. The normaliser, both directions and Dk = 256 are left to
/// walk.cuh.

#include <cuda_runtime.h>

#include "common/device/cp_async.cuh"
#include "common/device/mbarrier.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/chunk_products.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/load_tile.cuh"
#include "common/tile/panel_tile.cuh"
#include "common/tile/state.cuh"
#include "common/tile/store_tile.cuh"

namespace tutorial::linear_attention {
namespace {

using namespace tile;

/// The tiles of a chunk, in the order in which they are loaded.
enum Operand { kQ, kK, kV, kOperands };

constexpr int kSlots = 2;                  // of each operand: chunk n is in slot n % kSlots
constexpr unsigned kProductsBarrier = 15;  // the named barrier of the threads that multiply
constexpr unsigned kProductsThreads = kThreads;

/// The chunk's tiles in shared memory.
template <class Shape>
__device__ __forceinline__ ChunkTiles<Shape> tiles_of(int n) {
  return ChunkTiles<Shape>(dynamic_shared<unsigned char, kTileAlignment>() + n % kSlots * ChunkTiles<Shape>::kBytes);
}

/// Loads by bulk copies, for compute capability 9.0 and later.
/// @tparam Shape_ a PanelShape
template <class Shape_>
class BulkCopies {
 public:
  using Shape = Shape_;
  using Tensors = ChunkMaps;        ///< what load() reads
  static constexpr int kWarps = 1;  ///< that load

  /// Called by all threads of the block.
  __device__ __forceinline__ explicit BulkCopies(const BlockPart<Shape>&) {
    __shared__ Barrier full[kOperands * kSlots], empty[kOperands * kSlots];
    full_ = full;
    empty_ = empty;
    if (threadIdx.x == 0) {
      for (Barrier& barrier : full) barrier.init(1);
      for (Barrier& barrier : empty) barrier.init(kWarpsThatMultiply);
      fence_barrier_init();
    }
    __syncthreads();
  }

  /// Loads the tiles of all chunks of the block's part. Called by the warps that load.
  __device__ __forceinline__ void load(const Bf16Arguments&, const ChunkMaps& maps,
                                       const BlockPart<Shape>& part) const {
    if (lane_index() > 0) return;
    for (int t = part.begin; t < part.end; t += kChunk) {
      const int n = (t - part.begin) / kChunk;
      const ChunkTiles<Shape> tiles = tiles_of<Shape>(n);
      const auto request = [&](Operand operand, const auto& tile, const TensorMap& map, int column) {
        const auto ring = Ring<kSlots>::producer(n);
        Barrier& full = full_[operand * kSlots + ring.stage()];
        ring.wait(empty_ + operand * kSlots);
        fence_async_proxy();  // the slot has been read by ldmatrix, and P or O has been stored there
        full.arrive_expect(kChunk * (operand == kV ? Shape::kDv : Shape::kDk) * unsigned(sizeof(__nv_bfloat16)));
        load_panels(tile, map, full, {.column = column, .position = t, .head = part.h, .batch = part.b});
      };
      request(kQ, tiles.Q, maps.q, 0);
      request(kK, tiles.K, maps.k, 0);
      request(kV, tiles.V, maps.v, part.first_column);
    }
  }

  /// Waits until an operand of chunk n is there. Called by the warps that multiply.
  __device__ __forceinline__ void wait(Operand operand, int n, SourceLocation where = SourceLocation::current()) const {
    Ring<kSlots>::consumer(n).wait(full_ + operand * kSlots, where);
  }

  /// Returns its slot to the loads. Called by the warps that multiply, when they have read it.
  __device__ __forceinline__ void arrive(Operand operand, int n,
                                         SourceLocation where = SourceLocation::current()) const {
    __syncwarp();
    if (lane_index() == 0) empty_[operand * kSlots + n % kSlots].arrive(where);
  }

 private:
  static constexpr int kWarpsThatMultiply = tile::kWarps;

  Barrier *full_, *empty_;  // [kOperands, kSlots]
};

/// Loads by cp.async, for all cards.
/// @tparam Shape_ a ChunkShape
template <class Shape_>
class CpAsync {
 public:
  using Shape = Shape_;
  struct Tensors {};                ///< load() reads those of the arguments
  static constexpr int kWarps = 2;  ///< that load

  /// As BulkCopies().
  __device__ __forceinline__ explicit CpAsync(const BlockPart<Shape>& part)
      : chunks_((part.end - part.begin - 1) / kChunk + 1) {}

  /// As BulkCopies::load().
  __device__ __forceinline__ void load(const Bf16Arguments& a, Tensors, const BlockPart<Shape>& part) const {
    const int thread = int(threadIdx.x - kProductsThreads);
    // The last time round nothing is loaded, but the last chunk is handed over.
    for (int n = 0; n <= chunks_; ++n) {
      const int t = part.begin + n * kChunk, rows = part.end - t;
      const ChunkTiles<Shape> tiles = tiles_of<Shape>(n);
      const auto fill = [&]<int kWidth>(Operand operand, const SwizzledTile<kWidth>& tile, const __nv_bfloat16* source,
                                        std::int64_t stride_l, int columns) {
        cp_async_wait<kOperands - 1>();  // all but the two newest: this operand of the chunk before is here
        if (n > 0) arrive_at_named_barrier(full(operand, n - 1), kAll);
        if (n < chunks_) {
          if (n >= kSlots) wait_at_named_barrier(empty(operand, n), kAll);
          load_columns_async<32 * kWarps, kWidth>(thread, tile, source, stride_l, rows, columns);
        }
        cp_async_commit();
      };
      fill(kQ, tiles.Q, a.q.row(part.b, part.h, t), a.q.stride_l, a.Dk);
      fill(kK, tiles.K, a.k.row(part.b, part.h, t), a.k.stride_l, a.Dk);
      fill(kV, tiles.V, a.v.row(part.b, part.h, t) + part.first_column, a.v.stride_l, part.columns);
    }
  }

  /// As BulkCopies::wait().
  __device__ __forceinline__ void wait(Operand operand, int n, SourceLocation where = SourceLocation::current()) const {
    wait_at_named_barrier(full(operand, n), kAll, where);
  }

  /// As BulkCopies::arrive(). Nobody waits for the slots of the last chunks.
  __device__ __forceinline__ void arrive(Operand operand, int n,
                                         SourceLocation where = SourceLocation::current()) const {
    if (n + kSlots < chunks_) arrive_at_named_barrier(empty(operand, n), kAll, where);
  }

 private:
  static constexpr unsigned kAll = kProductsThreads + 32 * kWarps;  // threads of both roles

  // The numbers of the named barriers, 1 to 12.
  static __device__ __forceinline__ unsigned full(Operand operand, int n) {
    return unsigned(1 + operand * kSlots + n % kSlots);
  }
  static __device__ __forceinline__ unsigned empty(Operand operand, int n) {
    return unsigned(1 + (kOperands + operand) * kSlots + n % kSlots);
  }

  int chunks_;  // of the block's part
};

template <class Loader>
constexpr unsigned kRolesThreads = kProductsThreads + 32 * Loader::kWarps;

template <class Loader>
constexpr std::size_t kRolesSharedBytes = kSlots* ChunkTiles<typename Loader::Shape>::kBytes;

/// Computes the outputs of the block's part, and the final state after the last segment. Called by the warps that
/// multiply.
template <class Loader, class Shape = typename Loader::Shape>
__device__ __forceinline__ void multiply(const Bf16Arguments& a, const LaunchPlan& plan, const BlockPart<Shape>& part,
                                         const Loader& loader) {
  typename Shape::State S;
  part.load_start(S, a.initial_state, plan, extents_of(a));
  int n = 0;
  for (int t = part.begin; t < part.end; t += kChunk, ++n) {
    const ChunkTiles<Shape> tiles = tiles_of<Shape>(n);
    const typename Shape::ScoreTile P{tiles.Q.data};
    RoundedScores scores;
    typename Shape::Output O = {};
    loader.wait(kQ, n);
    loader.wait(kK, n);
    round_masked_scores<Shape>(scores, tiles.Q, tiles.K);
    add_from_state<Shape>(O, tiles.Q, S);
    wait_at_named_barrier(kProductsBarrier, kProductsThreads);  // all have read Q
    store_scores(P, scores);
    wait_at_named_barrier(kProductsBarrier, kProductsThreads);
    loader.wait(kV, n);
    add_from_scores<Shape>(O, P, tiles.V);
    loader.arrive(kQ, n);
    update_state<Shape>(S, tiles.K, tiles.V);
    loader.arrive(kK, n);
    store_output<Shape>(a.o.row(hide_from_compiler(part.b), part.h, t) + part.first_column, a.o.stride_l, part.end - t,
                        part.columns, O, tiles.V, a.scale);
    loader.arrive(kV, n);
  }
  if (part.end == a.L && a.final_state.data) {
    store_state<Shape>(a.final_state.row(part.b, part.h, 0) + part.first_column, S, a.final_state.stride_l, a.Dk,
                       part.columns);
  }
}

}  // namespace
}  // namespace tutorial::linear_attention
