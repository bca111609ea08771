#pragma once
/// @file
/// The walk of ../3_fused.cu with roles for warps: some load tiles and add up gates, and four multiply. dispatch starts
/// it where a block has little shared memory and no products of warpgroups.
///
/// Idea: chapter 02 has such a walk without gates. Each tile returns to the loads as soon as it has been read, and P
/// overwrites Q of its own chunk:
///
///     products    | Q S of n | Q K^T | P over Q | P V ...... | K^T V .... | O over V | Q S of n + 1 ...
///     loads                                           Q free |     K free |   V free |
///                                                            | Q of n + 2 | K, g n + 2 | V of n + 2 ...
///
/// A warp that loads has registers and time to spare. So it reads g one chunk ahead, adds it up to b, and stores b and
/// all powers that belong to one position: the factors of rows of Q S and of rows of V. The warps that multiply compute
/// only the powers for scores, and the one for S. In `fused` each of the four warps adds up g for itself, and each of
/// its lanes computes 24 more powers for each chunk.
///
/// Who waits for whom: the loads wait until a slot is free, and the products wait for each tile when they first read
/// it. The decays are handed over with K, and like K they are needed until the state has been updated. So there is no
/// barrier for them. The warps that multiply wait for each other twice per chunk: until all have read Q, before P
/// overwrites it, and until all parts of P are there. The loads are those of common/tile/loading_warps.cuh: by bulk
/// copies or by cp.async.
///
/// Unchanged: the products, decays and precision of `fused`, and the segments of `segments`, whose first
/// kernel computes the states.
/// Resources: four warps that multiply, and one (BulkCopies) or two (CpAsync) that load. At Dk = Dv = 128 each thread
/// has 255 registers, so a multiprocessor has one block. Shared memory in KB, for 64 and for 128 columns per block: 50
/// and 66 up to Dk = 64, 82 and 98 up to Dk = 128. Barriers and alignment add 1 KB with bulk copies.
/// Bound by: the products, where tensor cores are slow. Where they are fast, by what a warp does between its products.
/// Requires: Dk <= 128 and what `fused` requires; with BulkCopies also rows that tensor maps can take, and bulk copies.
/// Weakness: no warp multiplies while all four store P or O. Each score has an exponential of its own, also far from
/// the diagonal.

#include <cuda_runtime.h>

#include "04_fused_chunk/simple_gla.hpp"
#include "04_fused_chunk/simple_gla/dispatch/decay_to_end.cuh"
#include "04_fused_chunk/simple_gla/scalar_gate.cuh"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/memory.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/warp.cuh"
#include "common/tile/base2.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/chunk_products.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/loading_warps.cuh"
#include "common/tile/state.cuh"
#include "common/tile/store_tile.cuh"

namespace tutorial::simple_gla {
namespace {

using namespace tile;

/// What is computed of a chunk's gates, in shared memory behind the tiles. They have the slot of the chunk's tiles.
struct StoredDecays {
  static constexpr int kBytes = 3 * SharedSums::kBytes;

  float* data;

  /// b.
  __device__ __forceinline__ SharedSums sums() const { return {data}; }
  /// scale 2^b_t: the decay from the chunk's start to position t.
  __device__ __forceinline__ float scaled_from_start(int t) const { return data[kChunk + t]; }

  /// The decays to the chunk's end, as DecayToEnd.
  struct ToEnd {
    const float* to_end;  ///< [C]
    float whole;

    /// As DecayToEnd::of_pair(); needs no other lane.
    __device__ __forceinline__ float2 of_pair(int i) const {
      return *reinterpret_cast<const float2*>(to_end + i + hide_from_compiler(int(lane_index())) % 4 * 2);
    }
  };
  __device__ __forceinline__ ToEnd to_end() const { return {data + 2 * kChunk, ex2(data[kChunk - 1])}; }

  /// By one warp.
  __device__ __forceinline__ void store(const ChunkSums& b, float scale) const {
    sums().store(b);
    const DecayToEnd to_end(b);
    reinterpret_cast<float2*>(data + kChunk)[lane_index()] = make_float2(scale * ex2(b.first), scale * ex2(b.second));
    reinterpret_cast<float2*>(data + 2 * kChunk)[lane_index()] = make_float2(to_end.first, to_end.second);
  }
};

/// Dynamic shared memory of a block.
template <class Loader>
constexpr std::size_t kSharedBytes = kRolesSharedBytes<Loader> + kSlots* StoredDecays::kBytes;

/// The decays of chunk n.
template <class Loader>
__device__ __forceinline__ StoredDecays decays_of(int n) {
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>() + kRolesSharedBytes<Loader>;
  return {reinterpret_cast<float*>(memory + n % kSlots * StoredDecays::kBytes)};
}

/// What the loads hand over with K: the first of their warps adds up the gates.
template <class Loader>
class GatesBesideKeys {
 public:
  __device__ __forceinline__ GatesBesideKeys(const Bf16Arguments& a, const BlockPart<typename Loader::Shape>& part)
      : a_(a), part_(part), next_(is_first_warp() ? load(0) : float2{}) {}

  /// Stores the decays of chunk n, which follows the one of the last call.
  __device__ __forceinline__ void operator()(int n) {
    if (!is_first_warp()) return;
    const float2 g = next_;
    next_ = load(n + 1);  // it arrives while the products compute a chunk
    decays_of<Loader>(n).store(ChunkSums(g), a_.scale);
  }

 private:
  static __device__ __forceinline__ bool is_first_warp() { return threadIdx.x < kProductsThreads + 32; }
  __device__ __forceinline__ float2 load(int n) const {
    return load_g(a_, part_.b, part_.h, part_.begin + n * kChunk, part_.end);
  }

  const Bf16Arguments& a_;
  const BlockPart<typename Loader::Shape>& part_;
  float2 next_;  // g of the lane's two positions
};

/// The epilogue of masked_scores(): decays, and P overwrites Q.
template <class Shape>
struct DecayedScoresOverQ : DecayedScores {
  __device__ __forceinline__ void step(int i) { PutOverQ<Shape>().step(i); }
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
    const StoredDecays decays = decays_of<Loader>(n);
    const bool has_successor = t + kSlots * kChunk < part.end;  // in the same slots
    typename Shape::Output O = {};
    loader.wait(kQ, n);
    add_from_state<Shape>(O, tiles.Q, S);
    loader.wait(kK, n);
    scale_rows<Shape>(O, [&](int row) { return decays.scaled_from_start(row); });
    masked_scores<Shape>(P, tiles.Q, tiles.K, DecayedScoresOverQ<Shape>{{decays.sums(), a.scale}});
    if constexpr (!Loader::kWaitsTogether) wait_at_named_barrier(kProductsBarrier, kProductsThreads);
    loader.wait(kV, n);
    add_from_scores<Shape>(O, P, tiles.V);
    if (has_successor) loader.arrive(kQ, n);
    update_state<Shape>(S, tiles.K, tiles.V, decays.to_end());
    if (has_successor) loader.arrive(kK, n);
    store_output<Shape>(a.o.row(hide_from_compiler(part.b), part.h, t) + part.first_column, a.o.stride_l, part.end - t,
                        part.columns, O, tiles.V, 1.0f);
    if (has_successor) loader.arrive(kV, n);
  }
  if (part.end == a.L && a.final_state.data) {
    store_state<Shape>(a.final_state.row(part.b, part.h, 0) + part.first_column, S, a.final_state.stride_l, a.Dk,
                       part.columns);
  }
}

}  // namespace
}  // namespace tutorial::simple_gla
