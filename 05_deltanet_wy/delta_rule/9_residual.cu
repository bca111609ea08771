/// @file
/// Stage 9, `residual`: v_new from the residual V - K S, without W and U.
///
/// Idea: W and U exist so that v_new = U - W S takes one product in the walk. But U - W S = T V - T K S = T (V - K S):
/// if the walk has T, it needs neither W nor U. In place of W it reads K, which it needs anyway, and in place of U it
/// reads V.
/// Grows out of: 8_split_inverse.cu
/// Improves on: `split_inverse` writes W and U in a kernel of their own and reads them again in the walk, 4 (Dk + Dv)
/// bytes per position.
/// Unchanged: T and P. The walk still passes v_new and the states on to a kernel that computes the outputs. V - K S is
/// computed as U - W S was.
///
/// Equation:
///
///     residual = V - K S_{n-1},  v_new = T residual,  S_n = S_{n-1} + K^T v_new     states_kernel
///     O_n = scale (Q S_{n-1} + P v_new)                                             outputs_kernel
///
/// The residual is rounded to bf16 and, transposed, is the A fragment of the product with T: residual^T T^T.
///
/// Shapes, thread mapping: those of `tensor_core`, without W, U and vectors_kernel.
/// Resources: states_kernel has 68 KB of shared memory at Dk = 128.
/// Work: 160 Dk fewer operations per position than `split_inverse`, because T does not multiply K. But T times the
/// residual is in the walk now, and the next product waits for it.
/// Bytes: v and o once, q and k twice; T, P, v_new and states are written and read.
/// Bound by: the memory's bandwidth; with few heads the walk, which now has three dependent products per chunk instead
/// of two.
/// Requires: as `tensor_core`.
/// Weakness: the state of each chunk passes through memory only because another kernel computes the outputs. It takes 4
/// Dk Dv bytes, written and read.
/// Source: the form T (V - K S): FlashKDA (Moonshot AI), for a related operator.

#include <cuda_runtime.h>

#include <utility>

#include "05_deltanet_wy/delta_rule/fragments.cuh"
#include "05_deltanet_wy/delta_rule/prepared.hpp"
#include "05_deltanet_wy/delta_rule/walk_chunk.cuh"
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
  uint4* v_new;   // [B, H, N, Dv / 16, 4, 32]: of 16 columns and 16 positions, the A fragment of v_new^T
  uint4* states;  // [B, H, N, Dv / 16, Dk / 16, 32]: S_{n-1}, A fragments of S^T
};

/// What the walk reads of a chunk, in shared memory.
template <class Shape>
struct Tiles {
  uint4 T[2 * kBlockUnits];
  __nv_bfloat16 K[kChunk * Shape::kDk], V[kChunk * kColumns];
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
    const std::int64_t chunk = (std::int64_t(b) * a.H + h) * x.N + n;
    load_units_async<2 * kBlockUnits>(int(threadIdx.x), to.T, x.T + chunk * 2 * kBlockUnits);
    load_tile_async(SwizzledTile<kDk>{to.K}, a.k.row(b, h, t), a.k.stride_l, a.L - t, a.Dk);
    load_tile_async(ValueTile{to.V}, a.v.row(b, h, t) + first, a.v.stride_l, a.L - t, columns);
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
    const SwizzledTile<kDk> K{from.K};
    const std::int64_t chunk = (std::int64_t(b) * a.H + h) * x.N + n;
    uint4* states = fragments_of(x.states, a, chunk, a.Dk / 16, j);
    uint4* new_values = fragments_of(x.v_new, a, chunk, kBlocks, j);

    const auto pass_on_state = [&](int d, const uint4& s) {
      if (j < a.Dv && d * 16 < a.Dk) store_global(states + d * 32, s);
    };
    const auto pass_on_v_new = [&](int i, const uint4& v_new) {
      if (j < a.Dv) store_global(new_values + i * 32, v_new);
    };
    WarpFragments residual;
    subtract_product<kDk>(residual, ValueTile{from.V}, warp_column, K, S[0], pass_on_state);
    add_v_new<kDk>(S[0], residual, from.T, K, pass_on_v_new);
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
  std::int64_t v_new, states;

  explicit Bytes(const Bf16Arguments& a) {
    const std::int64_t chunks = std::int64_t(a.B) * a.H * ceil_div(a.L, kChunk);
    v_new = chunks * kChunk * a.Dv * 2;
    states = chunks * a.Dk * a.Dv * 2;
  }
  std::int64_t all() const { return v_new + states; }
};

Workspace workspace_of(const Bf16Arguments& a, const Prepared& prepared) {
  const Bytes bytes(a);
  auto* memory = workspace<unsigned char>("delta_rule: residual", std::size_t(bytes.all()));
  const auto take = [&](std::int64_t count) { return std::exchange(memory, memory + count); };
  const auto fragments = [&](std::int64_t count) { return reinterpret_cast<uint4*>(take(count)); };
  return {prepared, fragments(bytes.v_new), fragments(bytes.states)};
}

}  // namespace

void residual(const Bf16Arguments& a) {
  const Workspace x = workspace_of(a, prepare(a));
  end_part("prepare");
  const int tiles = column_tiles(a.Dv);
  const auto grid = [&](int blocks) { return dim3(unsigned(blocks), unsigned(a.H), unsigned(a.B)); };
  select_shape(a.Dk, [&]<class Shape>(Shape) {
    launch(states_kernel<Shape>, {grid(tiles), kThreads, 2 * sizeof(Tiles<Shape>)}, a, x);
    end_part("states");
    launch(outputs_kernel<Shape>,
           {grid(x.N * tiles), kThreads, sizeof(__nv_bfloat16) * kChunk * (Shape::kDk + kColumns)}, a, x);
    end_part("outputs");
  });
}

std::string residual_unsupported(const Bf16Arguments& a) {
  return tensor_core_unsupported(a);
}

std::int64_t residual_memory(const Bf16Arguments& a) {
  return prepared_memory(a) + Bytes(a).all();
}

}  // namespace tutorial::delta_rule
