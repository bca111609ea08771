/// @file
/// Stage 6, `register_state`: the state stays in the registers of the warps.
///
/// Idea: the sums of K^T V come out of mma in an order in which they can be an operand of Q S. After S^T += V^T K lane 6
/// has S^T[1][4] and S^T[1][5] among its sums. For O += Q S lane 6 must hold S[4][1] and S[5][1] as an operand. These are
/// the same two numbers. Rounded and packed into one register, the sum is the operand. So S never moves: it is kept
/// transposed, as accumulators in fp32, from the first chunk to the last (common/tile/column_products.cuh).
/// Grows out of: 5_mma_products.cu
/// Improves on: in `mma_products` S passes through shared memory twice for each chunk, and takes 54 of its 106 KB.
/// Unchanged: Q K^T, also above its diagonal, tiles with padding, and the columns of each warp.
/// Equation: as `mma_products`
/// Shapes: in shared memory Q, K [64, Dk], V and P [64, 64] bf16. In registers S^T [16, Dk] and O [64, 16] of each warp,
/// fp32.
/// Thread mapping: as `mma_products`.
/// Resources: 52 KB of shared memory at Dk = 128. S and O take 96 registers of a thread.
/// Precision, Bytes: as `mma_products`.
/// Work: per position 4 Dk Dv operations for the state and 2 C Dk ceil(Dv / 64) + (C + 16) Dv for the scores. The
/// function for P V, add_from_scores(), leaves out the 6 of its 16 tiles above the diagonal. `mma_products` does not,
/// so the stages differ in this as well as in where S is.
/// Bound by: latency. The block loads a chunk, waits, and computes.
/// Requires: Dk and Dv multiples of 16, Dk <= 128, Dv <= 512; rows aligned to 16 bytes.
/// Weakness: the scores above the diagonal are computed and not used. Padding takes memory, and leaves gaps between the
/// rows, which a copy engine cannot write. `tensor_core` has neither flaw.
/// Sources: FlashAttention-2 (arXiv 2307.08691) uses the fact that an accumulator fits as an operand of the next product.

#include <cuda_runtime.h>

#include <cstdint>

#include "02_chunkwise/linear_attention.hpp"
#include "02_chunkwise/linear_attention/padded_tile.cuh"
#include "common/ceil_div.hpp"
#include "common/device/launch.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/mma.cuh"
#include "common/device/pack.cuh"
#include "common/tile/column_products.cuh"
#include "common/tile/load_state.cuh"
#include "common/tile/load_tile_sync.cuh"

namespace tutorial::linear_attention {
namespace {

using namespace tile;

constexpr int kColumns = 64;  // of Dv, per block
constexpr int kWarpColumns = kColumns / kWarps;

/// D += A B^T for kPairs results of mma side by side, by one warp; both factors are stored as rows of the kDepth numbers
/// that the sums run over.
template <int kDepth, int kPairs, class Left, class Right>
__device__ __forceinline__ void multiply(float (&D)[1][kPairs][4], const Left& A, const Right& B) {
  const int lane = int(lane_index());
#pragma unroll
  for (int k = 0; k < kDepth; k += 16) {
    std::uint32_t a[4];
    ldmatrix_x4(a, A.at(lane % 16, k + lane / 16 * 8));
#pragma unroll
    for (int n = 0; n < kPairs; ++n) {
      std::uint32_t b[2];
      ldmatrix_x2(b, B.at(n * 8 + lane % 8, k + lane / 8 % 2 * 8));
      mma_m16n8k16(D[0][n], a, b);
    }
  }
}

/// Calls f(row, column, pair) for each pair of neighbouring numbers that the lane holds of D.
template <int kTiles, int kPairs, class F>
__device__ __forceinline__ void for_each_pair(const float (&D)[kTiles][kPairs][4], F f) {
  const int lane = int(lane_index());
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kPairs; ++n) {
      f(m * 16 + lane / 4, n * 8 + lane % 4 * 2, float2{D[m][n][0], D[m][n][1]});
      f(m * 16 + lane / 4 + 8, n * 8 + lane % 4 * 2, float2{D[m][n][2], D[m][n][3]});
    }
  }
}

__device__ __forceinline__ void store_pair(__nv_bfloat16* address, float first, float second) {
  *reinterpret_cast<std::uint32_t*>(address) = pack(first, second);
}

template <int kDk>
struct PaddedShape : ChunkRegisters<kDk, kColumns> {
  using KeyTile = PaddedTile<kDk>;         ///< Q or K, [C, Dk]
  using ValueTile = PaddedTile<kColumns>;  ///< V, [C, 64]
  using ScoreTile = PaddedTile<kChunk>;    ///< P, [C, C]
};

template <int kDk>
constexpr int kElements = 2 * PaddedTile<kDk>::elements(kChunk) + PaddedTile<64>::elements(2 * kChunk);

/// Grid (tiles of Dv, H, B).
template <int kDk>
__global__ void __launch_bounds__(kThreads, 2) register_state_kernel(Bf16Arguments a) {
  using Shape = PaddedShape<kDk>;
  const int b = int(blockIdx.z), h = int(blockIdx.y), warp = int(threadIdx.x) / 32;
  const int first_column = int(blockIdx.x) * kColumns, columns = min(kColumns, a.Dv - first_column);
  const PaddedTile<kDk> Q{dynamic_shared<__nv_bfloat16>()}, K = Q.from(kChunk, 0);
  const PaddedTile<64> V{K.at(kChunk, 0)}, P = V.from(kChunk, 0);
  const int column = warp * kWarpColumns;  // the warp's first

  typename Shape::State S;
  const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) + first_column : nullptr;
  load_state<Shape>(S, start, a.initial_state.stride_l, a.Dk, columns);
  for (int t = 0; t < a.L; t += kChunk) {
    const int rows = a.L - t;
    load_tile(Q, a.q.row(b, h, t), a.q.stride_l, rows, a.Dk);
    load_tile(K, a.k.row(b, h, t), a.k.stride_l, rows, a.Dk);
    load_tile(V, a.v.row(b, h, t) + first_column, a.v.stride_l, rows, columns);
    __syncthreads();
    float scores[1][kChunk / 8][4] = {};
    typename Shape::Output O = {};
    multiply<kDk>(scores, Q.from(warp * 16, 0), K);
    for_each_pair(scores, [&](int row, int i, float2 p) {
      const int position = warp * 16 + row;
      store_pair(P.at(position, i), i <= position ? p.x : 0.0f, i + 1 <= position ? p.y : 0.0f);
    });
    add_from_state<Shape>(O, Q, S);
    __syncthreads();
    add_from_scores<Shape>(O, P, V);
    update_state<Shape>(S, K, V);
    for_each_pair(O, [&](int row, int j, float2 o) {
      auto* address = reinterpret_cast<std::uint32_t*>(a.o.row(b, h, t + row) + first_column + column + j);
      if (row < rows && column + j < columns) store_global(address, pack(a.scale * o.x, a.scale * o.y));
    });
    __syncthreads();
  }
  if (a.final_state.data) {
    store_state<Shape>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk, columns);
  }
}

template <int kDk>
void start(const Bf16Arguments& a) {
  const dim3 grid(unsigned(ceil_div(a.Dv, kColumns)), unsigned(a.H), unsigned(a.B));
  const std::size_t bytes = kElements<kDk> * sizeof(__nv_bfloat16);
  launch(register_state_kernel<kDk>, {grid, kThreads, bytes}, a);
}

}  // namespace

void register_state(const Bf16Arguments& a) {
  a.Dk <= 64 ? start<64>(a) : start<128>(a);
}

}  // namespace tutorial::linear_attention
