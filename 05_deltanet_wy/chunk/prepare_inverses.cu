/// @file
/// The kernel that runs first in `segments`: it computes T of each chunk.
///
/// A block is one warpgroup, and has one chunk. It computes T as the warpgroups of `cluster` do (matrices.cuh),
/// from a tile of K that a bulk copy has brought, and a bulk copy stores it. A step of an inverse waits for the one
/// before, so a multiprocessor has several blocks at once.
///
/// Shapes: k [B, H, L, Dk] and beta [B, H, L] in; PreparedInverses out.
/// Resources: K, later T in the same place, and the blocks of the inverse: 26 KB of shared memory at Dk = 128.
/// Bytes: k and beta are read once; 192 bytes per position are written.
/// Source: flash-linear-attention, `solve_tril`, for the inverse in blocks of 16.

#include <cuda_runtime.h>

#include <algorithm>
#include <type_traits>

#include "05_deltanet_wy/chunk/matrices.cuh"
#include "05_deltanet_wy/chunk/prepare_inverses.hpp"
#include "05_deltanet_wy/chunk/split_triangle.cuh"
#include "05_deltanet_wy/chunk/warpgroup_products.cuh"
#include "common/ceil_div.hpp"
#include "common/device/early_start.cuh"
#include "common/device/launch.cuh"
#include "common/device/mbarrier.cuh"
#include "common/device/memory.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/workspace.hpp"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::delta_rule {
namespace {

using namespace tile;

/// A block's shared memory.
template <int kDk>
struct InverseTiles {
  PanelTile<kDk> K;
  SplitTriangle T;  ///< in the place of K

  static constexpr int kKeyBytes = 2 * kChunk * kDk;
  static constexpr int kTileBytes = std::max(kKeyBytes, int(SplitTriangle::Panel::kPanelBytes));
  static constexpr int kBytes = kTileBytes + MatrixGroup::kBytes;

  /// @param memory kBytes, aligned to 1024
  __device__ __forceinline__ explicit InverseTiles(unsigned char* memory)
      : K{reinterpret_cast<__nv_bfloat16*>(memory)}, T{{K.data}} {}
};

constexpr int kNoChunk = -1;

/// Where the chunks of a sequence begin.
struct ChunksOfSequence {
  static __device__ __forceinline__ int position(int n) { return n * kChunk; }
};

/// Where those of segments begin; an entry of the list may have none.
struct ChunksOfSegments {
  const int4* list;
  int chunks;  ///< of a segment

  __device__ __forceinline__ int position(int n) const {
    const int4 segment = load_global(list + n / chunks);
    return segment.x < 0 ? kNoChunk : segment.y + n % chunks * kChunk;
  }
};

/// Grid (N, H, B).
/// @param keys tiles of a chunk
/// @param out tiles of T
template <int kDk, class Chunks>
__global__ void __launch_bounds__(kWarpgroup, 5)
    prepare_inverses_kernel(Bf16Arguments a, const __grid_constant__ TensorMap keys,
                            const __grid_constant__ TensorMap out, Chunks chunks) {
  using Tiles = InverseTiles<kDk>;
  __shared__ Barrier full;
  const int b = int(blockIdx.z), h = int(blockIdx.y), n = int(blockIdx.x), begin = chunks.position(n);
  const bool is_first = threadIdx.x == 0;
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const Tiles tiles(memory);
  let_next_kernel_start();
  if (begin == kNoChunk) return;
  if (is_first) {
    full.init(1);
    fence_barrier_init();
    full.arrive_expect(Tiles::kKeyBytes);
    load_panels(tiles.K, keys, full, {.position = begin, .head = h, .batch = b});
  }
  const MatrixGroup group(0, memory + Tiles::kTileBytes);
  const int position = begin + group.position();
  const float beta = lane_index() < kBlock && position < a.L ? load_global(a.beta.row(b, h, position)) : 0.0f;
  __syncthreads();

  WarpgroupScores K_K;
  full.wait(0);
  wgmma_fence(K_K);
  start_scores(K_K, tiles.K, tiles.K);
  wgmma_commit();
  wgmma_wait<0>(K_K);
  SplitRow U = {};
  group.invert(U, K_K, beta);  // its barriers also say that no product reads K any more
  group.store(tiles.T, U);
  fence_async_proxy();
  __syncthreads();
  if (is_first) {
    store_tile(out, tiles.T.panel.data, {.position = n * kInverseRows, .head = h, .batch = b});
    commit_stores();
    wait_stores_read<0>();
  }
}

std::int64_t elements(const Bf16Arguments& a, std::int64_t N) {
  return std::int64_t(a.B) * a.H * N * kInverseRows * kChunk;
}

/// @param N chunks of a head
template <class Chunks>
PreparedInverses prepare(const Bf16Arguments& a, int N, const Chunks& chunks) {
  const PreparedInverses out{N, workspace<__nv_bfloat16>("delta_rule: tiles of T", std::size_t(elements(a, N)))};
  const auto start = [&]<int kDk>(std::integral_constant<int, kDk>) {
    launch(prepare_inverses_kernel<kDk, Chunks>,
           {dim3(unsigned(N), unsigned(a.H), unsigned(a.B)), kWarpgroup, std::size_t(InverseTiles<kDk>::kBytes)}, a,
           tile_map(a.k, tensor_sizes(a, a.Dk), kChunk), map_of(out, a), chunks);
  };
  a.Dk <= 64 ? start(std::integral_constant<int, 64>()) : start(std::integral_constant<int, 128>());
  return out;
}

int chunks_of(const PackedPlan& plan) {
  return plan.states * (plan.length / kChunk);
}

}  // namespace

PreparedInverses prepare_inverses(const Bf16Arguments& a) {
  return prepare(a, ceil_div(a.L, kChunk), ChunksOfSequence());
}

PreparedInverses prepare_inverses(const Bf16Arguments& a, const PackedPlan& plan) {
  return prepare(a, chunks_of(plan), ChunksOfSegments{plan.segments, plan.length / kChunk});
}

TensorMap map_of(const PreparedInverses& x, const Bf16Arguments& a) {
  const std::int64_t rows = std::int64_t(x.N) * kInverseRows;
  return tile_map(packed(x.tiles, a.H, rows, kChunk), {a.B, a.H, rows, kChunk}, kInverseRows);
}

std::int64_t prepared_inverses_memory(const Bf16Arguments& a) {
  return elements(a, ceil_div(a.L, kChunk)) * std::int64_t(sizeof(__nv_bfloat16));
}

std::int64_t prepared_inverses_memory(const Bf16Arguments& a, const PackedPlan& plan) {
  return elements(a, chunks_of(plan)) * std::int64_t(sizeof(__nv_bfloat16));
}

}  // namespace tutorial::delta_rule
