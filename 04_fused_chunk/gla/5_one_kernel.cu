/// @file
/// Stage 5, `one_kernel`: warps that prepare beside warps that walk.
///
/// Idea: chapter 03 computes what depends on one sub-chunk alone in a kernel in front, and writes it to memory: q and
/// k with their decays, as many bytes as q and k themselves have. The walk reads them again. Here the same block does
/// both, one chunk apart: while its walking warps are at chunk n, its preparing warps read q, k and g of chunk n + 1
/// and leave in shared memory what chapter 03 leaves in device memory. One barrier a chunk swaps two sets of tiles.
///
///     preparing warps   chunk 0 | chunk 1 | chunk 2 | ...        q, k, g from memory, through registers, into tiles
///     walking warps             | chunk 0 | chunk 1 | ...        tiles and V to tensor cores, O to memory
///                               ^ a barrier; the two kinds of warps wait for it at different lines
///
/// Mends: stage 4 reads what a kernel in front has written, walks windows of 16 that it loads one by one, and leaves a
/// multiprocessor with few warps. Same as chapter 03's `subchunk_walk`: the arithmetic (its headers), but for P where
/// two warps share a sub-chunk: below.
///
///   for each sub-chunk r of 16 positions, a_t = exp(g_t):
///   q~_t = q_t a_1 ... a_t     k~_i = k_i a_(i+1) ... a_16     D = a_1 ... a_16
///   P_ti = sum_d q_td k_id a_(i+1)d ... a_td, i <= t
///   O_r = scale (q~_r S + P V_r)        S = diag(D) S + k~_r^T V_r
///
/// Shapes: q, k [B, H, L, Dk], v, o [B, H, L, Dv] bf16, g [B, H, L, Dk], states fp32.
/// Who does what: block (tile and segment, h, b) has a tile of 128 or 64 columns of Dv. Each of its 8 or 4 walking
/// warps has 16 of them and their part of the state in registers. Of the preparing warps one has a sub-chunk of every
/// chunk; where Dk is 65 to 128 two share it, by halves of Dk, and P is the sum of two parts, each rounded to bf16:
/// the walk multiplies both with V. A preparing warp's rows are one stream, from chunk to chunk: loads run 8 rows ahead
/// and never drain.
/// Resources at Dk = Dv = 128: 512 threads of 128 registers, 108 KB of shared memory: one block a multiprocessor.
/// Bytes: q, k and g read once for each tile of columns of Dv, v once; o written once. No workspace.
/// Limit: instructions. A preparing warp takes some 2500 for a sub-chunk and half of Dk, and there are two of them and
/// two walking ones to a scheduler. Needs: as chapter 03's `subchunk_walk`.
/// Weakness: that limit. In chapter 03 the same instructions run under the memory's traffic, with 12 warps a
/// multiprocessor that do nothing else. And there are as many blocks as heads and tiles of Dv.
/// Source: chapter 03; FlashAttention-3 (arXiv 2407.08608) for warps with different tasks in one block.

#include <cuda_runtime.h>

#include "02_chunkwise/async_tile.cuh"
#include "02_chunkwise/chunk_products.cuh"
#include "03_gla/gla/decay_sub_chunk.cuh"
#include "03_gla/gla/prepared_tiles.cuh"
#include "03_gla/gla/spread.hpp"
#include "03_gla/gla/walk_sub_chunk.cuh"
#include "04_fused_chunk/fused_gla.hpp"
#include "04_fused_chunk/gla/segments.hpp"
#include "common/device/block_barrier.cuh"
#include "common/device/cp_async.cuh"
#include "common/device/device.hpp"
#include "common/device/launch.cuh"
#include "common/device/opaque.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::fused_gla {
namespace {

using namespace gla;               // sub-chunks
using namespace linear_attention;  // tiles

/// How a block holds its part of a head: all of Dk <= kDk and kDv columns of Dv, of which each walking warp has 16.
template <int kDk_, int kDv_>
struct WalkShape {
  static constexpr int kDk = kDk_;
  static constexpr int kDv = kDv_;
  static constexpr int kWarpColumns = 16;
  static constexpr int kWalkers = 32 * kDv / kWarpColumns;     // threads
  static constexpr int kParts = kDk == 128 ? 2 : 1;            // preparing warps that share the columns of a sub-chunk
  static constexpr int kPreparers = 32 * kSubChunks * kParts;  // threads
  static constexpr int kAll = kWalkers + kPreparers;
  static constexpr int kElements = kDk <= 128 ? 2 : 4;  // of a row, a lane of a preparing warp at a time
  static constexpr int kSlices = kDk / (32 * kElements * kParts);

  using KeyTile = SwizzledTile<kDk>;
  using ValueTile = SwizzledTile<kDv>;
  using State = float[1][kDk / 8][4];
};

constexpr int kStages = 2;  // sets of tiles
constexpr int kAhead = 8;   // rows whose loads are under way

/// What part of the sequence a block has, and of Dv.
template <class Shape>
struct Part {
  int b, h, segment, first_column, columns, first_chunk, chunks;

  __device__ __forceinline__ Part(const HalfArguments& a, int segment_length) : b(int(blockIdx.z)), h(int(blockIdx.y)) {
    const int tiles = (a.Dv - 1) / Shape::kDv + 1;
    segment = int(blockIdx.x) / tiles;
    first_column = int(blockIdx.x) % tiles * Shape::kDv;
    columns = min(Shape::kDv, a.Dv - first_column);
    first_chunk = segment * (segment_length / kChunk);
    chunks = min(segment_length / kChunk, (a.L - 1) / kChunk + 1 - first_chunk);
  }
};

/// Puts a lane's elements of a sub-chunk's rows into the tiles.
template <class Shape, bool kOutputs>
struct ToTiles {
  static constexpr int kElements = Shape::kElements;
  using Half = decltype(Row<kElements>::q);
  using Float = decltype(Row<kElements>::g);

  const Tiles<Shape>& tiles;
  int sub_chunk, d;
  float (&segment_decay)[kElements];

  __device__ __forceinline__ Half* place(const typename Shape::KeyTile& tile, int row) const {
    return reinterpret_cast<Half*>(tile.data + tile.unit(sub_chunk * kSubChunk + row, d / 8 * 8) + d % 8);
  }
  __device__ __forceinline__ void query(int t, const float (&row)[kElements]) const {
    *place(tiles.Q, t) = packed_row(row);
  }
  __device__ __forceinline__ void key(int i, const float (&row)[kElements]) const {
    *place(tiles.K, i) = packed_row(row);
  }
  __device__ __forceinline__ void decay(const float (&row)[kElements]) const {
    *reinterpret_cast<Float*>(tiles.decays + sub_chunk * Shape::kDk + d) = float_row(row);
    if constexpr (!kOutputs) {
#pragma unroll
      for (int e = 0; e < kElements; ++e) segment_decay[e] *= row[e];
    }
  }
};

/// The preparing warps: each has a sub-chunk of every chunk, one chunk ahead of the walk.
/// @param segment_decays without kOutputs: [kSubChunks, Dk], gets the product of all decays of the warp's sub-chunks
template <class Shape, bool kOutputs, class TilesOf>
__device__ __forceinline__ void prepare_chunks(const HalfArguments& a, const Part<Shape>& part, const TilesOf& tiles_of,
                                               float* segment_decays) {
  constexpr int kElements = Shape::kElements, kSlices = Shape::kSlices;
  const int warp = (int(threadIdx.x) - Shape::kWalkers) / 32, sub_chunk = warp % kSubChunks;
  const int first_element = (warp / kSubChunks * kSlices * 32 + int(lane_index())) * kElements;
  const int first = part.first_chunk * kChunk + sub_chunk * kSubChunk, items = part.chunks * kSlices;
  // Slices of chunks, one after the other, are one stream of rows: the loads never run dry.
  const auto load = [&](int item, int t) {
    return load_row<kElements, kOutputs>(a, part.b, part.h, first + item / kSlices * kChunk + t,
                                         first_element + item % kSlices * 32 * kElements);
  };
  Row<kElements> ahead[kAhead];
#pragma unroll
  for (int t = 0; t < kAhead; ++t) ahead[t] = load(0, t);
  float segment_decay[kSlices][kElements];
#pragma unroll
  for (auto& slice : segment_decay) {
#pragma unroll
    for (float& x : slice) x = 1;
  }
  for (int n = 0; n < part.chunks; ++n) {
    const Tiles<Shape> tiles = tiles_of(n);
    float scores[8] = {};
#pragma unroll
    for (int slice = 0; slice < kSlices; ++slice) {
      const int item = n * kSlices + slice, next = min(item + 1, items - 1), d = first_element + slice * 32 * kElements;
      const auto load_next = [&](int t) { return t < kSubChunk ? load(item, t) : load(next, t - kSubChunk); };
      const ToTiles<Shape, kOutputs> rows{tiles, sub_chunk, d, segment_decay[slice]};
      decay_sub_chunk<kElements, kOutputs>(ahead, a.L - first - n * kChunk, d < a.Dk, load_next, rows, scores);
    }
    if constexpr (kOutputs) {
      reinterpret_cast<uint4*>(tiles.scores)[warp * 2 * kSubChunk + score_unit()] = packed_scores(scores);
    }
    block_barrier();
  }
  block_barrier();  // as often as the walk
  if constexpr (!kOutputs) {
    if (part.first_column > 0) return;
#pragma unroll
    for (int slice = 0; slice < kSlices; ++slice) {
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        const int d = first_element + slice * 32 * kElements + e;
        if (d < a.Dk) store_global(segment_decays + sub_chunk * a.Dk + d, segment_decay[slice][e]);
      }
    }
  }
}

/// The walking warps, one chunk behind.
template <class Shape, bool kOutputs, class TilesOf>
__device__ __forceinline__ void walk_chunks(const HalfArguments& a, const Part<Shape>& part, const TilesOf& tiles_of,
                                            typename Shape::State& S) {
  const auto load = [&](int n) {
    const int t = (part.first_chunk + n) * kChunk;
    if (threadIdx.x < linear_attention::kThreads) {
      load_tile_async(tiles_of(n).V, a.v.row(opaque(part.b), part.h, t) + part.first_column, a.v.stride_l, a.L - t,
                      part.columns);
      cp_async_commit();
    }
  };
  load(0);
  cp_async_wait<0>();
  block_barrier();
  for (int n = 0; n < part.chunks; ++n) {
    if (n + 1 < part.chunks) load(n + 1);
    const Tiles<Shape> tiles = tiles_of(n);
#pragma unroll 1
    for (int row = 0; row < kChunk; row += kSubChunk) {
      float O[2][4] = {};
      walk_sub_chunk<Shape, kOutputs, Shape::kParts>(S, O, tiles, row);
      if constexpr (kOutputs) put_output<Shape>(tiles.V, O, row, a.scale);
    }
    if constexpr (kOutputs) {
      const int t = (part.first_chunk + n) * kChunk;
      store_warp_columns<Shape>(a.o.row(opaque(part.b), part.h, t) + part.first_column, a.o.stride_l, a.L - t,
                                part.columns, tiles.V);
    }
    cp_async_wait<0>();
    block_barrier();
  }
}

template <class Shape, bool kOutputs>
constexpr int kStageBytes = kOutputs ? Tiles<Shape>::kBytes + (Shape::kParts - 1) * 2 * kChunk* kSubChunk
                                     : Tiles<Shape>::kBytesForStates;

/// With kOutputs the operator; without, what every segment but the last does to a state: the state that it makes of
/// zeros, and its decay.
/// @param states [B, H, segments - 1, Dk, Dv]
/// @param decays [B, H, segments - 1, kSubChunks, Dk]: a segment's decay in kSubChunks factors
template <class Shape, bool kOutputs>
__global__ void __launch_bounds__(Shape::kAll, 1)
    fused_kernel(HalfArguments a, Spread spread, float* states, float* decays) {
  const Part<Shape> part(a, spread.length);
  const auto tiles_of = [&](int n) {
    return Tiles<Shape>(dynamic_shared<unsigned char>() + n % kStages * kStageBytes<Shape, kOutputs>);
  };
  const std::int64_t head = std::int64_t(part.b) * a.H + part.h, before = spread.segments - 1;
  if (threadIdx.x >= unsigned(Shape::kWalkers)) {
    float* own = kOutputs ? nullptr : decays + (head * before + part.segment) * kSubChunks * a.Dk;
    prepare_chunks<Shape, kOutputs>(a, part, tiles_of, own);
    return;
  }
  typename Shape::State S = {};
  if constexpr (kOutputs) {
    if (part.segment > 0) {
      const float* start = states + (head * before + part.segment - 1) * a.Dk * a.Dv;
      load_state<Shape>(S, start + part.first_column, a.Dv, a.Dk, part.columns);
    } else if (a.initial_state.data) {
      load_state<Shape>(S, a.initial_state.row(part.b, part.h, 0) + part.first_column, a.initial_state.stride_l, a.Dk,
                        part.columns);
    }
  }
  walk_chunks<Shape, kOutputs>(a, part, tiles_of, S);
  if constexpr (kOutputs) {
    if (part.segment == before && a.final_state.data) {
      store_state<Shape>(a.final_state.row(part.b, part.h, 0) + part.first_column, S, a.final_state.stride_l, a.Dk,
                         part.columns);
    }
  } else {
    float* state = states + (head * before + part.segment) * a.Dk * a.Dv;
    store_state<Shape>(state + part.first_column, S, a.Dv, a.Dk, part.columns);
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
  decays += first * kSubChunks * a.Dk + d;
  float S = 0;
  if (a.initial_state.data) S = load_global(a.initial_state.row(b, h, d) + element % a.Dv);
  constexpr int kAtOnce = 8;  // loads on their way before the first is used
  for (int n = 0; n < count; n += kAtOnce) {
    float own[kAtOnce], decay[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int segment = min(n + i, count - 1);
      own[i] = states[std::int64_t(segment) * size];
      decay[i] = 1;
#pragma unroll
      for (int r = 0; r < kSubChunks; ++r) {
        decay[i] *= load_global(decays + (std::int64_t(segment) * kSubChunks + r) * a.Dk);
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      S = decay[i] * S + own[i];
      if (n + i < count) store_global(states + std::int64_t(n + i) * size, S);
    }
  }
}

template <class F>
void with_walk_shape(int Dk, int columns, F f) {
  if (Dk <= 64) {
    columns <= 64 ? f(WalkShape<64, 64>()) : f(WalkShape<64, 128>());
  } else if (Dk <= 128) {
    columns <= 64 ? f(WalkShape<128, 64>()) : f(WalkShape<128, 128>());
  } else {
    f(WalkShape<256, 64>());
  }
}

}  // namespace

void one_kernel(const HalfArguments& a, const Spread& spread) {
  with_walk_shape(a.Dk, spread.columns, [&]<class Shape>(Shape) {
    const unsigned tiles = (unsigned(a.Dv) - 1) / Shape::kDv + 1;
    const auto grid = [&](int segments) { return dim3(tiles * unsigned(segments), unsigned(a.H), unsigned(a.B)); };
    float *states = nullptr, *decays = nullptr;
    if (spread.segments > 1) {
      const int count = spread.segments - 1;
      const std::int64_t rows = std::int64_t(a.B) * a.H * count * a.Dk;
      states = workspace<float>("fused_gla: states of segments", std::size_t(rows * a.Dv));
      decays = workspace<float>("fused_gla: decays of segments", std::size_t(rows * kSubChunks));
      launch(fused_kernel<Shape, false>, {grid(count), Shape::kAll, std::size_t(kStages) * kStageBytes<Shape, false>},
             a, spread, states, decays);
      const auto blocks = unsigned((a.Dk * a.Dv - 1) / kCarryThreads + 1);
      launch(carry_kernel, {dim3(blocks, unsigned(a.H), unsigned(a.B)), kCarryThreads}, a, count, states, decays);
    }
    launch(fused_kernel<Shape, true>,
           {grid(spread.segments), Shape::kAll, std::size_t(kStages) * kStageBytes<Shape, true>}, a, spread, states,
           decays);
  });
}

namespace {

/// Narrow tiles while multiprocessors are idle.
Spread one_segment(const HalfArguments& a) {
  const linear_attention::HalfArguments plain = without_gates(a);
  const std::int64_t narrow_blocks = std::int64_t(a.B) * a.H * ((a.Dv - 1) / 64 + 1);
  return make_spread(a.L, narrow_blocks <= multiprocessor_count() ? 64 : widest_tile(plain), 1);
}

}  // namespace

void one_kernel(const HalfArguments& a) {
  one_kernel(a, one_segment(a));
}

std::string one_kernel_limits(const HalfArguments& a) {
  return subchunk_limits(a);
}

std::int64_t one_kernel_memory(const HalfArguments&) {
  return 0;
}

std::int64_t one_kernel_moved(const HalfArguments& a) {
  // The preparing warps read whole chunks and all columns of their shape, and at the end 8 rows of a slice too many.
  const std::int64_t heads = std::int64_t(a.B) * a.H, chunks = (a.L - 1) / kChunk + 1;
  const std::int64_t tiles = (a.Dv - 1) / one_segment(a).columns + 1;
  const std::int64_t columns = a.Dk <= 64 ? 64 : a.Dk <= 128 ? 128 : 256, slices = a.Dk <= 128 ? 1 : 2;
  const std::int64_t elements = chunks * kChunk * columns + kSubChunks * kAhead * columns / slices;
  const std::int64_t states = (a.initial_state.data != nullptr) + (a.final_state.data != nullptr);
  return heads * (tiles * elements * (2 + 2 + 4) + 2 * 2 * std::int64_t(a.L) * a.Dv + states * 4 * a.Dk * a.Dv);
}

}  // namespace tutorial::fused_gla
