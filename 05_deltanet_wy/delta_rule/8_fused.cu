/// @file
/// Stage 8, `fused`: two kernels, and of what lies between chunks nothing in memory.
///
/// Idea: W and U were there so that a chunk's U' = U - W S takes one product. But U - W S = T (V - K S): with T at hand
/// neither W nor U needs to exist, and K S shares the state's fragments with Q S. So what depends on the chunk alone is
/// T and P, 244 bytes a position, whatever the widths; and the walk has all the rest, the state in registers.
/// Mends: stage 7 writes W, U, U' and a state for each chunk, and reads them again. Same: prepare(), T, P.
///
///   V' = V + diag(f) K N,   U' = diag(f) T V',   -O = scale (Q N + P U'),   N = N + K^T U'         for each chunk
///
/// (with N = -S, and T and U' with the signs of prepared.hpp). Three of these products wait for each other, chunk after
/// chunk. O does not: nobody in the walk needs it. So there are three kinds of warps, which meet at one barrier a
/// chunk:
///
///     loading warps    k, v, T of chunk n + 2, q, P of n + 1, by cp.async         four
///     the chain        chunk n: V', U', N; leaves N and U' in shared memory       one for each 16 columns of Dv
///     outputs          chunk n - 1: O, to memory                                  one for each 16 columns
///
/// Shapes: q, k [B, H, L, Dk], v, o [B, H, L, Dv] bf16; beta [B, H, L], S_0 and final_state [B, H, Dk, Dv] fp32.
/// Who does what: block (tile, h, b) walks with 32 columns of Dv, or with 64 where heads fill the GPU and Dk <= 128.
/// (For Dk > 128 loads are a chunk less ahead, too.) A warp of the chain needs nothing of another one: walk_chunk.cuh
/// says why.
/// Resources: at Dk = 128 and 32 columns 186 registers, 8 warps, 190 KB of shared memory: one block a multiprocessor.
/// Operations: 6 Dk Dv + 3 (64 + 16) Dv a position on tensor cores, and prepare()'s.
/// Bytes: v and o once; q and k once for each tile of columns and once in prepare(); T, P and f written once and read
/// once for each tile.
/// Limit: with few heads the chain, at Dk = 128 168 mma of one warp for each of the L / 64 chunks. With many heads
/// shared memory: each warp reads its factors B for itself, 16 KB for a product with K.
/// Needs: Dk <= 256 and Dv <= 512, multiples of 16; rows aligned to 16 bytes; shared memory as above;
/// |k| < 1e18, so that k . k is finite.
/// Weakness: B H Dv / 32 blocks, however long the sequence is: segments would need each one's own transition matrix.
/// Source: the form T (V - K S), and a kernel that prepares before one that walks: FlashKDA (Moonshot AI), for a
/// related operator; warps with different tasks: chapter 04's `one_kernel`.

#include <cuda_runtime.h>

#include "02_chunkwise/async_tile.cuh"
#include "05_deltanet_wy/delta_rule/prepared.hpp"
#include "05_deltanet_wy/delta_rule/walk_chunk.cuh"
#include "common/device/block_barrier.cuh"
#include "common/device/cp_async.cuh"
#include "common/device/device.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/opaque.cuh"
#include "common/parts.hpp"

namespace tutorial::delta_rule {
namespace {

using linear_attention::load_columns_async;

constexpr int kBlockUnits = kLowerBlocks * 32;  // of T or P, 16 bytes each

/// Chunks in shared memory at once: one is used, the others are on their way.
template <int kDk>
constexpr int kStages = kDk <= 128 ? 3 : 2;

/// A block's shared memory.
/// @tparam kGroups of 16 columns; each has a warp for outputs and one in the chain
template <int kDk, int kGroups>
struct Memory {
  /// For the chain.
  struct Keys {
    uint4 T[2 * kBlockUnits];
    __nv_bfloat16 K[kChunk * kDk], V[kChunk * 64];
    float factors[kChunk];
  } keys[kStages<kDk>];
  /// For outputs.
  struct Queries {
    uint4 P[kBlockUnits];
    __nv_bfloat16 Q[kChunk * kDk];
  } queries[kStages<kDk>];
  /// From the chain to outputs: N before the chunk and U', as fragments.
  struct Shown {
    uint4 N[kDk / 16 * 32], U[kBlocks * 32];
  } shown[2][kGroups];
};

constexpr int kLoadingWarps = 4;

/// What they do.
template <int kDk, int kGroups>
struct Loader {
  static constexpr int kThreadCount = 32 * kLoadingWarps;

  const HalfArguments& a;
  const Prepared& prepared;
  int b, h, first_column, columns;

  __device__ __forceinline__ std::int64_t chunk(int n) const {
    return (std::int64_t(opaque(b)) * a.H + h) * prepared.N + n;
  }
  __device__ __forceinline__ int thread() const { return opaque(int(threadIdx.x)) % kThreadCount; }

  template <int kUnits>
  __device__ __forceinline__ void load_blocks(uint4* to, const uint4* from) const {
    static_assert(kUnits % (kThreadCount / 2) == 0);
#pragma unroll
    for (int i = 0; i < kUnits; i += kThreadCount) {
      if (i + kThreadCount <= kUnits || thread() < kThreadCount / 2) {
        cp_async<16>(to + i + thread(), from + i + thread());
      }
    }
  }
  template <int kWidth, int kColumns>
  __device__ __forceinline__ void load_rows(__nv_bfloat16* to, const View<const __nv_bfloat16>& from, int n, int column,
                                            int existing) const {
    const int t = n * kChunk;
    load_columns_async<kThreadCount, kWidth>(thread(), SwizzledTile<kColumns>{to}, from.row(opaque(b), h, t) + column,
                                             from.stride_l, a.L - t, existing);
  }
  template <class Keys>
  __device__ __forceinline__ void load_keys(Keys& keys, int n) const {
    load_rows<kDk, kDk>(keys.K, a.k, n, 0, a.Dk);
    load_rows<16 * kGroups, 64>(keys.V, a.v, n, first_column, columns);
    load_blocks<2 * kBlockUnits>(keys.T, prepared.T + chunk(n) * 2 * kBlockUnits);
    const int i = 4 * thread();
    if (i < kChunk) cp_async<16>(keys.factors + i, prepared.factors + chunk(n) * kChunk + i);
  }
  template <class Queries>
  __device__ __forceinline__ void load_queries(Queries& queries, int n) const {
    load_rows<kDk, kDk>(queries.Q, a.q, n, 0, a.Dk);
    load_blocks<kBlockUnits>(queries.P, prepared.P + chunk(n) * kBlockUnits);
  }
};

/// Calls f(element, address) for what the lane has of a state in global memory, N^T[g][p, p + 1].
template <int kDk, class Float, class F>
__device__ __forceinline__ void for_each_element(WarpState<kDk>& N, const View<Float>& state, int b, int h, int Dk,
                                                 int first_column, int Dv, F f) {
  const int lane = fresh_lane();
  Float* row = state.row(b, h, lane % 4 * 2) + first_column + lane / 4;
#pragma unroll
  for (int d = 0; d < kDk; d += 8) {
    if (d < Dk && first_column < Dv) {  // both widths are multiples of 16
#pragma unroll
      for (int i = 0; i < 4; ++i) f(N[d / 8][i], row + i % 2 * state.stride_l + i / 2 * 8);
    }
    row += 8 * state.stride_l;
  }
}

/// Grid (tiles of Dv, H, B). All warps meet at a barrier a chunk; while the chain is at chunk n, outputs are at n - 1.
template <int kDk, int kGroups>
__global__ void __launch_bounds__(32 * (2 * kGroups + kLoadingWarps), 1)
    walk_kernel(HalfArguments a, Prepared prepared) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), first_column = int(blockIdx.x) * 16 * kGroups, N = prepared.N;
  const int columns = min(16 * kGroups, a.Dv - first_column), warp = int(threadIdx.x) / 32, group = warp % kGroups;
  auto& memory = *dynamic_shared<Memory<kDk, kGroups>>();

  if (warp < kGroups) {
    block_barrier();
    for (int n = 0; n < N; ++n) {
      block_barrier();
      auto& queries = memory.queries[n % kStages<kDk>];
      auto& shown = memory.shown[n % 2][group];
      WarpColumns O = {};
      outputs<kDk>(O, SwizzledTile<kDk>{queries.Q}, shown.N, queries.P, shown.U);
      const int t = n * kChunk, column = opaque(group) * 16;
      store_warp_output(a.o.row(opaque(b), h, t) + first_column + column, a.o.stride_l, a.L - t, columns - column, O,
                        -a.scale, reinterpret_cast<__nv_bfloat16*>(shown.U));
    }
  } else if (warp < 2 * kGroups) {
    WarpState<kDk> state = {};
    if (a.initial_state.data) {
      for_each_element<kDk>(state, a.initial_state, b, h, a.Dk, first_column + group * 16, a.Dv,
                            [](float& x, const float* address) { x = -load_global(address); });
    }
    for (int n = 0; n < N; ++n) {
      block_barrier();
      auto& keys = memory.keys[n % kStages<kDk>];
      auto& shown = memory.shown[n % 2][group];
      const SwizzledTile<kDk> K{keys.K};
      const float* factors = a.normalize_keys ? keys.factors : nullptr;
      WarpFragments replaced;
      replace_values<kDk>(replaced, state, K, SwizzledTile<64>{keys.V}, group * 16, factors, shown.N);
      write_values<kDk>(state, replaced, keys.T, K, factors, shown.U);
    }
    block_barrier();
    if (a.final_state.data) {
      for_each_element<kDk>(state, a.final_state, b, h, a.Dk, first_column + group * 16, a.Dv,
                            [](float& x, float* address) { store_global(address, -x); });
    }
  } else {
    const Loader<kDk, kGroups> loader{a, prepared, b, h, first_column, columns};
    // What the chain needs at n and the outputs at n - 1, a group of copies.
    const auto load = [&](int n) {
      if (n < N) loader.load_keys(memory.keys[n % kStages<kDk>], n);
      if (n > 0 && n <= N) loader.load_queries(memory.queries[(n - 1) % kStages<kDk>], n - 1);
      cp_async_commit();  // an empty group near the end keeps the count right
    };
    for (int n = 0; n < kStages<kDk> - 1; ++n) load(n);
    for (int n = 0; n <= N; ++n) {
      cp_async_wait<kStages<kDk> - 2>();
      block_barrier();
      load(n + kStages<kDk> - 1);
    }
  }
}

template <int kDk, int kGroups>
void walk(const HalfArguments& a, const Prepared& prepared) {
  const unsigned tiles = (unsigned(a.Dv) - 1) / (16 * kGroups) + 1;
  launch(walk_kernel<kDk, kGroups>,
         {dim3(tiles, unsigned(a.H), unsigned(a.B)), 32u * (2 * kGroups + kLoadingWarps), sizeof(Memory<kDk, kGroups>)},
         a, prepared);
}

/// Groups of 16 columns of a block: two while multiprocessors are idle, and where a chunk of four does not fit into
/// shared memory.
int groups(const HalfArguments& a) {
  const std::int64_t narrow = std::int64_t(a.B) * a.H * ((a.Dv - 1) / 32 + 1);
  const std::size_t wide = a.Dk <= 64 ? sizeof(Memory<64, 4>) : sizeof(Memory<128, 4>);
  const bool fits = a.Dk <= 128 && wide <= std::size_t(shared_memory_per_block());
  return !fits || narrow <= multiprocessor_count() ? 2 : 4;
}

}  // namespace

void fused(const HalfArguments& a) {
  const Prepared prepared = prepare(a);
  end_part("prepare");
  if (a.Dk <= 64) {
    groups(a) == 2 ? walk<64, 2>(a, prepared) : walk<64, 4>(a, prepared);
  } else if (a.Dk <= 128) {
    groups(a) == 2 ? walk<128, 2>(a, prepared) : walk<128, 4>(a, prepared);
  } else {
    walk<256, 2>(a, prepared);
  }
  end_part("walk");
}

std::string fused_limits(const HalfArguments& a) {
  const std::size_t bytes = a.Dk <= 64    ? sizeof(Memory<64, 2>)
                            : a.Dk <= 128 ? sizeof(Memory<128, 2>)
                                          : sizeof(Memory<256, 2>);
  const std::string limits = tensor_core_limits(a);
  if (!limits.empty() || bytes <= std::size_t(shared_memory_per_block())) return limits;
  return "the chunks under way do not fit into a block's shared memory on this GPU";
}

std::int64_t fused_memory(const HalfArguments& a) {
  return prepared_memory(a);
}

std::int64_t fused_moved(const HalfArguments& a) {
  const std::int64_t heads = std::int64_t(a.B) * a.H, tiles = (a.Dv - 1) / (16 * groups(a)) + 1, L = a.L;
  const std::int64_t states = (a.initial_state.data != nullptr) + (a.final_state.data != nullptr);
  return prepared_moved(a) + tiles * prepared_memory(a) +
         heads * (tiles * L * 2 * 2 * a.Dk + L * 2 * 2 * a.Dv + states * 4 * std::int64_t(a.Dk) * a.Dv);
}

}  // namespace tutorial::delta_rule
