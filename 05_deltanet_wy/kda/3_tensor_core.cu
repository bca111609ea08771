/// @file
/// `tensor_core`: the chunks of `chunkwise` on tensor cores, in two kernels.
///
/// Idea: once a chunk's rows contain their decays, nothing else about gates is left but one factor per row of the
/// state. A first kernel (prepare_decayed.cuh) computes Q+, K+, K-, T and P of all chunks at once. The walk is then
/// delta_rule's: where that has one K, this reads the state with K+, multiplies its rows by the chunk's decays, and
/// writes with K-.
/// Grows out of: 05_deltanet_wy/delta_rule/8_fused.cu; large step: in between would stand a preparation whose scores
/// cut a chunk at one anchor only. It is right for weak gates alone, and the anchors of pairs replace all of it.
/// Improves on: `chunkwise` uses one CPU thread per head. A recurrence takes L steps that wait for each other; here there
/// are L / 64.
/// Unchanged: the walk of `fused`, and T in two bf16.
/// Equation:
///
///     v_new = T (V - K+ S),  O_n = scale (Q+ S + P v_new),  S = diag(exp(b_end)) S + K-^T v_new    for each chunk n
///
/// Shapes: q, k [B, H, L, Dk], v, o [B, H, L, Dv] bf16; g [B, H, L, Dk], beta [B, H, L], S_0 and final_state
/// [B, H, Dk, Dv] fp32.
/// Thread mapping: block (tile, h, b) walks over the chunks of a head with 64 columns of Dv, 16 for each of its four
/// warps, and loads the next chunk meanwhile.
/// Synchronization: one barrier per chunk.
/// Resources: at Dk = 128, 151 KB of shared memory, one block per multiprocessor; per thread 64 registers for S, 32 for
/// O and 32 for sums. Where a block cannot have so much, it has one chunk at a time, in 80 KB, and waits for each.
/// Work: that of prepare(), and 6 Dk Dv + 240 Dv operations per position on tensor cores; Dk Dv / 64 multiplications.
/// Bytes: v and o once; Q+, K+, K-, T and P once per tile of 64 columns, after the first tile from the second-level
/// cache; prepare()'s.
/// Bound by: latency. The three products of a chunk depend on each other.
/// Requires: Dk and Dv multiples of 16, Dk <= 128, Dv <= 512; rows aligned to 16 bytes; 80 KB of shared memory.
/// Weakness: the rows pass through memory three times, and the same warps load, compute the chain and the outputs.
/// Sources: delta_rule's `fused`; arXiv 2510.26692, section 3.1; FlashKDA (Moonshot AI) for two kernels.

#include <cuda_runtime.h>

#include <type_traits>
#include <utility>

#include "05_deltanet_wy/chunk/fragments.cuh"
#include "05_deltanet_wy/chunk/warp_products.cuh"
#include "05_deltanet_wy/kda/prepare_decayed.hpp"
#include "common/ceil_div.hpp"
#include "common/device/cp_async.cuh"
#include "common/device/device.hpp"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/launch.cuh"
#include "common/device/workspace.hpp"
#include "common/parts.hpp"
#include "common/tile/decay_rows.cuh"
#include "common/tile/load_tile.cuh"
#include "common/tile/requirements.hpp"
#include "common/tile/select_shape.cuh"
#include "common/tile/state.cuh"
#include "common/tile/store_tile.cuh"

namespace tutorial::kda {
namespace {

using namespace delta_rule;  // a chunk's products
using namespace tile;        // tiles and states

constexpr int kColumns = 64;  // of a block
constexpr int kMaxKeyDim = 128;
using ValueTile = SwizzledTile<kColumns>;

__host__ __device__ constexpr int column_tiles(int width) {
  return (width - 1) / kColumns + 1;
}

/// What the walk reads of a chunk, in shared memory.
template <class Shape>
struct Tiles {
  uint4 T[2 * kBlockUnits], P[kBlockUnits];
  __nv_bfloat16 K[kChunk * Shape::kDk], K_end[kChunk * Shape::kDk], V[kChunk * kColumns], Q[kChunk * Shape::kDk];
  float decays[Shape::kDk];
};

/// @tparam kDepth chunks in shared memory
template <class Shape, int kDepth>
constexpr std::size_t kSharedBytes = kDepth * sizeof(Tiles<Shape>) + sizeof(__nv_bfloat16) * kChunk* kColumns;

/// Grid (tiles of Dv, H, B).
template <class Shape, int kDepth>
__global__ void __launch_bounds__(kThreads, 1) walk_kernel(Bf16Arguments a, Prepared x) {
  constexpr int kDk = Shape::kDk;
  const int b = int(blockIdx.z), h = int(blockIdx.y), first = int(blockIdx.x) * kColumns;
  const int columns = min(kColumns, a.Dv - first), warp_column = warp_index() * 16;
  auto* tiles = dynamic_shared<Tiles<Shape>>();  // kDepth
  auto* staging =
      reinterpret_cast<__nv_bfloat16*>(tiles + kDepth) + warp_index() * kChunk * 16;  // O on its way to memory
  const auto load = [&](int n) {
    Tiles<Shape>& to = tiles[n % kDepth];
    const int t = n * kChunk, b = hide_from_compiler(int(blockIdx.z));
    const std::int64_t chunk = (std::int64_t(b) * a.H + h) * x.N + n;
    load_units_async<2 * kBlockUnits>(int(threadIdx.x), to.T, x.T + chunk * 2 * kBlockUnits);
    const std::int64_t rows = chunk * kChunk * a.Dk;
    load_tile_async(SwizzledTile<kDk>{to.K}, x.K + rows, a.Dk, kChunk, a.Dk);
    load_tile_async(SwizzledTile<kDk>{to.K_end}, x.K_end + rows, a.Dk, kChunk, a.Dk);
    load_tile_async(ValueTile{to.V}, a.v.row(b, h, t) + first, a.v.stride_l, a.L - t, columns);
    load_units_async<kBlockUnits>(int(threadIdx.x), to.P, x.P + chunk * kBlockUnits);
    load_tile_async(SwizzledTile<kDk>{to.Q}, x.Q + rows, a.Dk, kChunk, a.Dk);
    if (const int d = int(threadIdx.x) * 4; d < kDk) {
      cp_async<16>(to.decays + d, x.decays + chunk * a.Dk + d, d < a.Dk);
    }
    cp_async_commit();
  };
  load(0);
  typename Shape::State S;
  load_state<Shape>(S, a.initial_state.data ? a.initial_state.row(b, h, 0) + first : nullptr, a.initial_state.stride_l,
                    a.Dk, columns);
  for (int n = 0; n < x.N; ++n) {
    cp_async_wait<0>();
    __syncthreads();
    if (kDepth == 2 && n + 1 < x.N) load(n + 1);
    Tiles<Shape>& from = tiles[n % kDepth];
    const SwizzledTile<kDk> K{from.K}, K_end{from.K_end}, Q{from.Q};

    WarpColumns O = {};
    const auto pass_on_state = [&](int d, const uint4& s) { add_state_rows(O, Q, d, s); };
    const auto pass_on_v_new = [&](int i, const uint4& v_new) { add_scores(O, from.P, i, v_new); };
    WarpFragments residual;
    subtract_product<kDk>(residual, ValueTile{from.V}, warp_column, K, S[0], pass_on_state);
    decay_rows<Shape>(S, [&](int d) { return *reinterpret_cast<const float2*>(from.decays + d); });
    add_v_new<kDk>(S[0], residual, from.T, K_end, pass_on_v_new);
    if constexpr (kDepth == 1) {
      __syncthreads();  // no warp reads the tiles any more
      if (n + 1 < x.N) load(n + 1);
    }
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
  const dim3 grid(unsigned(column_tiles(a.Dv)), unsigned(a.H), unsigned(a.B));
  const auto walk = [&]<class Shape, int kDepth>(Shape, std::integral_constant<int, kDepth>) {
    launch(walk_kernel<Shape, kDepth>, {grid, kThreads, kSharedBytes<Shape, kDepth>}, a, x);
  };
  select_shape(a.Dk, [&]<class Shape>(Shape shape) {
    if constexpr (Shape::kDk <= kMaxKeyDim) {
      const bool has_room = shared_memory_missing(kSharedBytes<Shape, 2>).empty();
      has_room ? walk(shape, std::integral_constant<int, 2>()) : walk(shape, std::integral_constant<int, 1>());
    }
  });
  end_part("walk");
}

}  // namespace tutorial::kda
