#pragma once
/// @file
/// Both walks and the gradients of chunks in one launch, for few heads: `warpgroups` of `--backward`.
///
/// Idea: a walk takes one chunk after the other, by a block for 64 columns of Dv of a head. With few heads most
/// multiprocessors would wait until all walks are done. But chunk n is ready when the walk from the beginning has come
/// to it and so has the one from the end: those in the middle of a sequence after half of the time. So blocks take
/// numbers. The first ones walk and end. All others, among them those that start when a walk has ended, take chunks, from
/// the middle of the sequences to both ends, in each of their two warpgroups.
///
/// The threads that store what a walk leaves count the chunks that are in memory, and those that load a chunk wait for
/// these counters. Walks wait for nobody, and their blocks have the smallest numbers. So all that is waited for has
/// started, in whatever order blocks start.

#include <cuda_runtime.h>

#include "05_deltanet_wy/kda_backward/dispatch/chunk_gradients.cuh"
#include "05_deltanet_wy/kda_backward/dispatch/sub_chunk_gradients.hpp"
#include "05_deltanet_wy/kda_backward/dispatch/warpgroup_walks.cuh"
#include "common/device/architecture.cuh"
#include "common/device/atomic.cuh"

namespace tutorial::kda {
namespace {

constexpr int kGroups = kWalkThreads / kWarpgroup;

/// Bulk copies that this thread starts read what it knows to be in device memory.
__device__ __forceinline__ void fence_device_memory_for_copies() {
#if TUTORIAL_SM90 && !TUTORIAL_EMULATOR
  asm volatile("fence.proxy.async.global;" : : : "memory");
#endif
}

/// Waits until both walks have left what the chunk takes. Called by one thread.
/// @param progress of the head: kProgress counters for each tile of Dv
__device__ __forceinline__ void wait_for_walks(const int* progress, int tiles, const ChunkPart& at, int N) {
  for (;;) {
    int missing = 0;  // chunks
    for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
      for (int i = 0; i < kProgress; ++i) {
        const int needed = i < 2 ? at.n + 1 : N - at.n;
        missing = max(missing, needed - load_relaxed(progress + tile * kProgress + i));
      }
    }
    if (missing <= 0) break;
    if (missing > 1) __nanosleep(1000);  // many ask; a chunk takes about as long
    backoff();
  }
  __threadfence();  // what was written before the counters is seen
  fence_device_memory_for_copies();
}

/// The chunk of a task: all heads' chunks in the middle come first. Its n is -1 if there is no such task.
__device__ __forceinline__ ChunkPart part_of_task(const Bf16BackwardArguments& g, int task, int N, int tiles,
                                                  unsigned phase) {
  const int of_all_heads = g.B * g.H * tiles, rank = task / of_all_heads, rest = task % of_all_heads;
  const int head = rest / tiles, n = N / 2 + (rank % 2 ? -(rank / 2 + 1) : rank / 2);
  return {head / g.H, head % g.H, rank < N ? n : -1, rest % tiles * kColumns, phase};
}

/// Grid (any number of blocks). Starts early.
template <int kDk, int kDv>
__global__ void __launch_bounds__(kWalkThreads, 1)
    one_launch_kernel(Bf16BackwardArguments g, const __grid_constant__ DecayedMaps walk_maps,
                      const __grid_constant__ ChunkGradientMaps maps, PreparedChunks prepared, Workspace x) {
  __shared__ DecayedBarriers barriers;
  __shared__ ChunkSums all_sums[kGroups];
  __shared__ int block;
  __shared__ ChunkPart
      parts[kGroups][2];  // that the warpgroups have, and will have; here, because registers are scarce
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const int N = prepared.N, value_tiles = (g.Dv + kColumns - 1) / kColumns,
            key_tiles = (g.Dk + kColumns - 1) / kColumns;
  let_next_kernel_start();
  wait_for_previous_kernel();
  if (threadIdx.x == 0) {
    block = atomicAdd(prepared.numbers, 1);
    for (ChunkSums& sums : all_sums) sums.init();
  }
  __syncthreads();
  if (const int number = block; number < g.B * g.H * 2 * value_tiles) {
    const int head = number / (2 * value_tiles), b = head / g.H, h = head % g.H, tile = number / 2 % value_tiles;
    const bool is_reversed = number % 2 != 0;
    int* progress = prepared.progress + (head * value_tiles + tile) * kProgress + is_reversed * 2;
    __nv_bfloat16* states = (is_reversed ? x.dS : x.S).row(b, h, 0);
    walk<kDk>(g, walk_maps, {b, h, tile, value_tiles, is_reversed, N, states, progress}, WalkMemory<kDk>{memory},
              barriers);
    return;
  }

  const int group = uniform(int(threadIdx.x) / kWarpgroup), thread = int(threadIdx.x) % kWarpgroup;
  const ChunkGradientTiles<kDv> tiles(
      reinterpret_cast<__nv_bfloat16*>(memory + group * ChunkGradientTiles<kDv>::kBytes));
  ChunkSums& sums = all_sums[group];
  const auto take_task = [&](ChunkPart& to, unsigned phase) {
    to = part_of_task(g, atomicAdd(prepared.numbers + 1, 1), N, key_tiles, phase);
  };
  if (thread == 0) take_task(parts[group][0], 0);
  for (int turn = 0;; turn ^= 1) {
    wait_at_named_barrier(ChunkPart::all_threads(), kWarpgroup);
    const ChunkPart& at = parts[group][turn];
    if (at.n < 0) return;
    const int head = at.b * g.H + at.h;
    const float* decays = prepared.decays + (std::int64_t(head) * N + at.n) * g.Dk;
    const bool has_anchor = load_for_update(decays) < 0;
    if (thread == 0) {
      if (has_anchor) {
        wait_for_walks(prepared.progress + head * value_tiles * kProgress, value_tiles, at, N);
        load_values(tiles, sums, maps, at, state_rows(g.Dv));
        load_keys(tiles, sums, maps, at, state_rows(g.Dv));
      }
      take_task(parts[group][turn ^ 1], at.phase ^ unsigned(has_anchor));
    }
    if (has_anchor) gradients_with_anchor(g, tiles, sums, maps, at, decays);
  }
}

}  // namespace
}  // namespace tutorial::kda
