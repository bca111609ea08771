/// @file
/// Stage 7, `tensor_core`: stage 6 on tensor cores, with T inverted in blocks.
///
/// Idea: once T is there, a chunk is nothing but matrix products, and their sums can wait for the next product in the
/// registers that they came in. T by substitution, row after row, has no place on tensor cores; but of its blocks of
/// 16 x 16 only those on the diagonal need one, and the rest is products again: prepare.cu and chunk_inverse.cuh, which
/// also make P.
/// Mends: stage 6 is bound by the fp32 units, and its T by the latency of 64 rows. Same: its kernels and what lies
/// between them, in chunks of 64, now in bf16.
///
///   T, P = (Q K^T) . M, f                                   prepare(); prepared.hpp says what T and f are
///   W = -T diag(f) K,  U = -T V                             vectors_kernel
///   U' = diag(f) (U - W S_{n-1}),  S_n = S_{n-1} + K^T U'             states_kernel; leaves U' and S_{n-1}
///   O_n = scale (Q S_{n-1} + P U')                          outputs_kernel
///
/// The walk has S transposed, as chapter 02's, and so everything: (W S)^T = S^T W^T, U'^T, S^T += U'^T K. With
/// g = lane / 4 and p = 2 (lane % 4), from mma.cuh:
///
///     accumulator of S^T:  S^T[g][p, p+1]     rounded: the A fragment of S^T; and S[p, p+1][g], the B fragment of S
///     accumulator of U'^T: U'^T[g][p, p+1]    rounded: the A fragment of U'^T, and the B fragment of U'
///
/// Shapes: q, k [B, H, L, Dk], v, o [B, H, L, Dv] bf16; beta [B, H, L], S_0 and final_state [B, H, Dk, Dv] fp32; W
/// [B, H, 64 N, Dk] and U [B, H, 64 N, Dv] bf16 for N = ceil(L / 64) chunks, with rows of zeros past L; U' [B, H, N,
/// 64, Dv] and states [B, H, N, Dk, Dv] bf16 as fragments, 16 bytes a lane, as one warp writes and another reads them.
/// Who does what: every block has 64 columns, of W or U in vectors_kernel, of S and o in the others, and each of its
/// four warps 16 of them. Block (chunk and tile, h, b) has a chunk; in states_kernel block (tile, h, b) walks over all,
/// with the state in registers, one barrier a chunk, and the next chunk's tiles on their way.
/// Resources: 18, 81 and 29 KB of shared memory at Dk = 128; 64 registers of a thread for S, 32 for (W S)^T.
/// Precision: P, W, U, U' and S as a factor or in memory are bf16, T two of them; S itself and all sums fp32.
/// Operations: prepare()'s, and a position 6 Dk Dv + 80 (2 Dk + 3 Dv), in tiles of 16.
/// Bytes: v and o once, q twice, k three times; T, P, W, U, U', 4 (Dk + 2 Dv) + 488 a position, and states, 4 Dk Dv a
/// chunk, are written and read: at Dk = Dv = 128, 3.0 KB a position beside 1 KB of q, k, v and o.
/// Limit: the memory's bandwidth; with few heads the walk.
/// Needs: Dk and Dv multiples of 16, Dk <= 256, Dv <= 512; rows aligned to 16 bytes.
/// Weakness: what lies between the kernels is three times the inputs and outputs. Stage 8 leaves T and P of it.
/// Sources: arXiv 2406.06484, section 3.2; flash-linear-attention, `chunk_delta_rule`, cuts it into such kernels.

#include <cuda_runtime.h>

#include <utility>

#include "02_chunkwise/async_tile.cuh"
#include "02_chunkwise/chunk_products.cuh"
#include "02_chunkwise/linear_attention.hpp"
#include "05_deltanet_wy/delta_rule/prepared.hpp"
#include "05_deltanet_wy/delta_rule/walk_chunk.cuh"
#include "common/device/cp_async.cuh"
#include "common/device/launch.cuh"
#include "common/device/opaque.cuh"
#include "common/device/workspace.hpp"
#include "common/parts.hpp"

namespace tutorial::delta_rule {
namespace {

using namespace linear_attention;  // tiles and states

constexpr int kColumns = 64;                    // of a block
constexpr int kBlockUnits = kLowerBlocks * 32;  // of T or P of a chunk, 16 bytes each
using ValueTile = SwizzledTile<kColumns>;

__host__ __device__ constexpr int column_tiles(int width) {
  return (width - 1) / kColumns + 1;
}

/// What a kernel leaves to the next ones, in device memory.
struct Chunks : Prepared {
  View<__nv_bfloat16> W, U;  // [B, H, 64 N, Dk], [B, H, 64 N, Dv]
  uint4* written;            // [B, H, N, Dv / 16, 4, 32]: U' of 16 columns and 16 positions, the A fragment of U'^T
  uint4* states;             // [B, H, N, Dv / 16, Dk / 16, 32]: S_{n-1}, A fragments of S^T
};

/// The lane's part of the fragments that 16 columns have, from column j on; 32 units from one to the next.
/// @param count fragments of 16 columns and a chunk
__device__ __forceinline__ uint4* fragments_of(uint4* all, const HalfArguments& a, std::int64_t chunk, int count,
                                               int j) {
  return all + (chunk * (a.Dv / 16) + j / 16) * count * 32 + fresh_lane();
}

/// An A fragment from the fragments B of the transposed block, and the other way round.
__device__ __forceinline__ uint4 transposed(const uint4& block) {
  return make_uint4(block.x, block.z, block.y, block.w);
}

/// Starts the copy of a chunk's T or P.
template <int kUnits>
__device__ __forceinline__ void load_blocks_async(uint4* to, const uint4* all, std::int64_t chunk) {
  for (int i = int(threadIdx.x); i < kUnits; i += kThreads) cp_async<16>(to + i, all + chunk * kUnits + i);
}

/// Grid (chunks and tiles of W's columns, then of U's; H; B).
__global__ void __launch_bounds__(kThreads) vectors_kernel(HalfArguments a, Chunks x) {
  using Shape = ChunkShape<64, kColumns>;
  __shared__ uint4 T[2 * kBlockUnits];
  alignas(16) __shared__ float factors[kChunk];
  const ValueTile X{dynamic_shared<__nv_bfloat16>()};  // K or V
  const int key_tiles = column_tiles(a.Dk), tiles = key_tiles + column_tiles(a.Dv);
  const int b = int(blockIdx.z), h = int(blockIdx.y), n = int(blockIdx.x) / tiles, tile = int(blockIdx.x) % tiles;
  const bool for_keys = tile < key_tiles;
  const int first = (for_keys ? tile : tile - key_tiles) * kColumns;
  const int columns = min(kColumns, (for_keys ? a.Dk : a.Dv) - first);
  const View<const __nv_bfloat16> from = for_keys ? a.k : a.v;
  const View<__nv_bfloat16> to = for_keys ? x.W : x.U;
  const std::int64_t chunk = (std::int64_t(b) * a.H + h) * x.N + n;
  const int t = n * kChunk, thread = int(threadIdx.x), lane = int(lane_index());

  load_tile_async(X, from.row(b, h, t) + first, from.stride_l, a.L - t, columns);
  load_blocks_async<2 * kBlockUnits>(T, x.T, chunk);
  if (for_keys && thread < kChunk / 4) cp_async<16>(factors + 4 * thread, x.factors + chunk * kChunk + 4 * thread);
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();

  Shape::Output sums = {};
  const int unit = X.unit(lane % 16, warp_index() * 16 + lane / 16 * 8);
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
    std::uint32_t rows[4];
    ldmatrix_x4_trans(rows, X.data + X.moved(unit, i * kBlock, 0));
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const float2 row = unpack(rows[r]);
      const float2 f = for_keys ? *reinterpret_cast<const float2*>(factors + i * kBlock + r % 2 * 8 + lane % 4 * 2)
                                : make_float2(1, 1);
      rows[r] = pack(-f.x * row.x, -f.y * row.y);
    }
#pragma unroll
    for (int r = i; r < kBlocks; ++r) {
      multiply(sums[r], 0, transposed(T[lower_block(r, i) * 32 + lane]), rows);
      multiply(sums[r], 0, transposed(T[(kLowerBlocks + lower_block(r, i)) * 32 + lane]), rows);
    }
  }
  store_output<Shape>(to.row(b, h, t) + first, to.stride_l, kChunk, columns, sums, X, [](int) { return 1.0f; });
}

/// W, K, U and f of a chunk in shared memory.
template <class Shape>
struct Tiles {
  typename Shape::KeyTile W, K;
  ValueTile U;
  float* factors;

  static constexpr int kBytes =
      kChunk * ((2 * Shape::kDk + kColumns) * int(sizeof(__nv_bfloat16)) + int(sizeof(float)));

  __device__ __forceinline__ explicit Tiles(unsigned char* memory)
      : W{reinterpret_cast<__nv_bfloat16*>(memory)},
        K{W.data + kChunk * Shape::kDk},
        U{K.data + kChunk * Shape::kDk},
        factors(reinterpret_cast<float*>(U.data + kChunk * kColumns)) {}
};

/// Grid (tiles of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1) states_kernel(HalfArguments a, Chunks x) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), first = int(blockIdx.x) * kColumns;
  const int columns = min(kColumns, a.Dv - first), warp_column = warp_index() * 16, j = first + warp_column;
  const auto tiles_of = [](int n) {
    return Tiles<Shape>(dynamic_shared<unsigned char>() + n % 2 * Tiles<Shape>::kBytes);
  };
  const auto load = [&](int n) {
    const Tiles<Shape> tiles = tiles_of(n);
    const int t = n * kChunk, b = opaque(int(blockIdx.z));
    load_tile_async(tiles.W, x.W.row(b, h, t), a.Dk, kChunk, a.Dk);
    load_tile_async(tiles.U, x.U.row(b, h, t) + first, a.Dv, kChunk, columns);
    load_tile_async(tiles.K, a.k.row(b, h, t), a.k.stride_l, a.L - t, a.Dk);
    const std::int64_t chunk = (std::int64_t(b) * a.H + h) * x.N + n;
    const int i = 4 * opaque(int(threadIdx.x));
    if (i < kChunk) cp_async<16>(tiles.factors + i, x.factors + chunk * kChunk + i);
    cp_async_commit();
  };
  load(0);
  typename Shape::State S;
  load_state<Shape>(S, a.initial_state.data ? a.initial_state.row(b, h, 0) + first : nullptr, a.initial_state.stride_l,
                    a.Dk, columns);
  for (int n = 0; n < x.N; ++n) {
    cp_async_wait<0>();
    __syncthreads();
    if (n + 1 < x.N) load(n + 1);
    const Tiles<Shape> tiles = tiles_of(n);
    const std::int64_t chunk = (std::int64_t(b) * a.H + h) * x.N + n;
    const int lane = fresh_lane();
    uint4* states = fragments_of(x.states, a, chunk, a.Dk / 16, j);
    uint4* written = fragments_of(x.written, a, chunk, kBlocks, j);

    WarpColumns held = {};  // (W S)^T: what the state has of U already
    add_from_state(held, tiles.W, [&](int d) {
      const uint4 s = rounded(S[0][2 * d], S[0][2 * d + 1]);
      if (j < a.Dv && d * 16 < a.Dk) store_global(states + d * 32, s);
      return s;
    });
    const int u_unit = tiles.U.unit(lane / 16 * 8 + lane % 8, warp_column + lane / 8 % 2 * 8);
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      std::uint32_t u[4];
      ldmatrix_x4_trans(u, tiles.U.data + tiles.U.moved(u_unit, i * kBlock, 0));
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        float* two = &held[2 * i + r / 2][r % 2 * 2];
        const float2 of_u = unpack(u[r]);
        two[0] = of_u.x - two[0];
        two[1] = of_u.y - two[1];
      }
      if (a.normalize_keys) {
        scale_positions(held[2 * i], tiles.factors + i * kBlock);
        scale_positions(held[2 * i + 1], tiles.factors + i * kBlock + 8);
      }
      const uint4 row = rounded(held[2 * i], held[2 * i + 1]);
      if (j < a.Dv) store_global(written + i * 32, row);
      write_to_state<Shape::kDk>(S[0], tiles.K, row, i);
    }
  }
  if (a.final_state.data) {
    store_state<Shape>(a.final_state.row(b, h, 0) + first, S, a.final_state.stride_l, a.Dk, columns);
  }
}

/// Grid (chunks and tiles of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kThreads) outputs_kernel(HalfArguments a, Chunks x) {
  __shared__ uint4 P[kBlockUnits];
  const typename Shape::KeyTile Q{dynamic_shared<__nv_bfloat16>()};
  const ValueTile to_store{Q.data + kChunk * Shape::kDk};
  const int b = int(blockIdx.z), h = int(blockIdx.y), tiles = column_tiles(a.Dv);
  const int n = int(blockIdx.x) / tiles, first = int(blockIdx.x) % tiles * kColumns, t = n * kChunk;
  const int lane = int(lane_index()), j = first + warp_index() * 16;
  const std::int64_t chunk = (std::int64_t(b) * a.H + h) * x.N + n;
  const uint4* states = fragments_of(x.states, a, chunk, a.Dk / 16, j);
  const uint4* written = fragments_of(x.written, a, chunk, kBlocks, j);

  load_tile_async(Q, a.q.row(b, h, t), a.q.stride_l, a.L - t, a.Dk);
  load_blocks_async<kBlockUnits>(P, x.P, chunk);
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
  typename Shape::Output O = {};
  const int q_unit = Q.unit(lane % 16, lane / 16 * 8);
#pragma unroll
  for (int d = 0; d < Shape::kDk / 16; ++d) {
    const uint4 s = j < a.Dv && d * 16 < a.Dk ? load_global(states + d * 32) : uint4{};
#pragma unroll
    for (int r = 0; r < kBlocks; ++r) {
      std::uint32_t q[4];
      ldmatrix_x4(q, Q.data + Q.moved(q_unit, r * kBlock, d * 16));
      multiply(O[r], 0, make_uint4(q[0], q[1], q[2], q[3]), transposed(s));
    }
  }
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
    const uint4 u = j < a.Dv ? load_global(written + i * 32) : uint4{};
#pragma unroll
    for (int r = i; r < kBlocks; ++r) {
      multiply(O[r], 0, transposed(P[lower_block(r, i) * 32 + lane]), transposed(u));
    }
  }
  store_output<Shape>(a.o.row(b, h, t) + first, a.o.stride_l, a.L - t, min(kColumns, a.Dv - first), O, to_store,
                      [&](int) { return a.scale; });
}

template <class Shape>
void walk_and_read(const HalfArguments& a, const Chunks& x) {
  const int tiles = column_tiles(a.Dv);
  launch(states_kernel<Shape>,
         {dim3(unsigned(tiles), unsigned(a.H), unsigned(a.B)), kThreads, 2 * std::size_t(Tiles<Shape>::kBytes)}, a, x);
  end_part("states");
  launch(outputs_kernel<Shape>,
         {dim3(unsigned(x.N * tiles), unsigned(a.H), unsigned(a.B)), kThreads,
          kChunk * (Shape::kDk + kColumns) * sizeof(__nv_bfloat16)},
         a, x);
  end_part("outputs");
}

/// Bytes of what the kernels leave to each other.
struct Bytes {
  std::int64_t chunks, W, U, states;  // U' takes as much as U

  explicit Bytes(const HalfArguments& a)
      : chunks(std::int64_t(a.B) * a.H * ((a.L - 1) / kChunk + 1)),
        W(chunks * kChunk * a.Dk * 2),
        U(chunks * kChunk * a.Dv * 2),
        states(chunks * a.Dk * a.Dv * 2) {}
  std::int64_t all() const { return W + 2 * U + states; }
};

}  // namespace

void tensor_core(const HalfArguments& a) {
  const Prepared prepared = prepare(a);
  end_part("prepare");

  const Bytes bytes(a);
  auto* memory = workspace<unsigned char>("delta_rule: tensor_core", std::size_t(bytes.all()));
  const auto take = [&](std::int64_t count) { return std::exchange(memory, memory + count); };
  const auto rows = [&](std::int64_t count, int columns) {
    return packed(reinterpret_cast<__nv_bfloat16*>(take(count)), a.H, prepared.N * kChunk, columns);
  };
  const auto fragments = [&](std::int64_t count) { return reinterpret_cast<uint4*>(take(count)); };
  const Chunks x{prepared, rows(bytes.W, a.Dk), rows(bytes.U, a.Dv), fragments(bytes.U), fragments(bytes.states)};
  launch(vectors_kernel,
         {dim3(unsigned(x.N * (column_tiles(a.Dk) + column_tiles(a.Dv))), unsigned(a.H), unsigned(a.B)), kThreads,
          kChunk * kColumns * sizeof(__nv_bfloat16)},
         a, x);
  end_part("vectors");

  if (a.Dk <= 64) {
    walk_and_read<ChunkShape<64, kColumns>>(a, x);
  } else if (a.Dk <= 128) {
    walk_and_read<ChunkShape<128, kColumns>>(a, x);
  } else {
    walk_and_read<ChunkShape<256, kColumns>>(a, x);
  }
}

std::string tensor_core_limits(const HalfArguments& a) {  // but for beta it has chapter 02's inputs
  return linear_attention::tensor_core_limits(
      {a.B, a.H, a.L, a.Dk, a.Dv, a.C, a.scale, a.q, a.k, a.v, a.initial_state, a.o, a.final_state});
}

std::int64_t tensor_core_memory(const HalfArguments& a) {
  return prepared_memory(a) + Bytes(a).all();
}

std::int64_t tensor_core_moved(const HalfArguments& a) {
  const Bytes bytes(a);
  const std::int64_t heads = std::int64_t(a.B) * a.H, key_tiles = column_tiles(a.Dk), value_tiles = column_tiles(a.Dv);
  const std::int64_t keys = heads * a.L * a.Dk * 2, values = heads * a.L * a.Dv * 2, state = heads * a.Dk * a.Dv * 4;
  const std::int64_t blocks = bytes.chunks * kBlockUnits * std::int64_t(sizeof(uint4));  // T or P
  const std::int64_t factors = bytes.chunks * kChunk * std::int64_t(sizeof(float));
  std::int64_t moved = prepared_moved(a);
  moved += (key_tiles + value_tiles) * 2 * blocks + key_tiles * factors + keys + values + bytes.W + bytes.U;  // vectors
  moved += value_tiles * (bytes.W + keys + factors) + 2 * bytes.U + bytes.states;                             // states
  moved += value_tiles * (keys + blocks) + bytes.states + bytes.U + values;                                   // outputs
  return moved + (a.initial_state.data ? state : 0) + (a.final_state.data ? state : 0);
}

}  // namespace tutorial::delta_rule
