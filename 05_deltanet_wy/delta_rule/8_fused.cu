/// @file
/// Stage 8, `fused`: two kernels, and of what lies between chunks nothing in memory.
///
/// Idea: W and U were there so that a chunk's U' = U - W S takes one product. But U - W S = T (V - K S): with T at hand
/// neither W nor U needs to exist, and K S shares the state's fragments with Q S. So what depends on the chunk alone is
/// T and P, 324 bytes a position, whatever the widths; and the walk has all the rest, the state in registers.
/// Mends: stage 7 writes W, U, U' and a state for each chunk, and reads them again. Same: prepare(), T, P.
///
///   V' = V - diag(f) K S,   U' = T V',   O = scale (Q S + P U'),   S = S + K^T U'          for each chunk
///
/// Shapes: q, k [B, H, L, Dk], v, o [B, H, L, Dv] bf16; beta [B, H, L], S_0 and final_state [B, H, Dk, Dv] fp32.
/// Who does what: block (tile, h, b) walks with 64 columns of Dv; each of its four warps has 16, and everything that
/// belongs to them: walk_chunk.cuh says why it need not talk to the others. One barrier a chunk, for the tiles, of which
/// the next chunk's are on their way.
/// Resources: 178 registers, 101 KB of shared memory at Dk = 128: two blocks a multiprocessor.
/// Operations: 6 Dk Dv + 2 (64 + 16) Dv a position on tensor cores, and prepare()'s.
/// Bytes: T, P, f, v and o once, q and k once for each tile of columns and once in prepare().
/// Limit: with few heads the walk: four products one after the other for each of the L / 64 chunks. A warp's factors B
/// come from shared memory, 60 KB a chunk at Dk = 128, which for four warps takes longer than their 928 mma.
/// Needs: Dk <= 256 and Dv <= 512, multiples of 16; rows aligned to 16 bytes.
/// Weakness: B H Dv / 64 blocks, however long the sequence is.
/// Source: the form T (V - K S): FlashKDA (Moonshot AI), whose kernels for a related operator prepare and walk so.

#include <cuda_runtime.h>

#include "02_chunkwise/async_tile.cuh"
#include "02_chunkwise/chunk_products.cuh"
#include "05_deltanet_wy/delta_rule/prepared.hpp"
#include "05_deltanet_wy/delta_rule/walk_chunk.cuh"
#include "common/device/cp_async.cuh"
#include "common/device/launch.cuh"
#include "common/device/opaque.cuh"

namespace tutorial::delta_rule {
namespace {

using namespace linear_attention;  // tiles and states

/// A chunk in shared memory.
template <class Shape>
struct Tiles {
  typename Shape::KeyTile Q, K;
  typename Shape::ValueTile V;
  uint4 *T, *P;  // [10, 32]
  float* factors;

  static constexpr int kBlockUnits = kLowerBlocks * 32;
  static constexpr int kBytes = 2 * kChunk * (2 * Shape::kDk + Shape::kDv) + 2 * 16 * kBlockUnits + 4 * kChunk;

  __device__ __forceinline__ explicit Tiles(unsigned char* memory)
      : Q{reinterpret_cast<__nv_bfloat16*>(memory)},
        K{Q.data + kChunk * Shape::kDk},
        V{K.data + kChunk * Shape::kDk},
        T(reinterpret_cast<uint4*>(V.data + kChunk * Shape::kDv)),
        P(T + kBlockUnits),
        factors(reinterpret_cast<float*>(P + kBlockUnits)) {}

  /// Starts the copies of chunk n.
  __device__ __forceinline__ void load(const HalfArguments& a, const Prepared& prepared, int b, int h, int n,
                                       int first_column, int columns) const {
    const int t = n * kChunk, rows = a.L - t, thread = opaque(int(threadIdx.x));
    load_tile_async(K, a.k.row(b, h, t), a.k.stride_l, rows, a.Dk);
    load_tile_async(Q, a.q.row(b, h, t), a.q.stride_l, rows, a.Dk);
    load_tile_async(V, a.v.row(b, h, t) + first_column, a.v.stride_l, rows, columns);
    const std::int64_t chunk = (std::int64_t(b) * a.H + h) * prepared.N + n;
    for (int i = thread; i < kBlockUnits; i += kThreads) {
      cp_async<16>(T + i, prepared.T + chunk * kBlockUnits + i);
      cp_async<16>(P + i, prepared.P + chunk * kBlockUnits + i);
    }
    if (thread < kChunk / 4) cp_async<16>(factors + 4 * thread, prepared.factors + chunk * kChunk + 4 * thread);
    cp_async_commit();
  }
};

constexpr int kStages = 2;  // sets of tiles

/// Grid (tiles of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1) walk_kernel(HalfArguments a, Prepared prepared) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), first_column = int(blockIdx.x) * Shape::kDv;
  const int columns = min(Shape::kDv, a.Dv - first_column);
  const auto tiles_of = [](int n) {
    return Tiles<Shape>(dynamic_shared<unsigned char>() + n % kStages * Tiles<Shape>::kBytes);
  };
  tiles_of(0).load(a, prepared, b, h, 0, first_column, columns);
  typename Shape::State S;
  load_state<Shape>(S, a.initial_state.data ? a.initial_state.row(b, h, 0) + first_column : nullptr,
                    a.initial_state.stride_l, a.Dk, columns);
  for (int n = 0; n < prepared.N; ++n) {
    cp_async_wait<0>();
    __syncthreads();
    if (n + 1 < prepared.N) tiles_of(n + 1).load(a, prepared, opaque(b), h, n + 1, first_column, columns);
    const Tiles<Shape> tiles = tiles_of(n);
    typename Shape::Output O = {};
    WideFragments replaced, written;
    replace_values<Shape>(replaced, O, tiles.Q, tiles.K, tiles.V, tiles.factors, S);
    solve(written, tiles.T, replaced);
    write_to_state<Shape>(S, tiles.K, written);
    add_from_writes<Shape>(O, tiles.P, written);
    const int t = n * kChunk;
    store_output<Shape>(a.o.row(opaque(b), h, t) + first_column, a.o.stride_l, a.L - t, columns, O, tiles.V,
                        [&](int) { return a.scale; });
  }
  if (a.final_state.data) {
    store_state<Shape>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk, columns);
  }
}

template <class Shape>
void walk(const HalfArguments& a, const Prepared& prepared) {
  const unsigned tiles = (unsigned(a.Dv) - 1) / Shape::kDv + 1;
  launch(walk_kernel<Shape>,
         {dim3(tiles, unsigned(a.H), unsigned(a.B)), kThreads, std::size_t(kStages) * Tiles<Shape>::kBytes}, a,
         prepared);
}

}  // namespace

void fused(const HalfArguments& a) {
  const Prepared prepared = prepare(a);
  if (a.Dk <= 64) {
    walk<ChunkShape<64, 64>>(a, prepared);
  } else if (a.Dk <= 128) {
    walk<ChunkShape<128, 64>>(a, prepared);
  } else {
    walk<ChunkShape<256, 64>>(a, prepared);
  }
}

std::string fused_limits(const HalfArguments& a) {
  return tensor_core_limits(a);
}

std::int64_t fused_memory(const HalfArguments& a) {
  return prepared_memory(a);
}

std::int64_t fused_moved(const HalfArguments& a) {
  const std::int64_t heads = std::int64_t(a.B) * a.H, tiles = (a.Dv - 1) / 64 + 1;
  const int states = (a.initial_state.data != nullptr) + (a.final_state.data != nullptr);
  return prepared_moved(a) + heads * a.L * (2 * 2 * a.Dk * tiles + 2 * 2 * a.Dv) + tiles * prepared_memory(a) +
         4 * states * heads * a.Dk * a.Dv;
}

}  // namespace tutorial::delta_rule
