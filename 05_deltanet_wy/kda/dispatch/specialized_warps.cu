/// @file
/// `specialized_warps`: delta_rule's kinds of warps, and blocks of 32 columns.
///
/// Idea: the chain is the three products of a chunk that wait for each other. Everything else goes to other warps, as
/// in delta_rule: loads run ahead, outputs one chunk behind. And because a warp of the chain has 16 columns of the
/// state to itself, a block may have as many or as few of them as there are multiprocessors to fill: 64 columns, or 32
/// where blocks of 64 would leave multiprocessors idle.
///
///     warps of the chain      chunk n: residual, the state's decay, v_new, S; leave S and v_new in shared memory
///     warps for outputs       chunk n - 1: O, to memory
///     4 loading warps         K+, K-, V, T and decays of chunk n + 1, Q+ and P of chunk n, by cp.async
///
/// Improves on: in `tensor_core` the chain waits for loads and outputs, and 32 heads of 128 columns are 64 blocks.
/// Unchanged: the kinds of warps; prepare() and the products of `tensor_core`.
/// Equation: that of `tensor_core`.
/// Shapes: those of `tensor_core`.
/// Thread mapping: block (tile, h, b) walks over the chunks of a head with 32 or 64 columns. For each 16 of them, one
/// warp has the chain and one the outputs.
/// Synchronization: one barrier of all warps per chunk.
/// Resources: at Dk = 128, 171 KB of shared memory with 32 columns and 195 KB with 64: one block per multiprocessor.
/// K+ and K- leave room for two chunks, where delta_rule has three: loads run one chunk ahead.
/// Work: that of `tensor_core`.
/// Bytes: those of `tensor_core`, with tiles of 32 columns where it takes these.
/// Bound by: the chain. At Dk = 128 it has 168 mma of one warp for each of the L / 64 chunks.
/// Requires: as `tensor_core`, and shared memory as above.
/// Weakness: each warp of the chain reads K+, K- and T from shared memory for itself, and the rows pass through memory.
/// Source: delta_rule's `specialized_warps`.

#include <cuda_runtime.h>

#include <utility>

#include "05_deltanet_wy/chunk/fragments.cuh"
#include "05_deltanet_wy/chunk/warp_products.cuh"
#include "05_deltanet_wy/kda/dispatch/specialized_warps.hpp"
#include "05_deltanet_wy/kda/prepare_decayed.hpp"
#include "common/ceil_div.hpp"
#include "common/device/block_barrier.cuh"
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

using ValueTile = SwizzledTile<64>;  // of which 32 columns may be unused

constexpr int kPipelineDepth = 2;  // chunks in shared memory: one is in use, the loads of the other are under way

/// A block's part of a head: 16 columns for each of kGroups warps of the chain.
template <int kDk_, int kGroups_>
struct WalkShape {
  static constexpr int kDk = kDk_, kGroups = kGroups_, kWarpColumns = 16, kColumns = kGroups * kWarpColumns;
  static constexpr int kGroupThreads = 32 * kGroups, kBlockThreads = 2 * kGroupThreads + kThreads;
  using State = float[1][kDk / 8][4];  // of a warp, as in ChunkShape
};

/// A block's shared memory.
template <class Shape>
struct Tiles {
  /// What the chain reads of a chunk.
  struct ForChain {
    uint4 T[2 * kBlockUnits];
    __nv_bfloat16 K[kChunk * Shape::kDk], K_end[kChunk * Shape::kDk], V[kChunk * 64];
    float decays[Shape::kDk];
  } for_chain[kPipelineDepth];
  /// What the outputs read of a chunk.
  struct ForOutputs {
    uint4 P[kBlockUnits];
    __nv_bfloat16 Q[kChunk * Shape::kDk];
  } for_outputs[kPipelineDepth];
  /// From a warp of the chain to one of the outputs: S before the chunk, and v_new, as fragments.
  struct Handover {
    uint4 S[Shape::kDk / 16 * 32], v_new[kBlocks * 32];
  } handover[2][Shape::kGroups];
};

/// Grid (tiles of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(Shape::kBlockThreads) walk_kernel(Bf16Arguments a, Prepared x) {
  constexpr int kDk = Shape::kDk, kColumns = Shape::kColumns;
  const int b = int(blockIdx.z), h = int(blockIdx.y), first = int(blockIdx.x) * kColumns;
  const int warp = int(threadIdx.x) / 32 % Shape::kGroups, task = int(threadIdx.x) / Shape::kGroupThreads;
  const int columns = min(kColumns, a.Dv - first), warp_column = warp * 16;
  auto& tiles = *dynamic_shared<Tiles<Shape>>();
  const auto load = [&](int n) {
    const int thread = hide_from_compiler(int(threadIdx.x)) - 2 * Shape::kGroupThreads,
              b = hide_from_compiler(int(blockIdx.z));
    const std::int64_t chunk = (std::int64_t(b) * a.H + h) * x.N + n;
    const std::int64_t rows = chunk * kChunk * a.Dk;
    if (n < x.N) {
      auto& to = tiles.for_chain[n % kPipelineDepth];
      const int t = n * kChunk;
      load_units_async<2 * kBlockUnits>(thread, to.T, x.T + chunk * 2 * kBlockUnits);
      load_columns_async<kThreads, kDk>(thread, SwizzledTile<kDk>{to.K}, x.K + rows, a.Dk, kChunk, a.Dk);
      load_columns_async<kThreads, kDk>(thread, SwizzledTile<kDk>{to.K_end}, x.K_end + rows, a.Dk, kChunk, a.Dk);
      if (const int d = thread * 4; d < kDk) cp_async<16>(to.decays + d, x.decays + chunk * a.Dk + d, d < a.Dk);
      load_columns_async<kThreads, kColumns>(thread, ValueTile{to.V}, a.v.row(b, h, t) + first, a.v.stride_l, a.L - t,
                                             columns);
    }
    if (n > 0 && n <= x.N) {  // outputs are a chunk behind
      auto& to = tiles.for_outputs[(n - 1) % kPipelineDepth];
      load_units_async<kBlockUnits>(thread, to.P, x.P + (chunk - 1) * kBlockUnits);
      load_columns_async<kThreads, kDk>(thread, SwizzledTile<kDk>{to.Q}, x.Q + rows - kChunk * a.Dk, a.Dk, kChunk,
                                        a.Dk);
    }
    cp_async_commit();  // near the end an empty group keeps the count right
  };
  if (task == 0) {  // the chain
    typename Shape::State S;
    load_state<Shape>(S, a.initial_state.data ? a.initial_state.row(b, h, 0) + first : nullptr,
                      a.initial_state.stride_l, a.Dk, columns);
    for (int n = 0; n < x.N; ++n) {
      block_barrier();
      auto& from = tiles.for_chain[n % kPipelineDepth];
      auto& to = tiles.handover[n % 2][warp];
      const SwizzledTile<kDk> K{from.K}, K_end{from.K_end};
      const int lane = fresh_lane();
      const auto pass_on_state = [&](int d, const uint4& s) { to.S[d * 32 + lane] = s; };
      const auto pass_on_v_new = [&](int i, const uint4& v_new) { to.v_new[i * 32 + lane] = v_new; };
      WarpFragments residual;
      subtract_product<kDk>(residual, ValueTile{from.V}, warp_column, K, S[0], pass_on_state);
      decay_rows<Shape>(S, [&](int d) { return *reinterpret_cast<const float2*>(from.decays + d); });
      add_v_new<kDk>(S[0], residual, from.T, K_end, pass_on_v_new);
    }
    block_barrier();
    if (a.final_state.data) {
      store_state<Shape>(a.final_state.row(b, h, 0) + first, S, a.final_state.stride_l, a.Dk, columns);
    }
  } else if (task == 1) {  // outputs
    block_barrier();
    for (int n = 0; n < x.N; ++n) {
      block_barrier();
      auto& from = tiles.for_outputs[n % kPipelineDepth];
      auto& state = tiles.handover[n % 2][warp];
      WarpColumns O = {};
      outputs<kDk>(O, SwizzledTile<kDk>{from.Q}, state.S, from.P, state.v_new);
      const int t = n * kChunk;
      store_warp_output(a.o.row(b, h, t) + first + warp_column, a.o.stride_l, a.L - t, columns - warp_column, O,
                        a.scale, reinterpret_cast<__nv_bfloat16*>(state.v_new));
    }
  } else {  // loads
    for (int n = 0; n < kPipelineDepth - 1; ++n) load(n);
    for (int n = 0; n <= x.N; ++n) {
      cp_async_wait<kPipelineDepth - 2>();
      block_barrier();
      load(n + kPipelineDepth - 1);
    }
  }
}

}  // namespace

void specialized_warps(const Bf16Arguments& a) {
  const Prepared x = prepare(a);
  end_part("prepare");
  const auto run = [&]<class Shape>(Shape) {
    const dim3 grid(unsigned(ceil_div(a.Dv, Shape::kColumns)), unsigned(a.H), unsigned(a.B));
    launch(walk_kernel<Shape>, {grid, Shape::kBlockThreads, sizeof(Tiles<Shape>)}, a, x);
    end_part("walk");
  };
  if (specialized_warps_columns(a) == 32) {
    a.Dk <= 64 ? run(WalkShape<64, 2>()) : run(WalkShape<128, 2>());
  } else {
    a.Dk <= 64 ? run(WalkShape<64, 4>()) : run(WalkShape<128, 4>());
  }
}

int specialized_warps_columns(const Bf16Arguments& a) {
  const bool leaves_some_idle = std::int64_t(a.B) * a.H * ceil_div(a.Dv, 64) < multiprocessor_count();
  return leaves_some_idle ? 32 : 64;
}

}  // namespace tutorial::kda
