/// @file
/// Stage 7, `pipelined`: loads of the next chunk run under this chunk's products.
///
/// Idea: two sets of tiles in shared memory. `cp.async` copies from global to shared memory while the thread goes on:
/// a block starts the copies of chunk n + 1, computes chunk n, and finds the next one there.
///
///     copies     | chunk 0 | chunk 1      | chunk 2      | ...
///     products             | chunk 0      | chunk 1      | ...
///                          ^ wait, barrier, start the copies of the next
///
/// Mends: stage 6 waits for memory, then computes while the memory rests. Also one barrier less a chunk: the one
/// after the wait says both that chunk n is there for all, and that all are done with chunk n - 1, whose tiles the
/// next copies fill. Same: the products, their order, what a block takes.
///
///   P = (Q_n K_n^T) . M      O_n = scale (Q_n S + P V_n)      S += K_n^T V_n       for each chunk n
///
/// Shapes, precision, operations and bytes: as stage 6. Shared memory: twice Q, K and V, and P: 104 KB at Dk = Dv =
/// 128, so that two blocks still fit on a multiprocessor (of 227 KB; three sets of tiles would not leave room for the
/// second). They help each other: one computes while the other waits at a barrier. Registers: 255 a thread, all that
/// a thread can have, and two blocks of 128 threads just fit. With 192 of them in S and O, what the compiler likes to
/// keep, addresses above all, would spill to local memory, and each chunk would begin with a wait for it; opaque()
/// says that it is to be computed anew.
/// Limit, where there are two blocks for each multiprocessor: the memory's bandwidth and shared memory's, neither
/// quite reached for want of warps; with fewer blocks, the time that one block needs for one chunk after the other.
/// A block may begin anywhere, if it is told the state there: a block walks one segment, and starts from
/// Spread::starts. This stage has one segment; stage 8 has more.
/// Needs: as stage 6, and the shared memory (Dk > 128: 152 KB). Weakness: B H ceil(Dv / 64) blocks, 64 for 32 heads of
/// Dv = 128, however long the sequence is.
/// Sources: PTX ISA, "cp.async"; else as stage 6.

#include <cuda_runtime.h>

#include "02_chunkwise/async_tile.cuh"
#include "02_chunkwise/chunk_products.cuh"
#include "02_chunkwise/linear_attention.hpp"
#include "02_chunkwise/normalized.hpp"
#include "02_chunkwise/normalizer.cuh"
#include "02_chunkwise/spread.hpp"
#include "02_chunkwise/with_shape.cuh"
#include "common/device/launch.cuh"

namespace tutorial::linear_attention {
namespace {

/// The tiles of one chunk in shared memory.
template <class Shape>
struct Tiles {
  typename Shape::KeyTile Q, K;
  typename Shape::ValueTile V;

  static constexpr int kElements = kChunk * (2 * Shape::kDk + Shape::kDv);

  __device__ explicit Tiles(__nv_bfloat16* memory)
      : Q{memory}, K{memory + kChunk * Shape::kDk}, V{memory + 2 * kChunk * Shape::kDk} {}
};

constexpr int kStages = 2;  // sets of tiles

template <class Shape, bool kNormalized>
constexpr std::size_t kSharedBytes = sizeof(__nv_bfloat16) * (kStages * Tiles<Shape>::kElements + kChunk * kChunk) +
                                     (kNormalized ? SharedNormalizer<Shape>::kBytes : 0);

template <class Shape, bool kNormalized>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1)
    pipelined_kernel(HalfArguments a, Spread spread, Normalizer normalizer) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), head = b * a.H + h;
  const int tiles = (a.Dv - 1) / Shape::kDv + 1, segment = int(blockIdx.x) / tiles;
  const int first_column = int(blockIdx.x) % tiles * Shape::kDv, columns = min(Shape::kDv, a.Dv - first_column);
  const int begin = segment * spread.length, end = begin + min(spread.length, a.L - begin);
  const std::int64_t carried = std::int64_t(head) * (spread.segments - 1) + segment - 1;  // its start in `starts`

  __nv_bfloat16* memory = dynamic_shared<__nv_bfloat16>();
  const auto tiles_of = [&](int t) { return Tiles<Shape>(memory + t / kChunk % kStages * Tiles<Shape>::kElements); };
  const typename Shape::ScoreTile P{memory + kStages * Tiles<Shape>::kElements};
  const SharedNormalizer<Shape> z(P.data + kChunk * kChunk);

  const auto load = [&](int t) {
    const Tiles<Shape> tiles = tiles_of(t);
    const int rows = end - t, batch = opaque(b);
    load_tile_async(tiles.Q, a.q.row(batch, h, t), a.q.stride_l, rows, a.Dk);
    load_tile_async(tiles.K, a.k.row(batch, h, t), a.k.stride_l, rows, a.Dk);
    load_tile_async(tiles.V, a.v.row(batch, h, t) + first_column, a.v.stride_l, rows, columns);
    cp_async_commit();
  };
  load(begin);

  const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) : nullptr;
  std::int64_t stride_row = a.initial_state.stride_l;
  if (segment > 0) {
    start = spread.starts + carried * a.Dk * a.Dv;
    stride_row = a.Dv;
  }
  typename Shape::State S;
  load_state<Shape>(S, start ? start + first_column : nullptr, stride_row, a.Dk, columns);
  if constexpr (kNormalized) {
    const float* first = normalizer.initial_z ? normalizer.initial_z + std::int64_t(head) * a.Dk : nullptr;
    z.load(segment == 0 ? first : normalizer.starts + carried * a.Dk, a.Dk, begin / kChunk);
  }

  for (int t = begin; t < end; t += kChunk) {
    cp_async_wait<0>();
    __syncthreads();
    if (t + kChunk < end) load(t + kChunk);
    const Tiles<Shape> tiles = tiles_of(t);
    typename Shape::Output O = {};
    if constexpr (kNormalized) {
      typename SharedNormalizer<Shape>::OnTheWay also(z, t / kChunk, tiles.Q, tiles.K);
      masked_scores<Shape>(P, tiles.Q, tiles.K, also);
      also.finish();
    } else {
      masked_scores<Shape>(P, tiles.Q, tiles.K, NothingElse());
    }
    add_from_state<Shape>(O, tiles.Q, S);
    __syncthreads();
    add_from_scores<Shape>(O, P, tiles.V);
    update_state<Shape>(S, tiles.K, tiles.V);
    __nv_bfloat16* o = a.o.row(opaque(b), h, t) + first_column;
    if constexpr (kNormalized) {
      store_output<Shape>(o, a.o.stride_l, end - t, columns, O, tiles.V, z.factors(a.scale, normalizer.eps));
    } else {
      store_output<Shape>(o, a.o.stride_l, end - t, columns, O, tiles.V, [&](int) { return a.scale; });
    }
  }

  if (end == a.L) {
    if (a.final_state.data) {
      store_state<Shape>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk, columns);
    }
    if constexpr (kNormalized) {
      if (normalizer.final_z && first_column == 0) {
        z.store(normalizer.final_z + std::int64_t(head) * a.Dk, a.Dk, (end - 1) / kChunk + 1);
      }
    }
  }
}

}  // namespace

void pipelined(const HalfArguments& a, const Spread& spread, const Normalizer* normalizer) {
  with_shape(a.Dk, spread.columns, [&]<class Shape>(Shape) {
    const dim3 grid = blocks<Shape>(a, spread.segments);
    if (normalizer) {
      launch(pipelined_kernel<Shape, true>, {grid, kThreads, kSharedBytes<Shape, true>}, a, spread, *normalizer);
    } else {
      launch(pipelined_kernel<Shape, false>, {grid, kThreads, kSharedBytes<Shape, false>}, a, spread, Normalizer{});
    }
  });
}

void pipelined(const HalfArguments& a) {
  pipelined(a, make_spread(a.L, block_columns(a), 1));
}

}  // namespace tutorial::linear_attention
