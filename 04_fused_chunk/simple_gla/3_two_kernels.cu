/// @file
/// Stage 3, `two_kernels`: the states of all chunks first, then the outputs of all chunks at once.
///
/// Idea: of a walk over the chunks only the state must be walked. So a first kernel does nothing else and leaves the
/// state that each chunk starts from in memory; it needs no queries, no scores and no outputs, and its tile of the
/// state can be as small as there are multiprocessors for. The second kernel has a block for each chunk.
/// Mends: stage 2 has a thread a head. Same: the equations, with C = 64.
///
///   S_n = 2^b_e S_{n-1} + K_n^T (diag(2^(b_e - b)) V_n)         states_kernel; S_{n-1} is left in memory, in bf16
///   P_ti = (q_t . k_i) 2^(b_t - b_i), i <= t                    outputs_kernel
///   O_n = scale (diag(2^b) Q_n S_{n-1} + P V_n)
///
/// b_t: the sum of g / ln 2 from the chunk's first position up to t, b_e up to its last; in scalar_gate.cuh sums and
/// end. There a score gets scale with its decay, and so does a row of Q S.
///
/// Shapes: q, k [B, H, L, Dk], v, o [B, H, L, Dv] bf16; g [B, H, L], S_0 and final_state [B, H, Dk, Dv] fp32; states
/// [B, H, N, Dk, Dv] bf16 for the N = ceil(L / 64) chunks, in the order of the second kernel's fragments: 16 bytes a
/// lane, as one warp writes and another reads them. In shared memory: three sets of K and V tiles, 49 KB; Q, K, V and
/// P, 56 KB at Dk = Dv = 128.
/// Who does what: in the first kernel block (tile, h, b) walks a 64 x 64 tile of the state, 32 registers a thread;
/// every warp sums the chunk's gates for itself (scalar_gate.cuh), and loads run two chunks ahead. In the second
/// block (chunk and tile of columns, h, b) has 64 positions and 64 or 128 columns of o, and no state: the fragments
/// come straight from memory.
/// Resources at Dk = Dv = 128: 124 registers a thread of the first kernel, 130 of the second: with their shared memory
/// four and three blocks a multiprocessor, as many warps a scheduler.
/// Precision: V times its decay, P and the states in memory are bf16; S itself, O, sums of gates and decays fp32.
/// Operations, a position: 4 Dk Dv, and 2 (C + 16) / 2 (Dk + Dv) for the scores on and below the diagonal, in tiles of
/// 16; 6 exponentials for each tile of the state, and for each tile of columns 56: (C + 16) / 2 for scores, 16 for rows
/// of Q S, which each lane makes for itself. Bytes: q and o once, k and v twice, each for every tile that needs it; the
/// states, 2 Dk Dv bytes a chunk, written and read: at Dk = Dv = 128 that is as much as q, k, v and o together.
/// Limit: the memory's bandwidth. Needs: Dk and Dv multiples of 16, Dk <= 256, Dv <= 512; rows aligned to 16 bytes. And
/// where a gate is below 2^-40, a state of less than 2^32 times what k^T v adds to it: 2^-40 of it is left.
/// Weakness: the states' way through memory. One kernel would do without, with a state of Dk rows in the registers.
/// Source: arXiv 2405.21060, section 6; flash-linear-attention, `chunk_simple_gla`.

#include <cuda_runtime.h>

#include <climits>

#include "02_chunkwise/async_tile.cuh"
#include "02_chunkwise/chunk_products.cuh"
#include "04_fused_chunk/simple_gla.hpp"
#include "04_fused_chunk/simple_gla/scalar_gate.cuh"
#include "04_fused_chunk/widths.hpp"
#include "common/device/cp_async.cuh"
#include "common/device/launch.cuh"
#include "common/device/workspace.hpp"
#include "common/parts.hpp"

namespace tutorial::simple_gla {
namespace {

using namespace linear_attention;  // the tiles and their products

constexpr int kTile = 64;   // rows and columns of the state in a block of the first kernel
constexpr int kStages = 3;  // sets of tiles there

constexpr int divided_up(int count, int by) {
  return (count - 1) / by + 1;
}

/// Where a fragment of a state lies in memory: 16 rows from d on and 16 columns from j on, 32 lanes of 16 bytes.
/// @param states [B H, N, Dv / 16, Dk / 16, 32]
template <class Unit>
__device__ __forceinline__ Unit* fragment(Unit* states, const HalfArguments& a, int head, int n, int d, int j) {
  const std::int64_t chunk = std::int64_t(head) * ((a.L - 1) / kChunk + 1) + n;
  return states + ((chunk * (a.Dv / 16) + j / 16) * (a.Dk / 16) + d / 16) * 32 + lane_index();
}

/// A chunk's K, V and gates in shared memory.
struct Tiles {
  SwizzledTile<kTile> K, V;
  float* g;

  static constexpr int kBytes = 2 * kChunk * kTile * int(sizeof(__nv_bfloat16)) + kChunk * int(sizeof(float));

  __device__ explicit Tiles(unsigned char* memory)
      : K{reinterpret_cast<__nv_bfloat16*>(memory)},
        V{K.data + kChunk * kTile},
        g(reinterpret_cast<float*>(V.data + kChunk * kTile)) {}
};

/// Grid (tiles of the state, H, B).
__global__ void __launch_bounds__(kThreads, 4) states_kernel(HalfArguments a, uint4* states) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), head = b * a.H + h;
  const int column_tiles = (a.Dv - 1) / kTile + 1;
  const int d = int(blockIdx.x) / column_tiles * kTile, Dk = min(kTile, a.Dk - d);
  const int j = int(blockIdx.x) % column_tiles * kTile, columns = min(kTile, a.Dv - j);
  const int N = (a.L - 1) / kChunk + 1, warp_column = int(threadIdx.x) / 32 * 16;
  const auto tiles_of = [](int n) { return Tiles(dynamic_shared<unsigned char>() + n % kStages * Tiles::kBytes); };

  const auto load = [&](int n) {
    if (n < N) {
      const Tiles tiles = tiles_of(n);
      const int t = n * kChunk, rows = a.L - t, i = int(threadIdx.x);
      load_tile_async(tiles.K, a.k.row(b, h, t) + d, a.k.stride_l, rows, Dk);
      load_tile_async(tiles.V, a.v.row(b, h, t) + j, a.v.stride_l, rows, columns);
      if (i < kChunk) cp_async<4>(tiles.g + i, a.g.row(b, h, t + min(i, rows - 1)), i < rows);
    }
    cp_async_commit();  // an empty group near the end keeps the count right
  };
  load(0);
  load(1);

  using Shape = ChunkShape<kTile, kTile>;
  Shape::State S;
  const float* start = a.initial_state.data ? a.initial_state.row(b, h, d) + j : nullptr;
  load_state<Shape>(S, start, a.initial_state.stride_l, Dk, columns);
  for (int n = 0; n < N; ++n) {
#pragma unroll
    for (int i = 0; i < kTile / 16; ++i) {
      if (i * 16 >= Dk || warp_column >= columns) continue;
      const auto &upper = S[0][2 * i], &lower = S[0][2 * i + 1];
      store_global(fragment(states, a, head, n, d + i * 16, j + warp_column),
                   make_uint4(pack(upper[0], upper[1]), pack(lower[0], lower[1]), pack(upper[2], upper[3]),
                              pack(lower[2], lower[3])));
    }
    cp_async_wait<1>();
    __syncthreads();
    load(n + 2);
    const Tiles tiles = tiles_of(n);
    const DecayToEnd to_end(GateSums(gates_of_lane(tiles.g)));
    simple_gla::update_state<Shape>(S, tiles.K, tiles.V, to_end);
  }
  if (a.final_state.data) store_state<Shape>(a.final_state.row(b, h, d) + j, S, a.final_state.stride_l, Dk, columns);
}

/// O += Q S, the warp's columns, S from memory. @param first_column of the block
template <class Shape>
__device__ __forceinline__ void add_from_stored_state(typename Shape::Output& O, const typename Shape::KeyTile& Q,
                                                      const uint4* states, const HalfArguments& a, int head, int n,
                                                      int first_column) {
  const int lane = int(lane_index()), j = first_column + int(threadIdx.x) / 32 * Shape::kWarpColumns;
  const int q_unit = Q.unit(lane % 16, lane / 16 * 8);
#pragma unroll 4
  for (int d = 0; d < Shape::kDk / 16; ++d) {
    uint4 s[Shape::kWarpColumns / 16];
#pragma unroll
    for (int i = 0; i < Shape::kWarpColumns / 16; ++i) {
      const bool is_there = d * 16 < a.Dk && j + i * 16 < a.Dv;
      s[i] = is_there ? load_global(fragment(states, a, head, n, d * 16, j + i * 16)) : uint4{};
    }
#pragma unroll
    for (int t = 0; t < kChunk / 16; ++t) {
      std::uint32_t q[4];
      ldmatrix_x4(q, Q.data + Q.moved(q_unit, t * 16, d * 16));
#pragma unroll
      for (int i = 0; i < Shape::kWarpColumns / 16; ++i) {
        mma_m16n8k16(O[t][2 * i], q, {s[i].x, s[i].y});
        mma_m16n8k16(O[t][2 * i + 1], q, {s[i].z, s[i].w});
      }
    }
  }
}

template <class Shape>
constexpr std::size_t kOutputBytes =
    std::size_t(2 * Shape::kDk + Shape::kDv + kChunk) * kChunk * sizeof(__nv_bfloat16) + SharedSums::kBytes;

/// Grid (chunks and tiles of columns, H, B).
template <class Shape>
__global__ void __launch_bounds__(kThreads) outputs_kernel(HalfArguments a, const uint4* states) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), column_tiles = (a.Dv - 1) / Shape::kDv + 1;
  const int n = int(blockIdx.x) / column_tiles, t = n * kChunk, rows = a.L - t;
  const int j = int(blockIdx.x) % column_tiles * Shape::kDv, columns = min(Shape::kDv, a.Dv - j);

  auto* memory = dynamic_shared<__nv_bfloat16>();
  const typename Shape::KeyTile Q{memory}, K{Q.data + kChunk * Shape::kDk};
  const typename Shape::ValueTile V{K.data + kChunk * Shape::kDk};
  const typename Shape::ScoreTile P{V.data + kChunk * Shape::kDv};
  const SharedSums sums{reinterpret_cast<float*>(P.data + kChunk * kChunk)};

  load_tile_async(Q, a.q.row(b, h, t), a.q.stride_l, rows, a.Dk);
  load_tile_async(K, a.k.row(b, h, t), a.k.stride_l, rows, a.Dk);
  load_tile_async(V, a.v.row(b, h, t) + j, a.v.stride_l, rows, columns);
  cp_async_commit();
  if (threadIdx.x < 32) sums.store(GateSums(load_gates(a, b, h, t, a.L)));
  cp_async_wait<0>();
  __syncthreads();
  typename Shape::Output O = {};
  add_from_stored_state<Shape>(O, Q, states, a, b * a.H + h, n, j);
  decay_rows<Shape>(O, sums, a.scale);
  masked_scores<Shape>(P, Q, K, Decayed{sums, a.scale});
  __syncthreads();
  add_from_scores<Shape>(O, P, V);
  store_output<Shape>(a.o.row(b, h, t) + j, a.o.stride_l, rows, columns, O, V, [](int) { return 1.0f; });
}

/// Columns of a block of the second kernel. (128 beside Dk > 128 take 88 KB, 64 take 80: with 164 KB of shared memory a
/// multiprocessor, as of compute capability 8.0, there would be no room for a second block; with 228 KB there is.)
int block_columns(const HalfArguments& a) {
  return a.Dv <= 64 || a.Dk > 128 ? 64 : 128;
}

template <class Shape>
void launch_outputs(const HalfArguments& a, const uint4* states) {
  const unsigned tiles = unsigned(divided_up(a.L, kChunk)) * unsigned(divided_up(a.Dv, Shape::kDv));
  launch(outputs_kernel<Shape>, {dim3(tiles, unsigned(a.H), unsigned(a.B)), kThreads, kOutputBytes<Shape>}, a, states);
}

}  // namespace

void two_kernels(const HalfArguments& a) {
  auto* states = workspace<uint4>("simple_gla: chunk states", std::size_t(two_kernels_memory(a)) / sizeof(uint4));
  const auto tiles = unsigned(divided_up(a.Dk, kTile) * divided_up(a.Dv, kTile));
  launch(states_kernel, {dim3(tiles, unsigned(a.H), unsigned(a.B)), kThreads, kStages * Tiles::kBytes}, a, states);
  end_part("states");
  if (a.Dk > 128) {
    launch_outputs<ChunkShape<256, 64>>(a, states);
  } else if (block_columns(a) == 64) {
    a.Dk <= 64 ? launch_outputs<ChunkShape<64, 64>>(a, states) : launch_outputs<ChunkShape<128, 64>>(a, states);
  } else {
    a.Dk <= 64 ? launch_outputs<ChunkShape<64, 128>>(a, states) : launch_outputs<ChunkShape<128, 128>>(a, states);
  }
  end_part("outputs");
}

std::string two_kernels_limits(const HalfArguments& a) {
  if (a.B > 65535 || a.H > 65535) return "B or H > 65535: the grids";
  if (std::int64_t(a.B) * a.H > INT_MAX) return "B H > 2^31 - 1: heads are counted in int";
  if (a.L > INT_MAX - 3 * kChunk) return "L > 2^31 - 193: positions are counted in int";
  return tensor_core_limits(a);
}

std::int64_t two_kernels_memory(const HalfArguments& a) {
  return 2 * std::int64_t(a.B) * a.H * divided_up(a.L, kChunk) * a.Dk * a.Dv;
}

std::int64_t two_kernels_moved(const HalfArguments& a) {
  const std::int64_t heads = std::int64_t(a.B) * a.H, positions = heads * a.L;
  const std::int64_t row_tiles = divided_up(a.Dk, kTile), column_tiles = divided_up(a.Dv, kTile);
  const std::int64_t blocks = divided_up(a.Dv, block_columns(a));  // of the second kernel, for a chunk
  const std::int64_t in = positions * (2 * a.Dk * column_tiles + 2 * a.Dv * row_tiles + 4 * row_tiles * column_tiles);
  const std::int64_t out = positions * ((2 + 2) * a.Dk * blocks + (2 + 2) * a.Dv + 4 * blocks);
  const int states = (a.initial_state.data != nullptr) + (a.final_state.data != nullptr);
  return in + out + 2 * two_kernels_memory(a) + 4 * states * heads * a.Dk * a.Dv;
}

}  // namespace tutorial::simple_gla
