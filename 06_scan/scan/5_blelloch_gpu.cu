/// @file
/// `blelloch_gpu`: the tree of `blelloch` in shared memory, tile after tile.
///
/// Idea: a block has one channel. It copies a tile of steps to shared memory, runs up and down the tree with half as
/// many threads as leaves, and writes the tile. In `blelloch` the root receives the identity. Here it receives what
/// came before the tile, as a map that ignores its argument. So each leaf receives y of the step before it.
/// Grows out of: 4_sequential_gpu.cu
/// Improves on: `sequential_gpu` has one thread per sequence and channel.
/// Unchanged: what is read and written, and the rounds of `blelloch` up and down the tree.
/// Equation:
///
///   up:   m[i] <- m[i] after m[i - d]               d = 1, 2, ..., 512;  thread n has i = 2d (n + 1) - 1
///   root: m[1023] <- (sum of all g before, y before)
///   down: m[i - d], m[i] <- m[i], m[i - d] after m[i]
///   y_t = exp(g_t) m[t].value + x_t
///
/// Shapes: x, y [B, H, L, D]; g [B, H, L, Dg], Dg = 1 or D; states [B, H, D]; fp32 in device memory.
/// Thread mapping: block (b, h, d) has 512 threads and tiles of 1024 steps; thread n loads and stores the steps n and n
/// + 512 of a tile. Steps past the end are identities. At distance d the elements of neighbouring threads are 2d apart,
/// and address i is in bank i % 32: at d = 16 a warp would read 32 numbers from one bank. So element i lies at i + i /
/// 32. This shifts each run of 32 elements by one bank, and no two lanes of a warp share a bank at any distance. Sums
/// and values are separate arrays, because a pair would take two banks.
/// Resources: 8.3 KB of shared memory; the two steps of a thread stay in registers.
/// Work: 3 compositions per step.
/// Bytes: x and y once, g once per channel.
/// Bound by: 21 barriers per tile, and rounds in which most threads are idle. Only one thread works in the last round
/// up and in the first round down.
/// Weakness: those rounds, each with a trip through shared memory. With D > 1 neighbouring threads read numbers that
/// are D apart, so each number takes a line of memory.
/// Sources: as `blelloch`; Harris, Sengupta, Owens, "Parallel Prefix Sum (Scan) with CUDA", GPU Gems 3, chapter 39, for
/// the padding.

#include <cuda_runtime.h>

#include "06_scan/affine.hpp"
#include "06_scan/scan.hpp"
#include "06_scan/scan/channel_per_block.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"

namespace tutorial::scan {
namespace {

constexpr int kThreads = 512, kTile = 2 * kThreads;
static_assert(kTile == kBlockTile);

/// The tree in shared memory.
struct Tree {
  float *log_decays, *values;

  static constexpr int kFloats = kTile + kTile / 32;
  __device__ static int place(int i) { return i + i / 32; }
  __device__ Affine<float> get(int i) const { return {log_decays[place(i)], values[place(i)]}; }
  __device__ void set(int i, const Affine<float>& map) const {
    log_decays[place(i)] = map.log_decay;
    values[place(i)] = map.value;
  }
};

__global__ void __launch_bounds__(kThreads) blelloch_kernel(Arguments a) {
  __shared__ float log_decays[Tree::kFloats], values[Tree::kFloats];
  const Tree m{log_decays, values};
  const int thread = int(threadIdx.x);
  const int d = int(blockIdx.x) % a.D, head = int(blockIdx.x) / a.D, h = head % a.H, b = head / a.H;
  Affine<float> before;  // thread 0: what came before the tile
  if (thread == 0 && a.initial_state.data) before.value = load_global(&a.initial_state.row(b, h, 0)[d]);

  for (int t0 = 0; t0 < a.L; t0 += kTile) {
    Affine<float> step[2];
    for (int i = 0; i < 2; ++i) {
      const int t = t0 + thread + i * kThreads;
      if (t < a.L) {
        step[i] = {load_global(&a.log_decay.row(b, h, t)[a.Dg == 1 ? 0 : d]), load_global(&a.x.row(b, h, t)[d])};
      }
      m.set(thread + i * kThreads, step[i]);
    }
    for (int distance = 1; distance < kTile; distance *= 2) {
      __syncthreads();
      const int i = 2 * distance * (thread + 1) - 1;
      if (i < kTile) m.set(i, compose(m.get(i - distance), m.get(i)));
    }
    if (thread == 0) {  // this thread has also computed the root
      const Affine<float> tile = m.get(kTile - 1);
      m.set(kTile - 1, before);
      before = compose(before, tile);
    }
    for (int distance = kTile / 2; distance > 0; distance /= 2) {
      __syncthreads();
      const int i = 2 * distance * (thread + 1) - 1;
      if (i < kTile) {
        const Affine<float> left = m.get(i - distance), above = m.get(i);
        m.set(i - distance, above);
        m.set(i, compose(above, left));
      }
    }
    __syncthreads();
    for (int i = 0; i < 2; ++i) {
      const int t = t0 + thread + i * kThreads;
      if (t < a.L) store_global(&a.y.row(b, h, t)[d], apply(step[i], m.get(thread + i * kThreads).value));
    }
  }
  if (thread > 0) return;
  if (a.final_state.data) store_global(&a.final_state.row(b, h, 0)[d], before.value);
  if (a.final_log_decay.data && d < a.Dg) store_global(&a.final_log_decay.row(b, h, 0)[d], before.log_decay);
}

}  // namespace

void blelloch_gpu(const Arguments& a) {
  launch(blelloch_kernel, {unsigned(channels(a)), kThreads}, a);
}

}  // namespace tutorial::scan
