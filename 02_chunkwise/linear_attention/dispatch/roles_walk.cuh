#pragma once
/// @file
/// The walk that dispatch starts where a block has little shared memory and no products of warpgroups: some warps load,
/// and four multiply.
///
/// Idea: in walk.cuh all warps load, wait and multiply in turn. Its two sets of tiles and P take 104 KB with 128
/// columns per block, 5 KB more than a block of an RTX card has. Here P overwrites Q of its own chunk, so two sets are
/// 96 KB. Warps of their own load the tiles, and the four warps that multiply compute no addresses of loads. Each tile
/// returns to the loads as soon as it has been read, not only when its chunk is done:
///
///     products    | Q S of n | Q K^T | P over Q | P V ...... | K^T V .... | O over V | Q S of n + 1 ...
///     loads                                           Q free |     K free |   V free |
///                                                            | Q of n + 2 | K of n + 2 | V of n + 2 ...
///
/// Who waits for whom: the loads wait until a slot is free, and the products wait for each tile when they first read
/// it. The warps that multiply share the columns of Dv (common/tile/chunk_products.cuh). They wait for each other twice
/// per chunk: until all have read Q, before P overwrites it, and until all parts of P are there.
///
/// There are two loaders, which differ in how they copy and in how both roles wait:
/// - BulkCopies: one thread requests whole tiles by tensor maps. Barriers in shared memory count bytes and arrivals.
/// - CpAsync: 64 threads copy 16 bytes at a time. Both roles meet at named barriers. The role that hands over arrives
///   and goes on, and the other role waits.
///
/// Unchanged: the products, their precision, and the segments (../8_sequence_parallel.cu explains them). The states of
/// the segments come from the first kernel of walk.cuh.
/// Resources: four warps that multiply, and one (BulkCopies) or two (CpAsync) that load. At Dk = Dv = 128 each thread
/// has 255 registers, so a multiprocessor has one block. Shared memory in KB, for 64 and for 128 columns per block: 48
/// and 64 up to Dk = 64, 80 and 96 up to Dk = 128. Barriers and alignment add 1 KB with bulk copies.
/// Bound by: the products, where tensor cores are slow. Where they are fast, by what a warp does between its products,
/// because no other warp of its scheduler multiplies meanwhile. With all multiprocessors busy, the memory's bandwidth.
/// Requires: Dk <= 128 and what `tensor_core` requires; with BulkCopies also what `bulk_copies` requires.
/// Weakness: no warp multiplies while all four store P or O. walk.cuh also supports the normaliser, the other direction
/// and Dk = 256.

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
  /// Whether wait() is a barrier of all threads that multiply.
  static constexpr bool kWaitsTogether = false;

  /// Called by all threads of the block.
  __device__ __forceinline__ BulkCopies() {
    __shared__ Barrier full[kOperands * kSlots], empty[kOperands * kSlots];
    full_ = full;
    empty_ = empty;
    if (threadIdx.x == 0) {
      for (Barrier& barrier : full) barrier.init(1);
      for (Barrier& barrier : empty) barrier.init(kProductsThreads / 32);
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

  /// Returns its slot to the loads. Called by the warps that multiply when they have read it, unless no later chunk
  /// needs the slot.
  __device__ __forceinline__ void arrive(Operand operand, int n,
                                         SourceLocation where = SourceLocation::current()) const {
    __syncwarp();
    if (lane_index() == 0) empty_[operand * kSlots + n % kSlots].arrive(where);
  }

 private:
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
  static constexpr bool kWaitsTogether = true;

  /// As BulkCopies::load().
  __device__ __forceinline__ void load(const Bf16Arguments& a, Tensors, const BlockPart<Shape>& part) const {
    const int thread = int(threadIdx.x - kProductsThreads), chunks = (part.end - part.begin - 1) / kChunk + 1;
    // The last time round nothing is loaded, but the last chunk is handed over.
    for (int n = 0; n <= chunks; ++n) {
      const int t = part.begin + n * kChunk, rows = part.end - t;
      const ChunkTiles<Shape> tiles = tiles_of<Shape>(n);
      const auto fill = [&]<int kWidth>(Operand operand, const SwizzledTile<kWidth>& tile, const __nv_bfloat16* source,
                                        std::int64_t stride_l, int columns) {
        cp_async_wait<kOperands - 1>();  // all but the two newest: this operand of the chunk before is here
        if (n > 0) arrive_at_named_barrier(full(operand, n - 1), kAll);
        if (n < chunks) {
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

  /// As BulkCopies::arrive().
  __device__ __forceinline__ void arrive(Operand operand, int n,
                                         SourceLocation where = SourceLocation::current()) const {
    arrive_at_named_barrier(empty(operand, n), kAll, where);
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
};

/// Threads of a block.
template <class Loader>
constexpr unsigned kRolesThreads = kProductsThreads + 32 * Loader::kWarps;

/// Dynamic shared memory of a block.
template <class Loader>
constexpr std::size_t kRolesSharedBytes = kSlots* ChunkTiles<typename Loader::Shape>::kBytes;

/// The epilogue of masked_scores() that lets P overwrite Q: behind the last products it waits until all warps have read
/// Q.
template <class Shape>
struct PutOverQ : NoEpilogue {
  __device__ __forceinline__ void step(int i) {
    if (i == Shape::kDk / 16 - 1) wait_at_named_barrier(kProductsBarrier, kProductsThreads);
  }
};

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
    const bool has_successor = t + kSlots * kChunk < part.end;  // in the same slots
    typename Shape::Output O = {};
    loader.wait(kQ, n);
    add_from_state<Shape>(O, tiles.Q, S);
    loader.wait(kK, n);
    masked_scores<Shape>(P, tiles.Q, tiles.K, PutOverQ<Shape>());
    if constexpr (!Loader::kWaitsTogether) wait_at_named_barrier(kProductsBarrier, kProductsThreads);
    loader.wait(kV, n);
    add_from_scores<Shape>(O, P, tiles.V);
    if (has_successor) loader.arrive(kQ, n);
    update_state<Shape>(S, tiles.K, tiles.V);
    if (has_successor) loader.arrive(kK, n);
    store_output<Shape>(a.o.row(hide_from_compiler(part.b), part.h, t) + part.first_column, a.o.stride_l, part.end - t,
                        part.columns, O, tiles.V, a.scale);
    if (has_successor) loader.arrive(kV, n);
  }
  if (part.end == a.L && a.final_state.data) {
    store_state<Shape>(a.final_state.row(part.b, part.h, 0) + part.first_column, S, a.final_state.stride_l, a.Dk,
                       part.columns);
  }
}

}  // namespace
}  // namespace tutorial::linear_attention
