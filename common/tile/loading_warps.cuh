#pragma once
/// @file
/// Warps that load the tiles of a block's chunks, while the four warps of common/tile/chunk_products.cuh multiply.
///
/// Idea: each tile has two slots of shared memory, and returns to the warps that load as soon as it has been read, not
/// only when its chunk is done. The warps that multiply compute no addresses of loads. Two sets of tiles have to fit
/// into the 99 KB of a block on RTX cards, also with 128 columns. So P, the masked scores Q K^T of a chunk, overwrites Q of
/// the same chunk (PutOverQ).
///
/// Who waits for whom: the loads wait until a slot is free, wait() waits for a tile, and arrive() returns its slot.
///
/// There are two loaders, which differ in how they copy and in how both roles wait:
/// - BulkCopies: one thread requests whole tiles by tensor maps. Barriers in shared memory count bytes and arrivals.
/// - CpAsync: 64 threads copy 16 bytes at a time. Both roles meet at named barriers. The role that hands over arrives
///   and goes on, and the other role waits.
///
/// The warps that load have time and registers to spare. So they may compute what a chunk needs beside its tiles, such
/// as decays (`beside` of load()). These values are handed over together with K, without barriers of their own.
/// Resources: one warp (BulkCopies) or two (CpAsync) beside those that multiply. Shared memory in KB, for 64 and for
/// 128 columns per block: 48 and 64 up to Dk = 64, 80 and 96 up to Dk = 128. Barriers and alignment add 1 KB with bulk
/// copies. The named barriers 1 to 12 (CpAsync) and 15.
/// Requires: Dk <= 128 and what `tensor_core` requires; with BulkCopies also what `bulk_copies` requires.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "common/device/cp_async.cuh"
#include "common/device/mbarrier.cuh"
#include "common/device/memory.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/source_location.hpp"
#include "common/device/warp.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/chunk_products.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/load_tile.cuh"
#include "common/tile/panel_tile.cuh"

namespace tutorial::tile {
namespace {

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

/// What BulkCopies::load() and CpAsync::load() hand over beside the tiles by default.
struct NothingBeside {
  __device__ __forceinline__ void operator()(int) const {}
};

/// Loads by bulk copies, for compute capability 9.0 and later.
/// @tparam Shape_ a PanelShape
/// @tparam kHasBeside whether load() hands over more than tiles
template <class Shape_, bool kHasBeside = false>
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
      for (int i = 0; i < kOperands * kSlots; ++i) full[i].init(kHasBeside && i / kSlots == kK ? 2 : 1);
      for (Barrier& barrier : empty) barrier.init(kProductsThreads / 32);
      fence_barrier_init();
    }
    __syncthreads();
  }

  /// Loads the tiles of all chunks of the block's part. Called by the warps that load.
  /// @param beside (n): what else a walk hands over with K of chunk n, called by all threads of these warps. What it
  /// stores in shared memory is there after wait(kK, n), and nobody reads what it stored for chunk n - kSlots any more,
  /// because arrive(kK, n - kSlots) came after that. Only with kHasBeside
  template <class Arguments, class Beside = NothingBeside>
  __device__ __forceinline__ void load(const Arguments&, const ChunkMaps& maps, const BlockPart<Shape>& part,
                                       Beside beside = {}) const {
    if (!kHasBeside && lane_index() > 0) return;
    for (int t = part.begin; t < part.end; t += kChunk) {
      const int n = (t - part.begin) / kChunk;
      const ChunkTiles<Shape> tiles = tiles_of<Shape>(n);
      const auto request = [&](Operand operand, const auto& tile, const TensorMap& map, int column) {
        if (lane_index() > 0) return;
        const auto ring = Ring<kSlots>::producer(n);
        Barrier& full = full_[operand * kSlots + ring.stage()];
        ring.wait(empty_ + operand * kSlots);
        fence_async_proxy();  // the slot has been read by ldmatrix, and P or O has been stored there
        full.arrive_expect(kChunk * (operand == kV ? Shape::kDv : Shape::kDk) * unsigned(sizeof(__nv_bfloat16)));
        load_panels(tile, map, full, {.column = column, .position = t, .head = part.h, .batch = part.b});
      };
      request(kQ, tiles.Q, maps.q, 0);
      request(kK, tiles.K, maps.k, 0);
      if constexpr (kHasBeside) {
        __syncwarp();  // the first lane has waited for the slot
        beside(n);
        __syncwarp();
        if (lane_index() == 0) full_[kK * kSlots + n % kSlots].arrive();
      }
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
  template <class Arguments, class Beside = NothingBeside>
  __device__ __forceinline__ void load(const Arguments& a, Tensors, const BlockPart<Shape>& part,
                                       Beside beside = {}) const {
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
          if (operand == kK) beside(n);
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

}  // namespace
}  // namespace tutorial::tile
