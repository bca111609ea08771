/// @file
/// Stage 4, `fused`: one walk, the state in registers.
///
/// Idea: chapter 02's `pipelined` with three factors more. There is nothing to prepare: a scalar gate leaves q and k as
/// they are, and puts a decay on a row of Q S, on a score, and on a row of V. So fusing costs no extra work here, and
/// what it saves are the states: as many bytes as q, k, v and o together.
/// Mends: stage 3 writes a state a chunk and reads it again, and k and v twice. Same: its equations, its gates
/// (scalar_gate.cuh).
///
///   P_ti = (q_t . k_i) 2^(b_t - b_i), i <= t
///   O_n = scale (diag(2^b) Q_n S + P V_n)
///   S   = 2^b_e S + K_n^T (diag(2^(b_e - b)) V_n)         for each chunk n; b sums of g / ln 2 from its start, b_e all
///
/// Shapes: q, k [B, H, L, Dk], v, o [B, H, L, Dv] bf16; g [B, H, L], S_0 and final_state [B, H, Dk, Dv] fp32.
/// Who does what: as in chapter 02's `pipelined`: block (tile and segment, h, b) walks with 128 or 64 columns of Dv,
/// its four warps share them. Gates come a chunk ahead of the tiles. Every warp sums the next chunk's for itself, in
/// fp32, among this chunk's products, and keeps its own copy of the sums in shared memory: so nobody waits for them,
/// and there are two barriers a chunk as before.
/// Resources: 255 registers a thread, none spilled, and 107 KB of shared memory at Dk = Dv = 128: two blocks a
/// multiprocessor. Registers are what fusing is paid with: the state takes 128 of them and the output 64, so there are
/// two warps a scheduler, where the kernels of stage 3 have four and three.
/// Operations: 4 Dk Dv + 80 (Dk + Dv) a position on tensor cores, and for each tile of columns 90 exponentials, each
/// lane its own: (C + 16) / 2 for scores, 16 for rows of Q S, 34 for rows of V and the state. Bytes: q, k and g once
/// for each tile of columns (from the second-level cache after the first), v and o once.
/// Limit: with few heads the walk, L / 64 chunks in line. Needs: as stage 3, and where Dk > 128 a GPU that
/// gives a block 160 KB of shared memory.
/// Weakness: as many blocks as heads and tiles of Dv, however long the sequence is.
/// Source: chapter 02's `pipelined`; ThunderKittens, `linear_attention`; flash-linear-attention,
/// `fused_chunk_simple_gla`.

#include <cuda_runtime.h>

#include <algorithm>

#include "02_chunkwise/async_tile.cuh"
#include "02_chunkwise/chunk_products.cuh"
#include "02_chunkwise/with_shape.cuh"
#include "04_fused_chunk/simple_gla.hpp"
#include "04_fused_chunk/simple_gla/scalar_gate.cuh"
#include "04_fused_chunk/simple_gla/spread.hpp"
#include "common/device/cp_async.cuh"
#include "common/device/launch.cuh"
#include "common/device/opaque.cuh"

namespace tutorial::simple_gla {
namespace {

using namespace linear_attention;  // the tiles and their products

/// The tiles of one chunk in shared memory.
template <class Shape>
struct Tiles {
  typename Shape::KeyTile Q, K;
  typename Shape::ValueTile V;
  float* g_next;

  static constexpr int kBytes = 2 * kChunk * (2 * Shape::kDk + Shape::kDv) + 4 * kChunk;

  __device__ __forceinline__ explicit Tiles(unsigned char* memory)
      : Q{reinterpret_cast<__nv_bfloat16*>(memory)},
        K{Q.data + kChunk * Shape::kDk},
        V{K.data + kChunk * Shape::kDk},
        g_next(reinterpret_cast<float*>(V.data + kChunk * Shape::kDv)) {}
};

constexpr int kStages = 2;  // sets of tiles

template <class Shape>
constexpr std::size_t kSharedBytes =
    kStages* Tiles<Shape>::kBytes + 2 * kChunk* kChunk + 2 * kWarps* SharedSums::kBytes;

/// Grid (tiles of Dv of all segments, H, B).
template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1) fused_kernel(HalfArguments a, Spread spread) {
  const int b = int(blockIdx.z), h = int(blockIdx.y);
  const int tiles_of_columns = (a.Dv - 1) / Shape::kDv + 1, segment = int(blockIdx.x) / tiles_of_columns;
  const int first_column = int(blockIdx.x) % tiles_of_columns * Shape::kDv;
  const int columns = min(Shape::kDv, a.Dv - first_column);
  const int begin = segment * spread.length, end = begin + min(spread.length, a.L - begin);

  auto* memory = dynamic_shared<unsigned char>();
  const auto tiles_of = [&](int t) { return Tiles<Shape>(memory + t / kChunk % kStages * Tiles<Shape>::kBytes); };
  const typename Shape::ScoreTile P{reinterpret_cast<__nv_bfloat16*>(memory + kStages * Tiles<Shape>::kBytes)};
  const auto sums_of = [&](int t) {  // the warp's copy
    return SharedSums{reinterpret_cast<float*>(P.data + kChunk * kChunk) +
                      (t / kChunk % 2 * kWarps + warp_index()) * kChunk};
  };

  const auto load = [&](int t) {
    const Tiles<Shape> tiles = tiles_of(t);
    const int rows = end - t, batch = opaque(b), i = opaque(int(threadIdx.x));
    load_tile_async(tiles.Q, a.q.row(batch, h, t), a.q.stride_l, rows, a.Dk);
    load_tile_async(tiles.K, a.k.row(batch, h, t), a.k.stride_l, rows, a.Dk);
    load_tile_async(tiles.V, a.v.row(batch, h, t) + first_column, a.v.stride_l, rows, columns);
    const int row = i + kChunk;  // the next chunk's gates: their sums are to be there when its tiles are
    if (i < kChunk) cp_async<4>(tiles.g_next + i, a.g.row(batch, h, t + min(row, rows - 1)), row < rows);
    cp_async_commit();
  };
  load(begin);
  sums_of(begin).store(GateSums(load_gates(a, b, h, begin, end)));

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
    const SharedSums sums = sums_of(t);
    typename Shape::Output O = {};
    masked_scores<Shape>(P, tiles.Q, tiles.K, Decayed{sums, a.scale});
    add_from_state<Shape>(O, tiles.Q, S);
    decay_rows<Shape>(O, sums, a.scale);
    sums_of(t + kChunk).store(GateSums(gates_of_lane(tiles.g_next)));
    __syncthreads();
    add_from_scores<Shape>(O, P, tiles.V);
    simple_gla::update_state<Shape>(S, tiles.K, tiles.V, sums.to_end());
    store_output<Shape>(a.o.row(opaque(b), h, t) + first_column, a.o.stride_l, end - t, columns, O, tiles.V,
                        [](int) { return 1.0f; });
  }
  if (end == a.L && a.final_state.data) {
    store_state<Shape>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk, columns);
  }
}

Spread alone(const HalfArguments& a) {
  return make_spread(a.L, block_columns(without_gates(a)), 1);
}

}  // namespace

void fused(const HalfArguments& a, const Spread& spread) {
  with_shape(a.Dk, spread.columns, [&]<class Shape>(Shape) {
    const unsigned blocks = ((unsigned(a.Dv) - 1) / Shape::kDv + 1) * unsigned(spread.segments);
    launch(fused_kernel<Shape>, {dim3(blocks, unsigned(a.H), unsigned(a.B)), kThreads, kSharedBytes<Shape>}, a, spread);
  });
}

std::int64_t fused_moved(const HalfArguments& a, const Spread& spread) {
  const std::int64_t tiles = (a.Dv - 1) / spread.columns + 1, L = a.L;
  const std::int64_t states = (a.initial_state.data != nullptr) + (a.final_state.data != nullptr) + spread.segments - 1;
  std::int64_t first = 0;  // every warp reads the gates of a segment's first chunk
  for (int segment = 0; segment < spread.segments; ++segment) {
    first += (kWarps - 1) * 4 * std::min(kChunk, a.L - segment * spread.length);
  }
  return std::int64_t(a.B) * a.H *
         (tiles * (L * (2 * 2 * a.Dk + 4) + first) + L * 2 * 2 * a.Dv + states * 4 * std::int64_t(a.Dk) * a.Dv);
}

void fused(const HalfArguments& a) {
  fused(a, alone(a));
}

std::string fused_limits(const HalfArguments& a) {
  return linear_attention::tensor_core_limits(without_gates(a));
}

std::int64_t fused_memory(const HalfArguments&) {
  return 0;
}

std::int64_t fused_moved(const HalfArguments& a) {
  return fused_moved(a, alone(a));
}

}  // namespace tutorial::simple_gla
