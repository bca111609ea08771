/// @file
/// Stage 11, `specialized_warps`: some warps load, some walk, and some compute outputs.
///
/// Idea: in each chunk, three products depend on each other: the residual, v_new and the update of the state. These
/// products of all chunks are the chain, and its length sets the time. Loads and outputs do not belong to it, so other
/// warps do them: loads run two chunks ahead, outputs one chunk behind. A warp of the chain has the rounded S and v_new
/// as fragments. It passes them to a warp of the outputs through shared memory. All warps meet at one barrier per
/// chunk:
///
///     warps 0 to 3     the chain        chunk n: residual, v_new, S; leaves S and v_new in shared memory
///     warps 4 to 7     outputs          chunk n - 1: O, to memory
///     warps 8 to 11    loading warps    K, V and T of chunk n + 2, Q and P of chunk n + 1, by cp.async
///
/// Grows out of: 10_fused.cu
/// Improves on: in `fused` each warp finishes all work of a chunk before it begins the next, so the chain waits for
/// loads and outputs.
/// Unchanged: T, P, the products, 64 columns per block.
///
/// Equation: that of `fused`.
///
/// Shapes: those of `fused`.
/// Thread mapping: block (tile, h, b) walks over the chunks of a head with 64 columns. For each 16 of them, one warp
/// has the chain and one the outputs. The warps of the chain do not depend on each other; walk_chunk.cuh says why.
/// Resources: at Dk = 128, 166 registers per thread, 12 warps and 213 KB of shared memory: one block per
/// multiprocessor.
/// Work, bytes: those of `fused`.
/// Bound by: the chain. At Dk = 128 it has 168 mma of one warp for each of the L / 64 chunks.
/// Requires: as `tensor_core`, Dk <= 128 and shared memory as above.
/// Weakness: with few heads, blocks of 64 columns leave multiprocessors idle, however long the sequence is. (Walking
/// the segments of a sequence at once would take a transition matrix per segment.)
/// Source: warps with different tasks are from chapter 04's `one_kernel`; CUTLASS calls this warp specialization.

#include <cuda_runtime.h>

#include <utility>

#include "05_deltanet_wy/delta_rule/fragments.cuh"
#include "05_deltanet_wy/delta_rule/prepared.hpp"
#include "05_deltanet_wy/delta_rule/walk_chunk.cuh"
#include "common/ceil_div.hpp"
#include "common/device/block_barrier.cuh"
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

namespace tutorial::delta_rule {
namespace {

using namespace tile;  // tiles and states

constexpr int kColumns = 64;  // of a block
using ValueTile = SwizzledTile<kColumns>;

constexpr int kTasks = 3;          // of four warps each
constexpr int kPipelineDepth = 3;  // chunks in shared memory: one is in use, the loads of the others are under way

__host__ __device__ constexpr int column_tiles(int width) {
  return (width - 1) / kColumns + 1;
}

/// A block's shared memory.
template <class Shape>
struct Tiles {
  /// What the chain reads of a chunk.
  struct ForChain {
    uint4 T[2 * kBlockUnits];
    __nv_bfloat16 K[kChunk * Shape::kDk], V[kChunk * kColumns];
  } for_chain[kPipelineDepth];
  /// What the outputs read of a chunk.
  struct ForOutputs {
    uint4 P[kBlockUnits];
    __nv_bfloat16 Q[kChunk * Shape::kDk];
  } for_outputs[kPipelineDepth];
  /// From a warp of the chain to one of the outputs: S before the chunk, and v_new, as fragments.
  struct Handover {
    uint4 S[Shape::kDk / 16 * 32], v_new[kBlocks * 32];
  } handover[2][kWarps];
};

/// Grid (tiles of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kTasks* kThreads) walk_kernel(Bf16Arguments a, Prepared x) {
  constexpr int kDk = Shape::kDk;
  const int b = int(blockIdx.z), h = int(blockIdx.y), first = int(blockIdx.x) * kColumns;
  const int warp = int(threadIdx.x) / 32 % kWarps, task = int(threadIdx.x) / kThreads;
  const int columns = min(kColumns, a.Dv - first), warp_column = warp * 16;
  auto& tiles = *dynamic_shared<Tiles<Shape>>();
  const auto load = [&](int n) {
    const int thread = hide_from_compiler(int(threadIdx.x)) % kThreads, b = hide_from_compiler(int(blockIdx.z));
    const std::int64_t chunk = (std::int64_t(b) * a.H + h) * x.N + n;
    if (n < x.N) {
      auto& to = tiles.for_chain[n % kPipelineDepth];
      const int t = n * kChunk;
      load_units_async<2 * kBlockUnits>(thread, to.T, x.T + chunk * 2 * kBlockUnits);
      load_columns_async<kThreads, kDk>(thread, SwizzledTile<kDk>{to.K}, a.k.row(b, h, t), a.k.stride_l, a.L - t, a.Dk);
      load_columns_async<kThreads, kColumns>(thread, ValueTile{to.V}, a.v.row(b, h, t) + first, a.v.stride_l, a.L - t,
                                             columns);
    }
    if (n > 0 && n <= x.N) {  // outputs are a chunk behind
      auto& to = tiles.for_outputs[(n - 1) % kPipelineDepth];
      const int t = (n - 1) * kChunk;
      load_units_async<kBlockUnits>(thread, to.P, x.P + (chunk - 1) * kBlockUnits);
      load_columns_async<kThreads, kDk>(thread, SwizzledTile<kDk>{to.Q}, a.q.row(b, h, t), a.q.stride_l, a.L - t, a.Dk);
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
      const SwizzledTile<kDk> K{from.K};
      const int lane = fresh_lane();
      const auto pass_on_state = [&](int d, const uint4& s) { to.S[d * 32 + lane] = s; };
      const auto pass_on_v_new = [&](int i, const uint4& v_new) { to.v_new[i * 32 + lane] = v_new; };
      WarpFragments residual;
      subtract_product<kDk>(residual, ValueTile{from.V}, warp_column, K, S[0], pass_on_state);
      add_v_new<kDk>(S[0], residual, from.T, K, pass_on_v_new);
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
  const int tiles = column_tiles(a.Dv);
  const auto grid = [&](int blocks) { return dim3(unsigned(blocks), unsigned(a.H), unsigned(a.B)); };
  const auto run = [&]<class Shape>(Shape) {
    launch(walk_kernel<Shape>, {grid(tiles), kTasks * kThreads, sizeof(Tiles<Shape>)}, a, x);
    end_part("walk");
  };
  a.Dk <= 64 ? run(ChunkShape<64, kColumns>()) : run(ChunkShape<128, kColumns>());
}

std::string specialized_warps_unsupported(const Bf16Arguments& a) {
  if (const std::string reason = tensor_core_unsupported(a); !reason.empty()) return reason;
  if (a.Dk > 128) return "Dk > 128: three chunks do not fit into a block's shared memory";
  return shared_memory_missing(sizeof(Tiles<ChunkShape<128, kColumns>>));
}

std::int64_t specialized_warps_memory(const Bf16Arguments& a) {
  return prepared_memory(a);
}

}  // namespace tutorial::delta_rule
