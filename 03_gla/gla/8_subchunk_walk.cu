/// @file
/// Stage 8, `subchunk_walk`: the sub-chunk is the chunk.
///
/// Idea: what sub-chunks have to do with each other can go through the state, too, like everything between chunks. On a
/// GPU that keeps the state in memory this would be a trip there and back for every 16 positions; here the state is in
/// registers, in the lanes where it is needed, and a step costs one multiplication for each of its elements. In
/// exchange the scores between sub-chunks are gone, and with them P, its barrier, and all factors between sub-chunks:
/// q~ and k~ are used as prepare() has left them. Chunks of 64 remain as what is copied at a time.
/// Mends: stage 7 multiplies and rounds every fragment of q~ and k~; it waits at two more barriers; and it has as many
/// blocks as heads. Same: prepare(), its scores of a sub-chunk with itself, the tiles.
///
///   O_r = scale (q~_r S + P_rr V_r)
///   S   = diag(D_r) S + k~_r^T V_r          for each sub-chunk r
///
/// Segments, as in chapter 02's `sequence_parallel`, if there are fewer blocks than multiprocessors; a segment now
/// has a decay, too, which is the product of those of its sub-chunks:
///
///     segment       0               1               2               3
///     kernel 1   X_0, decay_0    X_1, decay_1    X_2, decay_2                      at once: what it makes of zeros
///     kernel 2      S_0 -> decay_0 S_0 + X_0 -> decay_1 (that) + X_1 -> ...        a thread an element
///     kernel 3     walk            walk            walk            walk -> S_L     at once
///
/// Shapes: as stage 7; states of segments [B, H, segments - 1, Dk, Dv] and their decays [B, H, segments - 1, Dk], fp32.
/// Who does what: block (tile and segment, h, b) of the kernels 1 and 3; the warps share the tile's columns, and meet
/// at one barrier a chunk. For each 16 of Dk a warp rounds its piece of the state to bf16 and multiplies q~ with it,
/// decays it, and adds k~^T V to it, so that the multiplications of one piece run beside the mma of another.
/// Resources: 220 registers, 104 KB of shared memory at Dk = Dv = 128: two blocks a multiprocessor.
/// Operations: 4 Dk Dv + 17 Dv a position on tensor cores, and Dk Dv / 16 multiplications.
/// Bytes: as stage 7, and with segments k~, decays and v a second time, and states.
/// Limit: the memory's bandwidth and the tensor cores, neither of which is reached: two warps a scheduler.
/// Needs: as stage 7. Weakness: q~ and k~ go through memory between prepare() and here.
/// Source: chapter 02's `sequence_parallel`; chunks of 16 throughout: FlashKDA (Moonshot AI), whose kernels for a
/// related operator do so.

#include <cuda_runtime.h>

#include "02_chunkwise/chunk_products.cuh"
#include "02_chunkwise/with_shape.cuh"
#include "03_gla/gla/prepared.hpp"
#include "03_gla/gla/prepared_tiles.cuh"
#include "03_gla/gla/spread.hpp"
#include "03_gla/gla/walk_sub_chunk.cuh"
#include "common/device/launch.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::gla {
namespace {

using namespace linear_attention;  // tiles and products

constexpr int kStagesForStates = 3, kStages = 2;  // sets of tiles

/// What every segment but the last does to a state: the state that it makes of zeros, and its decay.
/// @param states [B, H, segments - 1, Dk, Dv]
/// @param decays [B, H, segments - 1, Dk]
template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1)
    segment_states_kernel(HalfArguments a, Prepared prepared, int length, float* states, float* decays) {
  const int b = int(blockIdx.z), h = int(blockIdx.y);
  const int columns_of_tiles = (a.Dv - 1) / Shape::kDv + 1, segment = int(blockIdx.x) / columns_of_tiles;
  const int first_column = int(blockIdx.x) % columns_of_tiles * Shape::kDv;
  const int columns = min(Shape::kDv, a.Dv - first_column);
  const int chunks = length / kChunk;
  const auto tiles_of = [&](int n) {
    return Tiles<Shape>(dynamic_shared<unsigned char>() + n % kStagesForStates * Tiles<Shape>::kBytesForStates);
  };
  const auto load = [&](int n) {
    if (n < chunks) tiles_of(n).load_for_states(a, prepared, opaque(b), h, segment * chunks + n, first_column, columns);
    cp_async_commit();  // an empty group near the end keeps the count right
  };
  load(0);
  load(1);
  typename Shape::State S = {};
  constexpr int kRows = (Shape::kDk + kThreads - 1) / kThreads;  // of the state: the thread multiplies their decays
  float decay[kRows];
#pragma unroll
  for (float& x : decay) x = 1;
  for (int n = 0; n < chunks; ++n) {
    cp_async_wait<1>();
    __syncthreads();
    load(n + 2);
    const Tiles<Shape> tiles = tiles_of(n);
    float O[Shape::kWarpColumns / 8][4];  // not used
#pragma unroll 1
    for (int row = 0; row < kChunk; row += kSubChunk) walk_sub_chunk<Shape, false>(S, O, tiles, row);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int d = int(threadIdx.x) + i * kThreads;
      for (int r = 0; d < Shape::kDk && r < kSubChunks; ++r) decay[i] *= tiles.decays[r * Shape::kDk + d];
    }
  }
  const std::int64_t at = (std::int64_t(b) * a.H + h) * (gridDim.x / unsigned(columns_of_tiles)) + segment;
  store_state<Shape>(states + at * a.Dk * a.Dv + first_column, S, a.Dv, a.Dk, columns);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int d = int(threadIdx.x) + i * kThreads;
    if (first_column == 0 && d < a.Dk) store_global(decays + at * a.Dk + d, decay[i]);
  }
}

constexpr int kCarryThreads = 256;

/// Turns what each segment does to a state into the state that it ends with. Grid (blocks of elements, H, B).
__global__ void __launch_bounds__(kCarryThreads)
    carry_kernel(HalfArguments a, int count, float* states, const float* decays) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), size = a.Dk * a.Dv;
  const int element = int(blockIdx.x) * kCarryThreads + int(threadIdx.x), d = element / a.Dv;
  if (element >= size) return;
  const std::int64_t first = (std::int64_t(b) * a.H + h) * count;
  states += first * size + element;
  decays += first * a.Dk + d;
  float S = 0;
  if (a.initial_state.data) S = load_global(a.initial_state.row(b, h, d) + element % a.Dv);
  constexpr int kAtOnce = 8;  // loads on their way before the first is used
  for (int n = 0; n < count; n += kAtOnce) {
    float own[kAtOnce], decay[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int segment = min(n + i, count - 1);
      own[i] = states[std::int64_t(segment) * size];
      decay[i] = load_global(decays + std::int64_t(segment) * a.Dk);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      S = decay[i] * S + own[i];
      if (n + i < count) store_global(states + std::int64_t(n + i) * size, S);
    }
  }
}

template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1)
    walk_kernel(HalfArguments a, Prepared prepared, Spread spread) {
  const int b = int(blockIdx.z), h = int(blockIdx.y);
  const int columns_of_tiles = (a.Dv - 1) / Shape::kDv + 1, segment = int(blockIdx.x) / columns_of_tiles;
  const int first_column = int(blockIdx.x) % columns_of_tiles * Shape::kDv;
  const int columns = min(Shape::kDv, a.Dv - first_column);
  const int begin = segment * spread.length, end = begin + min(spread.length, a.L - begin);
  const auto tiles_of = [&](int t) {
    return Tiles<Shape>(dynamic_shared<unsigned char>() + t / kChunk % kStages * Tiles<Shape>::kBytes);
  };
  const auto load = [&](int t) {
    const Tiles<Shape> tiles = tiles_of(t);
    tiles.load_for_states(a, prepared, opaque(b), h, t / kChunk, first_column, columns);
    tiles.load_for_outputs(a, prepared, opaque(b), h, t / kChunk);
    cp_async_commit();
  };
  load(begin);

  const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) : nullptr;
  std::int64_t stride_row = a.initial_state.stride_l;
  if (segment > 0) {
    start = spread.starts + ((std::int64_t(b) * a.H + h) * (spread.segments - 1) + segment - 1) * a.Dk * a.Dv;
    stride_row = a.Dv;
  }
  typename Shape::State S;
  load_state<Shape>(S, start ? start + first_column : nullptr, stride_row, a.Dk, columns);

  for (int t = begin; t < end; t += kChunk) {
    cp_async_wait<0>();
    __syncthreads();
    if (t + kChunk < end) load(t + kChunk);
    const Tiles<Shape> tiles = tiles_of(t);
#pragma unroll 1
    for (int row = 0; row < kChunk; row += kSubChunk) {
      float O[Shape::kWarpColumns / 8][4] = {};
      walk_sub_chunk<Shape, true>(S, O, tiles, row);
      put_output<Shape>(tiles.V, O, row, a.scale);
    }
    store_warp_columns<Shape>(a.o.row(opaque(b), h, t) + first_column, a.o.stride_l, end - t, columns, tiles.V);
  }
  if (end == a.L && a.final_state.data) {
    store_state<Shape>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk, columns);
  }
}

}  // namespace

void subchunk_walk(const HalfArguments& a, Spread spread) {
  const Prepared prepared = prepare(a);
  with_shape(a.Dk, spread.columns, [&]<class Shape>(Shape) {
    const unsigned tiles = (unsigned(a.Dv) - 1) / Shape::kDv + 1;
    if (spread.segments > 1) {
      const int count = spread.segments - 1;
      const std::int64_t rows = std::int64_t(a.B) * a.H * count * a.Dk;
      float* states = workspace<float>("gla: states of segments", std::size_t(rows * a.Dv));
      float* decays = workspace<float>("gla: decays of segments", std::size_t(rows));
      spread.starts = states;
      launch(segment_states_kernel<Shape>,
             {dim3(tiles * unsigned(count), unsigned(a.H), unsigned(a.B)), kThreads,
              std::size_t(kStagesForStates) * Tiles<Shape>::kBytesForStates},
             a, prepared, spread.length, states, decays);
      const auto blocks = unsigned((a.Dk * a.Dv - 1) / kCarryThreads + 1);
      launch(carry_kernel, {dim3(blocks, unsigned(a.H), unsigned(a.B)), kCarryThreads}, a, count, states, decays);
    }
    launch(walk_kernel<Shape>,
           {dim3(tiles * unsigned(spread.segments), unsigned(a.H), unsigned(a.B)), kThreads,
            std::size_t(kStages) * Tiles<Shape>::kBytes},
           a, prepared, spread);
  });
}

std::int64_t subchunk_walk_moved(const HalfArguments& a, const Spread& spread) {
  const std::int64_t Dk = a.Dk, Dv = a.Dv, size = Dk * Dv, tiles = (Dv - 1) / spread.columns + 1;
  const std::int64_t chunks = (a.L - 1) / kChunk + 1, rows = kChunk * chunks;
  const std::int64_t initial = a.initial_state.data != nullptr, final = a.final_state.data != nullptr;
  const std::int64_t slice = Dk <= 64 ? 64 : 128,
                     asked = ((Dk - 1) / slice + 1) * slice;   // lanes without elements ask, too
  const std::int64_t of_prepare = rows * asked * (2 + 2 + 4);  // and it writes its workspace
  const std::int64_t decays = chunks * kSubChunks * Dk * 4;
  const std::int64_t of_walk = tiles * (rows * (2 * Dk + 2 * Dk + 2 * kSubChunk) + decays) + a.L * (2 + 2) * Dv +
                               4 * size * (initial + spread.segments - 1 + final);
  std::int64_t of_segments = 0;
  if (const std::int64_t count = spread.segments - 1; count > 0) {
    const std::int64_t before = count * spread.length;  // positions of all segments but the last
    constexpr std::int64_t kAtOnce = 8;                 // of carry_kernel
    of_segments = tiles * before * (2 * Dk + 4 * Dk / kSubChunk) + before * 2 * Dv + 4 * count * (size + Dk) +
                  4 * size * (initial + 2 * ((count - 1) / kAtOnce + 1) * kAtOnce + count);
  }
  return std::int64_t(a.B) * a.H * (of_prepare + of_segments + of_walk) + prepared_memory(a);
}

void subchunk_walk(const HalfArguments& a) {
  subchunk_walk(a, linear_attention::one_wave(without_gates(a)));
}

std::int64_t subchunk_walk_memory(const HalfArguments& a) {
  return subchunk_walk_memory(a, linear_attention::one_wave(without_gates(a)));
}

}  // namespace tutorial::gla
