/// @file
/// Stage 8, `sequence_parallel`: the sequence is cut into segments, which are walked at once.
///
/// Idea: what a segment needs of all positions before it is one state. A first kernel reads K and V alone and leaves
/// each segment's own sum of k_t^T v_t; a second, tiny one adds them up from left to right, into the state that each
/// segment starts from; then stage 7's kernel walks all segments at the same time.
///
///     segment       0            1            2            3
///     kernel 1   K^T V ->D_0  K^T V ->D_1  K^T V ->D_2                     at once: reads K, V
///     kernel 2      S_0 -> + D_0 -----> + D_1 -----> + D_2                 a running sum
///                    |         |          |            |
///     kernel 3     walk      walk       walk         walk -> S_L           at once: reads Q, K, V, writes O
///
/// (S_0: the initial state, S_L: the final one.) It is stage 4 with segments for chunks: it, too, computes states first
/// and outputs later, but leaves one state a segment in memory, not one a chunk, and its outputs come from a walk.
/// Mends: stage 7 has as many blocks as there are heads and tiles of Dv. Same: its kernel.
///
///   D_s = sum of k_t^T v_t in segment s      start of segment s + 1 = S_0 + D_0 + ... + D_s      stage 7 from there
///
/// Shapes: as stage 6; states D, S [B, H, segments - 1, Dk, Dv] fp32 in global memory. Shared memory of kernel 1: three
/// sets of K and V, 96 KB at Dk = Dv = 128, two blocks a multiprocessor.
/// Work: kernel 1: as stage 7. It walks its segment from the end to the beginning: a sum does not mind, and what it
/// read last, and the second-level cache still has, is what kernel 3 reads first. Kernel 2: a thread an element of the
/// state.
/// Operations: those of stage 7, and 2 Dk Dv a position for kernel 1. Bytes: K and V are read a second time, except for
/// the last segment's; each segment's state is written, read and written by kernel 2, and read again.
/// Limit: the memory's bandwidth, with two blocks for each multiprocessor; for short sequences three kernels' starts
/// and ends.
/// Needs: as stage 6. Weakness: the second read, and for short sequences three launches; stage 9 chooses.
/// Sources: the scan (running sum) over segments is Blelloch's reduce-then-scan, "Prefix Sums and Their
/// Applications" (1990), with one sequential scan in the middle; flash-linear-attention splits sequences over GPUs in
/// the same way.

#include <cuda_runtime.h>

#include "02_chunkwise/async_tile.cuh"
#include "02_chunkwise/chunk_products.cuh"
#include "02_chunkwise/linear_attention.hpp"
#include "02_chunkwise/normalized.hpp"
#include "02_chunkwise/normalizer.cuh"
#include "02_chunkwise/spread.hpp"
#include "02_chunkwise/with_shape.cuh"
#include "common/device/launch.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::linear_attention {
namespace {

constexpr int kStages = 3;  // sets of tiles

template <class Shape>
constexpr int kStageElements = (Shape::kDk + Shape::kDv) * kChunk;

template <class Shape>
constexpr std::size_t kSharedBytes = kStageElements<Shape>* kStages * sizeof(__nv_bfloat16);

/// Kernel 1: D of every segment but the last.
/// @param states [B, H, segments - 1, Dk, Dv]
/// @param normalizers [B, H, segments - 1, Dk]: the segments' sums of k_t; not used unless kNormalized
template <class Shape, bool kNormalized>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1)
    segment_states_kernel(HalfArguments a, int length, float* states, float* normalizers) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), head = b * a.H + h;
  const int tiles = (a.Dv - 1) / Shape::kDv + 1, segment = int(blockIdx.x) / tiles;
  const int first_column = int(blockIdx.x) % tiles * Shape::kDv, columns = min(Shape::kDv, a.Dv - first_column);
  const int begin = segment * length, chunks = length / kChunk;  // all of them whole: only the last segment is cut off

  __nv_bfloat16* memory = dynamic_shared<__nv_bfloat16>();
  const auto K = [&](int n) { return typename Shape::KeyTile{memory + n % kStages * kStageElements<Shape>}; };
  const auto V = [&](int n) { return typename Shape::ValueTile{K(n).data + kChunk * Shape::kDk}; };

  const auto load = [&](int n) {
    const int t = begin + (chunks - 1 - n) * kChunk;
    if (n < chunks) {
      load_tile_async(K(n), a.k.row(b, h, t), a.k.stride_l, kChunk, a.Dk);
      load_tile_async(V(n), a.v.row(b, h, t) + first_column, a.v.stride_l, kChunk, columns);
    }
    cp_async_commit();  // an empty group near the end keeps the count right
  };
  load(0);
  load(1);
  typename Shape::State S = {};
  typename SharedNormalizer<Shape>::KeySums keys = {};
  for (int n = 0; n < chunks; ++n) {
    cp_async_wait<1>();
    __syncthreads();
    load(n + 2);
    update_state<Shape>(S, K(n), V(n));
    if constexpr (kNormalized) SharedNormalizer<Shape>::add_keys(keys, K(n));
  }
  const std::int64_t at = std::int64_t(head) * (gridDim.x / unsigned(tiles)) + segment;
  store_state<Shape>(states + at * a.Dk * a.Dv + first_column, S, a.Dv, a.Dk, columns);
  if constexpr (kNormalized) {
    if (first_column == 0) SharedNormalizer<Shape>::store_keys(normalizers + at * a.Dk, keys, a.Dk);
  }
}

constexpr int kCarryThreads = 256;

/// Sums of all segments of all heads, and what they begin with.
struct Carried {
  View<const float> initial;  ///< [B, H, Dk, columns]; its data is null where it is 0
  int columns;                ///< Dv for states, 1 for z
  float* sums;                ///< [B, H, count, Dk, columns]
};

/// Kernel 2: turns each segment's own sum into the sum of all up to it, plus `initial`. Blocks (x, h, b) have 256
/// elements each of the states of head h of batch entry b, from x = state_blocks on of its z.
__global__ void __launch_bounds__(kCarryThreads)
    carry_kernel(Carried states, Carried normalizers, int state_blocks, int Dk, int count) {
  const bool of_z = int(blockIdx.x) >= state_blocks;
  const int block = int(blockIdx.x) - (of_z ? state_blocks : 0), b = int(blockIdx.z), h = int(blockIdx.y);
  const View<const float> initial = of_z ? normalizers.initial : states.initial;
  const int columns = of_z ? normalizers.columns : states.columns, size = Dk * columns;
  const int element = block * kCarryThreads + int(threadIdx.x), head = b * int(gridDim.y) + h;
  if (element >= size) return;
  float* sums = (of_z ? normalizers.sums : states.sums) + std::int64_t(head) * count * size + element;
  float sum = 0;
  if (initial.data) sum = load_global(initial.row(b, h, element / columns) + element % columns);
  constexpr int kAtOnce = 8;  // loads on their way before the first is used
  for (int n = 0; n < count; n += kAtOnce) {
    float own[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) own[i] = n + i < count ? sums[std::int64_t(n + i) * size] : 0.0f;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      sum += own[i];
      if (n + i < count) store_global(sums + std::int64_t(n + i) * size, sum);
    }
  }
}

}  // namespace

void sequence_parallel(const HalfArguments& a, Spread spread, const Normalizer* normalizer) {
  if (spread.segments == 1) return pipelined(a, spread, normalizer);
  const int count = spread.segments - 1;
  const std::int64_t rows = std::int64_t(a.B) * a.H * count * a.Dk;
  float* states = workspace<float>("linear_attention: states", std::size_t(rows * a.Dv));
  float* sums_of_k = normalizer ? workspace<float>("linear_attention: normalizers", std::size_t(rows)) : nullptr;
  with_shape(a.Dk, spread.columns, [&]<class Shape>(Shape) {
    const dim3 grid = blocks<Shape>(a, count);
    if (normalizer) {
      launch(segment_states_kernel<Shape, true>, {grid, kThreads, kSharedBytes<Shape>}, a, spread.length, states,
             sums_of_k);
    } else {
      launch(segment_states_kernel<Shape, false>, {grid, kThreads, kSharedBytes<Shape>}, a, spread.length, states,
             sums_of_k);
    }
  });
  const auto blocks_of = [](int elements) { return (elements - 1) / kCarryThreads + 1; };
  const int state_blocks = blocks_of(a.Dk * a.Dv), z_blocks = normalizer ? blocks_of(a.Dk) : 0;
  Carried carried_z{};
  Normalizer carried;
  if (normalizer) {
    carried_z = {packed(normalizer->initial_z, a.H, a.Dk, 1), 1, sums_of_k};
    carried = *normalizer;
    carried.starts = sums_of_k;
  }
  launch(carry_kernel, {dim3(unsigned(state_blocks + z_blocks), unsigned(a.H), unsigned(a.B)), kCarryThreads},
         Carried{a.initial_state, a.Dv, states}, carried_z, state_blocks, a.Dk, count);
  spread.starts = states;
  pipelined(a, spread, normalizer ? &carried : nullptr);
}

void sequence_parallel(const HalfArguments& a) {
  sequence_parallel(a, one_wave(a));
}

std::int64_t sequence_parallel_memory(const HalfArguments& a) {
  return spread_memory(a, one_wave(a));
}

}  // namespace tutorial::linear_attention
