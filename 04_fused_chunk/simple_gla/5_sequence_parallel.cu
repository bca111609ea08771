/// @file
/// Stage 5, `sequence_parallel`: segments of the sequence are walked at once.
///
/// Idea: chapter 02's stage of this name with a decay a segment, which is one number. A first kernel reads k, v and g
/// alone and leaves what each segment makes of a state of zeros, and its decay; a second one goes from segment to
/// segment; then stage 4 walks all of them.
///
///     segment       0               1               2               3
///     kernel 1   X_0, decay_0    X_1, decay_1    X_2, decay_2                      at once: reads k, v, g
///     kernel 2      S_0 -> decay_0 S_0 + X_0 -> decay_1 (that) + X_1 -> ...        a thread an element
///     kernel 3     walk            walk            walk            walk -> S_L     at once: reads q, k, v, g, writes o
///
/// Mends: stage 4 has as many blocks as there are heads and tiles of Dv. Same: its kernel, and its equations:
///
///   S = 2^b_e S + K_n^T (diag(2^(b_e - b)) V_n)          for each chunk n; b sums of g / ln 2 from its start, b_e all
///
/// Shapes: as stage 4; X and the states that segments start from [B, H, segments - 1, Dk, Dv], decays [B, H, segments -
/// 1], fp32 in global memory. Who does what: kernel 1 as stage 4, without q; each warp sums the gates for itself, a
/// chunk ahead, and keeps the sums in registers.
/// Resources of kernel 1 at Dk = Dv = 128: 215 registers a thread; three sets of K, V and g, 97 KB of shared memory:
/// two blocks a multiprocessor.
/// Precision: a segment's decay is 2 to the sum of its chunks' sums, added up in double.
/// Operations: those of stage 4, and 2 Dk Dv a position for kernel 1. Bytes: k, v and g a second time, except for the
/// last segment's; two states a segment, written and read.
/// Limit: the memory's bandwidth; for short sequences three kernels' starts and ends. Needs: as stage 4.
/// Weakness: the second read, and the launches; stage 6 chooses.
/// Source: chapter 02's `sequence_parallel`.

#include <cuda_runtime.h>

#include "02_chunkwise/async_tile.cuh"
#include "02_chunkwise/chunk_products.cuh"
#include "02_chunkwise/with_shape.cuh"
#include "04_fused_chunk/simple_gla.hpp"
#include "04_fused_chunk/simple_gla/scalar_gate.cuh"
#include "04_fused_chunk/simple_gla/spread.hpp"
#include "common/device/cp_async.cuh"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/opaque.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::simple_gla {
namespace {

using namespace linear_attention;  // the tiles and their products

/// One chunk in shared memory, without its queries.
template <class Shape>
struct Tiles {
  typename Shape::KeyTile K;
  typename Shape::ValueTile V;
  float* g_next;

  static constexpr int kBytes = 2 * kChunk * (Shape::kDk + Shape::kDv) + 4 * kChunk;

  __device__ __forceinline__ explicit Tiles(unsigned char* memory)
      : K{reinterpret_cast<__nv_bfloat16*>(memory)},
        V{K.data + kChunk * Shape::kDk},
        g_next(reinterpret_cast<float*>(V.data + kChunk * Shape::kDv)) {}
};

constexpr int kStages = 3;  // sets of tiles

/// Kernel 1: what every segment but the last does to a state. All of its chunks are whole.
/// @param states [B, H, segments - 1, Dk, Dv] @param decays [B, H, segments - 1]
template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1)
    segment_states_kernel(HalfArguments a, int length, float* states, float* decays) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), head = b * a.H + h;
  const int tiles_of_columns = (a.Dv - 1) / Shape::kDv + 1, segment = int(blockIdx.x) / tiles_of_columns;
  const int first_column = int(blockIdx.x) % tiles_of_columns * Shape::kDv;
  const int columns = min(Shape::kDv, a.Dv - first_column), chunks = length / kChunk;
  const auto tiles_of = [](int n) {
    return Tiles<Shape>(dynamic_shared<unsigned char>() + n % kStages * Tiles<Shape>::kBytes);
  };

  const auto load = [&](int n) {
    if (n < chunks) {
      const Tiles<Shape> tiles = tiles_of(n);
      const int t = segment * length + n * kChunk, batch = opaque(b), i = opaque(int(threadIdx.x));
      load_tile_async(tiles.K, a.k.row(batch, h, t), a.k.stride_l, kChunk, a.Dk);
      load_tile_async(tiles.V, a.v.row(batch, h, t) + first_column, a.v.stride_l, kChunk, columns);
      // The next chunk's gates: their decays are to be there when its tiles are.
      if (i < kChunk && n + 1 < chunks) cp_async<4>(tiles.g_next + i, a.g.row(batch, h, t + kChunk + i));
    }
    cp_async_commit();  // an empty group near the end keeps the count right
  };
  load(0);
  load(1);
  typename Shape::State S = {};
  double sum = 0;
  GateSums sums(load_gates(a, b, h, segment * length, a.L));
  for (int n = 0; n < chunks; ++n) {
    cp_async_wait<1>();
    __syncthreads();
    load(n + 2);
    const Tiles<Shape> tiles = tiles_of(n);
    const DecayToEnd to_end(sums);
    sum += sums.end;
    if (n + 1 < chunks) sums = GateSums(gates_of_lane(tiles.g_next));
    simple_gla::update_state<Shape>(S, tiles.K, tiles.V, to_end);
  }
  const std::int64_t at = std::int64_t(head) * (gridDim.x / unsigned(tiles_of_columns)) + segment;
  store_state<Shape>(states + at * a.Dk * a.Dv + first_column, S, a.Dv, a.Dk, columns);
  if (first_column == 0 && threadIdx.x == 0) store_global(decays + at, exp2f(float(sum)));
}

constexpr int kCarryThreads = 256;

/// Kernel 2: the state that each segment but the first starts from. Grid (blocks of elements, H, B).
/// @param states, decays by kernel 1 @param starts [B, H, segments - 1, Dk, Dv]
__global__ void __launch_bounds__(kCarryThreads)
    carry_kernel(HalfArguments a, int count, const float* states, const float* decays, float* starts) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), size = a.Dk * a.Dv;
  const int element = int(blockIdx.x) * kCarryThreads + int(threadIdx.x);
  if (element >= size) return;
  const std::int64_t first = (std::int64_t(b) * a.H + h) * count;
  float S = 0;
  if (a.initial_state.data) S = load_global(a.initial_state.row(b, h, element / a.Dv) + element % a.Dv);
  constexpr int kAtOnce = 8;  // loads on their way before the first is used
  for (int n = 0; n < count; n += kAtOnce) {
    float own[kAtOnce], decay[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      own[i] = n + i < count ? load_global(states + (first + n + i) * size + element) : 0.0f;
      decay[i] = n + i < count ? load_global(decays + first + n + i) : 1.0f;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      S = decay[i] * S + own[i];
      if (n + i < count) store_global(starts + (first + n + i) * size + element, S);
    }
  }
}

}  // namespace

void sequence_parallel(const HalfArguments& a, Spread spread) {
  if (spread.segments == 1) return fused(a, spread);
  const int count = spread.segments - 1;
  const std::int64_t segments = std::int64_t(a.B) * a.H * count, size = std::int64_t(a.Dk) * a.Dv;
  float* states = workspace<float>("simple_gla: states", std::size_t(2 * segments * size));
  float* decays = workspace<float>("simple_gla: decays", std::size_t(segments));
  float* starts = states + segments * size;
  with_shape(a.Dk, spread.columns, [&]<class Shape>(Shape) {
    const unsigned blocks = ((unsigned(a.Dv) - 1) / Shape::kDv + 1) * unsigned(count);
    launch(segment_states_kernel<Shape>,
           {dim3(blocks, unsigned(a.H), unsigned(a.B)), kThreads, std::size_t(kStages) * Tiles<Shape>::kBytes}, a,
           spread.length, states, decays);
  });
  const auto blocks = unsigned((size - 1) / kCarryThreads + 1);
  launch(carry_kernel, {dim3(blocks, unsigned(a.H), unsigned(a.B)), kCarryThreads}, a, count, states, decays, starts);
  spread.starts = starts;
  fused(a, spread);
}

std::int64_t sequence_parallel_memory(const HalfArguments& a, const Spread& spread) {
  return std::int64_t(sizeof(float)) * a.B * a.H * (spread.segments - 1) * (2 * std::int64_t(a.Dk) * a.Dv + 1);
}

std::int64_t sequence_parallel_moved(const HalfArguments& a, const Spread& spread) {
  const std::int64_t tiles = (a.Dv - 1) / spread.columns + 1, count = spread.segments - 1;
  const std::int64_t L = count * spread.length, size = std::int64_t(a.Dk) * a.Dv;
  const std::int64_t gates = count * (kWarps - 1) * 4 * kChunk;  // every warp reads those of a segment's first chunk
  const std::int64_t first = tiles * (L * (2 * a.Dk + 4) + gates) + L * 2 * a.Dv + count * 4 * (size + 1);
  const std::int64_t carry = count > 0 ? 4 * size * ((a.initial_state.data != nullptr) + 3 * count) : 0;
  return std::int64_t(a.B) * a.H * (first + carry) + fused_moved(a, spread);
}

void sequence_parallel(const HalfArguments& a) {
  sequence_parallel(a, one_wave(without_gates(a)));
}

std::int64_t sequence_parallel_memory(const HalfArguments& a) {
  return sequence_parallel_memory(a, one_wave(without_gates(a)));
}

std::int64_t sequence_parallel_moved(const HalfArguments& a) {
  return sequence_parallel_moved(a, one_wave(without_gates(a)));
}

}  // namespace tutorial::simple_gla
