/// @file
/// `specialized_warps`: some warps load, some walk, and some compute outputs, for every width of the tensor cores.
///
/// Idea: in each chunk, three products depend on each other: the residual, v_new and the update of the state. These
/// products of all chunks are the chain, and its length sets the time. Loads and outputs do not belong to it, so other
/// warps do them: loads run two chunks ahead, outputs one chunk behind. A warp of the chain has the rounded S and v_new
/// as fragments. It passes them to a warp of the outputs through shared memory. All warps meet at one barrier per
/// chunk:
///
///     warps of the chain       chunk n: residual, v_new, S; leave S and v_new in shared memory
///     warps for outputs        chunk n - 1: O, to memory
///     four loading warps       K, V and T of chunk n + 2, Q and P of chunk n + 1, by cp.async
///
/// It supports what dispatch has to:
///
/// - Keys are normalised if the caller asks for it; warp_products.cuh says where their factors go.
/// - A block has 32 or 64 columns of Dv: 32 while multiprocessors are idle, and if a chunk of 64 columns does not fit
///   into shared memory.
/// - Dk up to 256. Beyond 128 the loads run one chunk ahead instead of two.
///
/// Improves on: in `fused` each warp finishes all work of a chunk before it begins the next, so the chain waits for
/// loads and outputs.
/// Unchanged: T, P and the products.
///
/// Equation:
///
///     residual = V - diag(f) K S,   v_new = diag(f) T residual,   O = scale (Q S + P v_new),   S = S + K^T v_new
///
/// Shapes: q, k [B, H, L, Dk], v, o [B, H, L, Dv] bf16; beta [B, H, L], S_0 and final_state [B, H, Dk, Dv] fp32.
/// Thread mapping: block (tile, h, b) walks over the chunks of a head with its 32 or 64 columns. For each 16 of these,
/// one warp computes outputs and one has the chain. Four more warps load.
/// Resources: at Dk = 128 and 32 columns, 236 registers per thread, 8 warps and 190 KB of shared memory: one block per
/// multiprocessor.
/// Work: 6 Dk Dv + 3 (64 + 16) Dv operations per position on tensor cores.
/// Bytes: v and o once; q, k, T, P and f once for each tile of columns.
/// Bound by: with few heads the chain, which at Dk = 128 has 168 mma of one warp for each of the L / 64 chunks; with
/// many heads shared memory, because each warp reads its own B factors, 16 KB for a product with K.
/// Requires: Dk <= 256 and Dv <= 512, both multiples of 16; rows aligned to 16 bytes; shared memory as above; |k| <
/// 1e18, so that k . k is finite.
/// Source: warps with different tasks are from chapter 04's `one_kernel`; CUTLASS calls this warp specialization.

#include "05_deltanet_wy/delta_rule/dispatch/specialized_warps.hpp"

#include <cuda_runtime.h>

#include "05_deltanet_wy/chunk/prepare.hpp"
#include "05_deltanet_wy/chunk/warp_products.cuh"
#include "05_deltanet_wy/delta_rule/dispatch/warp_state.cuh"
#include "common/ceil_div.hpp"
#include "common/device/block_barrier.cuh"
#include "common/device/cp_async.cuh"
#include "common/device/device.hpp"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/parts.hpp"
#include "common/tile/load_tile.cuh"
#include "common/tile/requirements.hpp"

namespace tutorial::delta_rule {
namespace {

using tile::load_columns_async;

/// Chunks in shared memory at once: one is in use, the loads of the others are under way.
template <int kDk>
constexpr int kPipelineDepth = kDk <= 128 ? 3 : 2;

/// A block's shared memory.
/// @tparam kGroups groups of 16 columns; each has one warp for outputs and one in the chain
template <int kDk, int kGroups>
struct Memory {
  /// For the chain.
  struct Keys {
    uint4 T[2 * kBlockUnits];
    __nv_bfloat16 K[kChunk * kDk], V[kChunk * 64];
    float factors[kChunk];
  } keys[kPipelineDepth<kDk>];
  /// For outputs.
  struct Queries {
    uint4 P[kBlockUnits];
    __nv_bfloat16 Q[kChunk * kDk];
  } queries[kPipelineDepth<kDk>];
  /// From the chain to outputs: S before the chunk, and v_new, as fragments.
  struct Handover {
    uint4 S[kDk / 16 * 32], v_new[kBlocks * 32];
  } handover[2][kGroups];
};

constexpr int kLoadingWarps = 4;

/// What the loading warps do.
template <int kDk, int kGroups>
struct Loader {
  static constexpr int kThreadCount = 32 * kLoadingWarps;

  const Bf16Arguments& a;
  const Prepared& prepared;
  int b, h, first_column, columns;

  __device__ __forceinline__ std::int64_t chunk(int n) const {
    return (std::int64_t(hide_from_compiler(b)) * a.H + h) * prepared.N + n;
  }
  __device__ __forceinline__ int thread() const { return hide_from_compiler(int(threadIdx.x)) % kThreadCount; }

  template <int kWidth, int kColumns>
  __device__ __forceinline__ void load_rows(__nv_bfloat16* to, const View<const __nv_bfloat16>& from, int n, int column,
                                            int existing) const {
    const int t = n * kChunk;
    load_columns_async<kThreadCount, kWidth>(thread(), SwizzledTile<kColumns>{to},
                                             from.row(hide_from_compiler(b), h, t) + column, from.stride_l, a.L - t,
                                             existing);
  }
  template <class Keys>
  __device__ __forceinline__ void load_keys(Keys& keys, int n) const {
    load_rows<kDk, kDk>(keys.K, a.k, n, 0, a.Dk);
    load_rows<16 * kGroups, 64>(keys.V, a.v, n, first_column, columns);
    load_units_async<2 * kBlockUnits>(thread(), keys.T, prepared.T + chunk(n) * 2 * kBlockUnits);
    const int i = 4 * thread();
    if (i < kChunk) cp_async<16>(keys.factors + i, prepared.factors + chunk(n) * kChunk + i);
  }
  template <class Queries>
  __device__ __forceinline__ void load_queries(Queries& queries, int n) const {
    load_rows<kDk, kDk>(queries.Q, a.q, n, 0, a.Dk);
    load_units_async<kBlockUnits>(thread(), queries.P, prepared.P + chunk(n) * kBlockUnits);
  }
};

/// Grid (tiles of Dv, H, B). All warps meet at one barrier per chunk; while the chain is at chunk n, outputs are at n -
/// 1.
/// @tparam kNormalize a.normalize_keys: without factors the chain has fewer instructions
template <int kDk, int kGroups, bool kNormalize>
__global__ void __launch_bounds__(32 * (2 * kGroups + kLoadingWarps), 1)
    walk_kernel(Bf16Arguments a, Prepared prepared) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), first_column = int(blockIdx.x) * 16 * kGroups, N = prepared.N;
  const int columns = min(16 * kGroups, a.Dv - first_column), warp = int(threadIdx.x) / 32, group = warp % kGroups;
  auto& memory = *dynamic_shared<Memory<kDk, kGroups>>();

  if (warp < kGroups) {
    block_barrier();
    for (int n = 0; n < N; ++n) {
      block_barrier();
      auto& queries = memory.queries[n % kPipelineDepth<kDk>];
      auto& handover = memory.handover[n % 2][group];
      WarpColumns O = {};
      outputs<kDk>(O, SwizzledTile<kDk>{queries.Q}, handover.S, queries.P, handover.v_new);
      const int t = n * kChunk, column = hide_from_compiler(group) * 16;
      store_warp_output(a.o.row(hide_from_compiler(b), h, t) + first_column + column, a.o.stride_l, a.L - t,
                        columns - column, O, a.scale, reinterpret_cast<__nv_bfloat16*>(handover.v_new));
    }
  } else if (warp < 2 * kGroups) {
    WarpState<kDk> S = {};
    if (a.initial_state.data) {
      for_each_element<kDk>(S, a.initial_state, b, h, a.Dk, first_column + group * 16, a.Dv,
                            [](float& x, const float* address) { x = load_global(address); });
    }
    for (int n = 0; n < N; ++n) {
      block_barrier();
      auto& keys = memory.keys[n % kPipelineDepth<kDk>];
      auto& handover = memory.handover[n % 2][group];
      const SwizzledTile<kDk> K{keys.K};
      const float* factors = kNormalize ? keys.factors : nullptr;
      const int lane = fresh_lane();
      WarpFragments residual;
      subtract_product<kDk>(
          residual, SwizzledTile<64>{keys.V}, group * 16, K, S,
          [&](int d, const uint4& s) { handover.S[d * 32 + lane] = s; }, factors);
      add_v_new<kDk>(
          S, residual, keys.T, K, [&](int i, const uint4& v_new) { handover.v_new[i * 32 + lane] = v_new; }, factors);
    }
    block_barrier();
    if (a.final_state.data) {
      for_each_element<kDk>(S, a.final_state, b, h, a.Dk, first_column + group * 16, a.Dv,
                            [](float& x, float* address) { store_global(address, x); });
    }
  } else {
    const Loader<kDk, kGroups> loader{a, prepared, b, h, first_column, columns};
    // Starts one group of copies: what the chain needs at chunk n, and the outputs at chunk n - 1.
    const auto load = [&](int n) {
      if (n < N) loader.load_keys(memory.keys[n % kPipelineDepth<kDk>], n);
      if (n > 0 && n <= N) loader.load_queries(memory.queries[(n - 1) % kPipelineDepth<kDk>], n - 1);
      cp_async_commit();  // near the end an empty group keeps the count right
    };
    for (int n = 0; n < kPipelineDepth<kDk> - 1; ++n) load(n);
    for (int n = 0; n <= N; ++n) {
      cp_async_wait<kPipelineDepth<kDk> - 2>();
      block_barrier();
      load(n + kPipelineDepth<kDk> - 1);
    }
  }
}

template <int kDk, int kGroups>
void launch_walk(const Bf16Arguments& a, const Prepared& prepared) {
  const auto tiles = unsigned(ceil_div(a.Dv, 16 * kGroups));
  launch(a.normalize_keys ? walk_kernel<kDk, kGroups, true> : walk_kernel<kDk, kGroups, false>,
         {dim3(tiles, unsigned(a.H), unsigned(a.B)), 32u * (2 * kGroups + kLoadingWarps), sizeof(Memory<kDk, kGroups>)},
         a, prepared);
}

/// Groups of 16 columns per block: two while multiprocessors are idle, and if a chunk of four groups does not fit into
/// shared memory.
int select_groups(const Bf16Arguments& a) {
  const std::int64_t narrow = std::int64_t(a.B) * a.H * ceil_div(a.Dv, 32);
  const std::size_t wide = a.Dk <= 64 ? sizeof(Memory<64, 4>) : sizeof(Memory<128, 4>);
  const bool fits = a.Dk <= 128 && wide <= std::size_t(shared_memory_per_block());
  return !fits || narrow <= multiprocessor_count() ? 2 : 4;
}

}  // namespace

void specialized_warps(const Bf16Arguments& a) {
  const Prepared prepared = prepare(a);
  end_part("prepare");
  const int groups = select_groups(a);
  if (a.Dk <= 64) {
    groups == 2 ? launch_walk<64, 2>(a, prepared) : launch_walk<64, 4>(a, prepared);
  } else if (a.Dk <= 128) {
    groups == 2 ? launch_walk<128, 2>(a, prepared) : launch_walk<128, 4>(a, prepared);
  } else {
    launch_walk<256, 2>(a, prepared);
  }
  end_part("walk");
}

int specialized_warps_columns(const Bf16Arguments& a) {
  return 16 * select_groups(a);
}

}  // namespace tutorial::delta_rule
