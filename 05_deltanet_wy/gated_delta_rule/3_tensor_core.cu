/// @file
/// `tensor_core`: gates on tensor cores, as factors of what is in registers anyway.
///
/// Idea: all factors of a chunk are diagonal matrices or belong to pairs of positions. Those of the pairs are in T and
/// P, which prepare() computes. A diagonal matrix of positions multiplies the columns of a product that the warp has
/// just computed, in fp32 and before it is rounded. So the products, and the fragments that they read, are those of
/// `fused`. One thing changes: v_new is rounded twice. The outputs need it as it is, and the state needs it times the
/// decay to the end of the chunk.
/// Grows out of: 05_deltanet_wy/delta_rule/8_fused.cu
/// Improves on: `chunkwise` uses one CPU thread per head.
/// Unchanged: two kernels, prepare() and the walk; T in two bf16; what each warp loads, multiplies and stores.
///
/// Equation: with the rows D_k, D_q and D_e of prepare_gated.hpp as diagonal matrices,
///
///     residual = V - D_k K S,  v_new = T residual,  O_n = scale (D_q Q S + P v_new),  S = exp(b_e) S + K^T D_e v_new
///
/// Normalised keys cost nothing here: their factors are in T and in D_k.
///
/// Shapes: q, k [B, H, L, Dk], v, o [B, H, L, Dv] bf16; beta, g [B, H, L], S_0 and final_state [B, H, Dk, Dv] fp32.
/// Thread mapping: block (tile, h, b) walks over the chunks of a head with 64 columns of Dv, 16 for each of its four
/// warps. It has one barrier per chunk and loads the next chunk meanwhile.
/// Resources: at Dk = 128, 120 KB of shared memory; per thread 64 registers for S, 32 for O and 32 for sums.
/// Work: that of prepare(), 6 Dk Dv + 240 Dv operations per position on tensor cores, and 3 Dv + Dk Dv / 64
/// multiplications.
/// Bytes: v and o once; q, k, T, P and decays once per tile of 64 columns, after the first tile from the second-level
/// cache; q and k once more in prepare().
/// Bound by: latency, as `fused`. The factors of D_k are on the way from one product to the next.
/// Requires: Dk and Dv multiples of 16, Dk <= 256, Dv <= 512; rows aligned to 16 bytes; shared memory as above, 184 KB
/// at Dk > 128.
/// Weakness: loads and outputs delay the walk, as in `fused`.
/// Sources: arXiv 2412.06464, section 3.3, for the chunk form with gates.

#include <cuda_runtime.h>

#include <utility>

#include "05_deltanet_wy/chunk/fragments.cuh"
#include "05_deltanet_wy/gated_delta_rule/decayed_warp_products.cuh"
#include "05_deltanet_wy/gated_delta_rule/prepare_gated.hpp"
#include "common/ceil_div.hpp"
#include "common/device/cp_async.cuh"
#include "common/device/device.hpp"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/launch.cuh"
#include "common/device/workspace.hpp"
#include "common/parts.hpp"
#include "common/tile/load_tile.cuh"
#include "common/tile/requirements.hpp"
#include "common/tile/select_shape.cuh"
#include "common/tile/state.cuh"
#include "common/tile/store_tile.cuh"

namespace tutorial::gated_delta_rule {
namespace {

using namespace tile;        // tiles and states
using namespace delta_rule;  // a chunk's blocks as fragments

constexpr int kColumns = 64;  // of a block
using ValueTile = SwizzledTile<kColumns>;

__host__ __device__ constexpr int column_tiles(int width) {
  return (width - 1) / kColumns + 1;
}

/// What the walk reads of a chunk, in shared memory.
template <class Shape>
struct Tiles {
  uint4 T[2 * kBlockUnits], P[kBlockUnits];
  __nv_bfloat16 K[kChunk * Shape::kDk], V[kChunk * kColumns], Q[kChunk * Shape::kDk];
  float decays[kDecays];
};

template <class Shape>
constexpr std::size_t kSharedBytes = 2 * sizeof(Tiles<Shape>) + sizeof(__nv_bfloat16) * kChunk* kColumns;

/// Grid (tiles of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1) walk_kernel(Bf16Arguments a, Prepared x) {
  constexpr int kDk = Shape::kDk;
  const int b = int(blockIdx.z), h = int(blockIdx.y), first = int(blockIdx.x) * kColumns;
  const int columns = min(kColumns, a.Dv - first), warp_column = warp_index() * 16;
  auto* tiles = dynamic_shared<Tiles<Shape>>();                                              // two
  auto* staging = reinterpret_cast<__nv_bfloat16*>(tiles + 2) + warp_index() * kChunk * 16;  // O on its way to memory
  const auto load = [&](int n) {
    Tiles<Shape>& to = tiles[n % 2];
    const int t = n * kChunk, b = hide_from_compiler(int(blockIdx.z));
    const std::int64_t chunk = (std::int64_t(b) * a.H + h) * x.N + n;
    load_units_async<2 * kBlockUnits>(int(threadIdx.x), to.T, x.T + chunk * 2 * kBlockUnits);
    load_tile_async(SwizzledTile<kDk>{to.K}, a.k.row(b, h, t), a.k.stride_l, a.L - t, a.Dk);
    load_tile_async(ValueTile{to.V}, a.v.row(b, h, t) + first, a.v.stride_l, a.L - t, columns);
    load_units_async<kBlockUnits>(int(threadIdx.x), to.P, x.P + chunk * kBlockUnits);
    load_tile_async(SwizzledTile<kDk>{to.Q}, a.q.row(b, h, t), a.q.stride_l, a.L - t, a.Dk);
    const int first_decay = hide_from_compiler(int(threadIdx.x)) * 4;
    if (first_decay < kDecays) cp_async<16>(to.decays + first_decay, x.decays + chunk * kDecays + first_decay);
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
    const SwizzledTile<kDk> K{from.K}, Q{from.Q};
    const float* of_queries = from.decays + kOfQueries * kChunk;

    WarpColumns O = {};
    const auto pass_on_state = [&](int d, const uint4& s) { add_state_rows(O, Q, d, s); };
    const auto pass_on_v_new = [&](int i, const uint4& v_new) { add_scores(O, from.P, i, v_new); };
    WarpFragments residual;
    subtract_decayed_product<kDk>(residual, ValueTile{from.V}, warp_column, K, S[0], from.decays + kOfKeys * kChunk,
                                  pass_on_state);
    decay_columns(O, of_queries);
    add_decayed_v_new<kDk>(S[0], residual, from.T, K, of_queries[kChunk - 1], from.decays + kToEnd * kChunk,
                           pass_on_v_new);
    const int t = n * kChunk;
    store_warp_output(a.o.row(b, h, t) + first + warp_column, a.o.stride_l, a.L - t, columns - warp_column, O, a.scale,
                      staging);
  }
  if (a.final_state.data) {
    store_state<Shape>(a.final_state.row(b, h, 0) + first, S, a.final_state.stride_l, a.Dk, columns);
  }
}

}  // namespace

void tensor_core(const Bf16Arguments& a) {
  const Prepared x = prepare(a);
  end_part("prepare");
  const int tiles = column_tiles(a.Dv);
  const auto grid = [&](int blocks) { return dim3(unsigned(blocks), unsigned(a.H), unsigned(a.B)); };
  select_shape(a.Dk, [&]<class Shape>(Shape) {
    launch(walk_kernel<Shape>, {grid(tiles), kThreads, kSharedBytes<Shape>}, a, x);
    end_part("walk");
  });
}

}  // namespace tutorial::gated_delta_rule
