/// @file
/// Stage 8, `split_inverse`: T in two bf16.
///
/// Idea: bf16 keeps 8 bits of a number. The rounding error is a number, too, and a second bf16 keeps 8 bits of it: T =
/// T_high + T_low has 16 bits (split.cuh). T X = T_high X + T_low X takes one more product with a C x C matrix.
///
/// Why T, of all factors? Suppose that one key is repeated. Then every row of V - K S contains the same term, -k S. The
/// state already answers k as it should, so a row of T times these equal terms must be close to 0: its elements, such
/// as -0.99 and 1, cancel. Rounding -0.99 gives an error of up to 0.2 %, in the same direction in every row, and 64
/// such errors add up to a tenth of k S. The README lists the errors that the rounding of each factor causes.
/// Grows out of: 7_tensor_core.cu
/// Improves on: if one key is repeated, the error of the final state is 13 % in `tensor_core`. Here it is 2 %.
/// Unchanged: everything but the products with T. prepare() always writes both parts of T; `tensor_core` reads only the
/// first.
///
/// Equation:
///
///     W = T_high K + T_low K,  U = T_high V + T_low V         vectors_kernel
///
/// Shapes, thread mapping: those of `tensor_core`. Shared memory of vectors_kernel: 5 KB more.
/// Work: 80 (Dk + Dv) more operations per position. Bytes: T_low is read, 80 bytes per position and tile of columns.
/// Bound by: as `tensor_core`, the memory's bandwidth; with few heads the walk.
/// Requires: as `tensor_core`.
/// Weakness: what the kernels pass on to each other is three times the inputs and outputs, and most of it, W, U and the
/// states, only because several kernels share the work.
/// Source: splitting a factor for more digits is a common technique; see G. Henry, P. T. P. Tang, A. Heinecke,
/// "Leveraging the bfloat16 artificial intelligence datatype for higher-precision computations", arXiv 1904.06376.

#include <cuda_runtime.h>

#include <utility>

#include "05_deltanet_wy/chunk/fragments.cuh"
#include "05_deltanet_wy/chunk/prepare.hpp"
#include "05_deltanet_wy/chunk/warp_products.cuh"
#include "common/ceil_div.hpp"
#include "common/device/cp_async.cuh"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/launch.cuh"
#include "common/device/workspace.hpp"
#include "common/parts.hpp"
#include "common/tile/load_tile.cuh"
#include "common/tile/requirements.hpp"
#include "common/tile/select_shape.cuh"
#include "common/tile/state.cuh"
#include "common/tile/store_tile.cuh"

namespace tutorial::delta_rule {
namespace {

using namespace tile;  // tiles and states

constexpr int kColumns = 64;  // of a block
using ValueTile = SwizzledTile<kColumns>;

__host__ __device__ constexpr int column_tiles(int width) {
  return (width - 1) / kColumns + 1;
}

/// What the kernels pass on to each other in device memory.
struct Workspace : Prepared {
  View<__nv_bfloat16> W, U;  // [B, H, 64 N, Dk], [B, H, 64 N, Dv]
  uint4* v_new;              // [B, H, N, Dv / 16, 4, 32]: of 16 columns and 16 positions, the A fragment of v_new^T
  uint4* states;             // [B, H, N, Dv / 16, Dk / 16, 32]: S_{n-1}, A fragments of S^T
};

/// Grid (chunks and tiles of W's columns, then of U's; H; B).
__global__ void __launch_bounds__(kThreads) vectors_kernel(Bf16Arguments a, Workspace x) {
  using Shape = ChunkShape<64, kColumns>;
  __shared__ uint4 T[2 * kBlockUnits];
  const ValueTile X{dynamic_shared<__nv_bfloat16>()};  // K or V
  const int key_tiles = column_tiles(a.Dk), tiles = key_tiles + column_tiles(a.Dv);
  const int b = int(blockIdx.z), h = int(blockIdx.y), n = int(blockIdx.x) / tiles, tile = int(blockIdx.x) % tiles;
  const bool for_keys = tile < key_tiles;
  const int first = (for_keys ? tile : tile - key_tiles) * kColumns;
  const int columns = min(kColumns, (for_keys ? a.Dk : a.Dv) - first);
  const View<const __nv_bfloat16> from = for_keys ? a.k : a.v;
  const View<__nv_bfloat16> to = for_keys ? x.W : x.U;
  const std::int64_t chunk = (std::int64_t(b) * a.H + h) * x.N + n;
  const int t = n * kChunk, lane = int(lane_index());

  load_tile_async(X, from.row(b, h, t) + first, from.stride_l, a.L - t, columns);
  load_units_async<2 * kBlockUnits>(int(threadIdx.x), T, x.T + chunk * 2 * kBlockUnits);
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();

  Shape::Output sums = {};
  const int unit = X.unit(lane % 16, warp_index() * 16 + lane / 16 * 8);
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
    std::uint32_t rows[4];
    ldmatrix_x4_trans(rows, X.data + X.advance(unit, i * kBlock, 0));
#pragma unroll
    for (int r = i; r < kBlocks; ++r) {
      multiply(sums[r], 0, transposed(T[lower_block(r, i) * 32 + lane]), rows);
      multiply(sums[r], 0, transposed(T[kBlockUnits + lower_block(r, i) * 32 + lane]), rows);
    }
  }
  store_output<Shape>(to.row(b, h, t) + first, to.stride_l, kChunk, columns, sums, X, 1.0f);
}

/// What the walk reads of a chunk, in shared memory.
template <class Shape>
struct Tiles {
  __nv_bfloat16 W[kChunk * Shape::kDk], K[kChunk * Shape::kDk], U[kChunk * kColumns];
};

/// Grid (tiles of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1) states_kernel(Bf16Arguments a, Workspace x) {
  constexpr int kDk = Shape::kDk;
  const int b = int(blockIdx.z), h = int(blockIdx.y), first = int(blockIdx.x) * kColumns;
  const int columns = min(kColumns, a.Dv - first), warp_column = warp_index() * 16, j = first + warp_column;
  auto* tiles = dynamic_shared<Tiles<Shape>>();  // two
  const auto load = [&](int n) {
    Tiles<Shape>& to = tiles[n % 2];
    const int t = n * kChunk, b = hide_from_compiler(int(blockIdx.z));
    load_tile_async(SwizzledTile<kDk>{to.W}, x.W.row(b, h, t), a.Dk, kChunk, a.Dk);
    load_tile_async(SwizzledTile<kDk>{to.K}, a.k.row(b, h, t), a.k.stride_l, a.L - t, a.Dk);
    load_tile_async(ValueTile{to.U}, x.U.row(b, h, t) + first, a.Dv, kChunk, columns);
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
    Tiles<Shape>& from = tiles[n % 2];
    const SwizzledTile<kDk> W{from.W}, K{from.K};
    const std::int64_t chunk = (std::int64_t(b) * a.H + h) * x.N + n;
    uint4* states = fragments_of(x.states, a, chunk, a.Dk / 16, j);
    uint4* new_values = fragments_of(x.v_new, a, chunk, kBlocks, j);

    const auto pass_on_state = [&](int d, const uint4& s) {
      if (j < a.Dv && d * 16 < a.Dk) store_global(states + d * 32, s);
    };
    WarpFragments v_new;
    subtract_product<kDk>(v_new, ValueTile{from.U}, warp_column, W, S[0], pass_on_state);
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      if (j < a.Dv) store_global(new_values + i * 32, v_new[i]);
      update_state<kDk>(S[0], K, v_new[i], i);
    }
  }
  if (a.final_state.data) {
    store_state<Shape>(a.final_state.row(b, h, 0) + first, S, a.final_state.stride_l, a.Dk, columns);
  }
}

/// Grid (chunks and tiles of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kThreads, 6) outputs_kernel(Bf16Arguments a, Workspace x) {
  __shared__ uint4 P[kBlockUnits];
  const typename Shape::KeyTile Q{dynamic_shared<__nv_bfloat16>()};
  const ValueTile to_store{Q.data + kChunk * Shape::kDk};
  const int b = int(blockIdx.z), h = int(blockIdx.y), tiles = column_tiles(a.Dv);
  const int n = int(blockIdx.x) / tiles, first = int(blockIdx.x) % tiles * kColumns, t = n * kChunk;
  const int lane = int(lane_index()), j = first + warp_index() * 16;
  const std::int64_t chunk = (std::int64_t(b) * a.H + h) * x.N + n;
  const uint4* states = fragments_of(x.states, a, chunk, a.Dk / 16, j);
  const uint4* new_values = fragments_of(x.v_new, a, chunk, kBlocks, j);

  load_tile_async(Q, a.q.row(b, h, t), a.q.stride_l, a.L - t, a.Dk);
  load_units_async<kBlockUnits>(int(threadIdx.x), P, x.P + chunk * kBlockUnits);
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
      ldmatrix_x4(q, Q.data + Q.advance(q_unit, r * kBlock, d * 16));
      multiply(O[r], 0, make_uint4(q[0], q[1], q[2], q[3]), transposed(s));
    }
  }
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
    const uint4 v_new = j < a.Dv ? load_global(new_values + i * 32) : uint4{};
#pragma unroll
    for (int r = i; r < kBlocks; ++r) {
      multiply(O[r], 0, transposed(P[lower_block(r, i) * 32 + lane]), transposed(v_new));
    }
  }
  store_output<Shape>(a.o.row(b, h, t) + first, a.o.stride_l, a.L - t, min(kColumns, a.Dv - first), O, to_store,
                      a.scale);
}

/// Bytes of what the kernels pass on, beside T and P.
struct Bytes {
  std::int64_t W, U, states;  // v_new takes as much as U

  explicit Bytes(const Bf16Arguments& a) {
    const std::int64_t chunks = std::int64_t(a.B) * a.H * ceil_div(a.L, kChunk);
    W = chunks * kChunk * a.Dk * 2;
    U = chunks * kChunk * a.Dv * 2;
    states = chunks * a.Dk * a.Dv * 2;
  }
  std::int64_t all() const { return W + 2 * U + states; }
};

Workspace workspace_of(const Bf16Arguments& a, const Prepared& prepared) {
  const Bytes bytes(a);
  auto* memory = workspace<unsigned char>("delta_rule: split_inverse", std::size_t(bytes.all()));
  const auto take = [&](std::int64_t count) { return std::exchange(memory, memory + count); };
  const auto rows = [&](std::int64_t count, int columns) {
    return packed(reinterpret_cast<__nv_bfloat16*>(take(count)), a.H, prepared.N * kChunk, columns);
  };
  const auto fragments = [&](std::int64_t count) { return reinterpret_cast<uint4*>(take(count)); };
  return {prepared, rows(bytes.W, a.Dk), rows(bytes.U, a.Dv), fragments(bytes.U), fragments(bytes.states)};
}

}  // namespace

void split_inverse(const Bf16Arguments& a) {
  const Workspace x = workspace_of(a, prepare(a));
  end_part("prepare");
  const int tiles = column_tiles(a.Dv), vector_tiles = column_tiles(a.Dk) + tiles;
  const auto grid = [&](int blocks) { return dim3(unsigned(blocks), unsigned(a.H), unsigned(a.B)); };
  launch(vectors_kernel, {grid(x.N * vector_tiles), kThreads, sizeof(__nv_bfloat16) * kChunk * kColumns}, a, x);
  end_part("vectors");
  select_shape(a.Dk, [&]<class Shape>(Shape) {
    launch(states_kernel<Shape>, {grid(tiles), kThreads, 2 * sizeof(Tiles<Shape>)}, a, x);
    end_part("states");
    launch(outputs_kernel<Shape>,
           {grid(x.N * tiles), kThreads, sizeof(__nv_bfloat16) * kChunk * (Shape::kDk + kColumns)}, a, x);
    end_part("outputs");
  });
}

}  // namespace tutorial::delta_rule
