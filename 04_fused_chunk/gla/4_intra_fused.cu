/// @file
/// Stage 4, `intra_fused`: the walk computes the scores, too, and gives o itself.
///
/// Idea: whoever walks over a window has it on chip, and can score its pairs there: the scores go from registers
/// through shared memory into the next product. And if a block has all of Dk and not a slice of 64, what it computes
/// is no partial: o can be written at once, in bf16.
/// Mends: the scores and the fp32 partials, which stage 3 writes and reads again, are in no memory any more; two
/// launches are left. Same: what a window's products are, and what is prepared for them.
///
///   P_ti = scale sum_d q_td k_id 2^(sums_td - sums_id), i <= t         once for each 64 columns of v
///   o = q_g S + P v,   S = diag(2^sums_e) S + k_g^T v                  sums_e: the window's last row
///
/// Shapes: q, k, q_g, k_g [B, H, L, Dk], v, o [B, H, L, Dv] bf16; sums [B, H, L, Dk], S_0 and final_state [B, H, Dk,
/// Dv] fp32, in global memory. In shared memory a window of q, k, q_g, k_g, sums and v, and P [16, 16]: 28 KB at Dk =
/// 128. Who does what: block (x, h, b) has the 64 columns from 64 x on of v, o and S, and all of Dk: each of the four
/// warps 16 columns of S in its registers, 64 a thread at Dk = 128. 120 threads score a pair each.
/// Operations: as in stage 2, but the pairs once more for each 64 columns. Bytes: g, q and k once, 8 Dk written by the
/// first kernel and read by the walk, with q and k, once for each 64 columns; v and o once.
/// Limit: latency, more than before: there are fewer blocks, and each window's chain now has the pairs in it.
/// Needs: as stage 2. Weakness: the walk reads q and k in two forms, one of which it could make out of the other; and
/// between a window's loads and its products nothing overlaps.
/// Source: as stage 2; arXiv 2312.06635, algorithm 1.

#include <cuda_runtime.h>

#include "04_fused_chunk/gla/window.cuh"
#include "common/device/launch.cuh"
#include "common/parts.hpp"

namespace tutorial::fused_gla {
namespace {

/// A window in shared memory.
template <int kDk>
struct Tiles {
  SwizzledTile<kDk> Q, K, Q_g, K_g;
  SwizzledTile<kSlice> V;
  ScoreTile P;
  SumTile<kDk> sums;
  float* decay;  ///< [kDk]

  static constexpr int kHalves = kWindow * (4 * kDk + kSlice) + ScoreTile::kElements;
  static constexpr std::size_t kBytes =
      kHalves * sizeof(__nv_bfloat16) + (SumTile<kDk>::kElements + kDk) * sizeof(float);

  __device__ explicit Tiles(__nv_bfloat16* memory)
      : Q{memory},
        K{Q.data + kWindow * kDk},
        Q_g{K.data + kWindow * kDk},
        K_g{Q_g.data + kWindow * kDk},
        V{K_g.data + kWindow * kDk},
        P{V.data + kWindow * kSlice},
        sums{reinterpret_cast<float*>(P.data + ScoreTile::kElements)},
        decay(sums.data + SumTile<kDk>::kElements) {}
};

/// Grid (NV, H, B).
template <int kDk>
__global__ void __launch_bounds__(kThreads, kDk <= 64    ? 4
                                            : kDk <= 128 ? 3
                                                         : 2) intra_fused_kernel(HalfArguments a, Intermediates x) {
  const int b = int(blockIdx.z), h = int(blockIdx.y);
  const int j = int(blockIdx.x) * kSlice, columns = min(kSlice, a.Dv - j);
  const Tiles<kDk> tiles(dynamic_shared<__nv_bfloat16>());

  using Shape = WindowShape<kDk>;
  typename Shape::State S;
  const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) + j : nullptr;
  load_state<Shape>(S, start, a.initial_state.stride_l, a.Dk, columns);
  for (int t = 0; t < a.L; t += kWindow) {
    const int rows = min(kWindow, a.L - t);
    load_window(tiles.Q, a.q.row(b, h, t), a.q.stride_l, rows, a.Dk);
    load_window(tiles.K, a.k.row(b, h, t), a.k.stride_l, rows, a.Dk);
    load_window(tiles.Q_g, x.q_g.row(b, h, t), a.Dk, rows, a.Dk);
    load_window(tiles.K_g, x.k_g.row(b, h, t), a.Dk, rows, a.Dk);
    load_window(tiles.V, a.v.row(b, h, t) + j, a.v.stride_l, rows, columns);
    load_window(tiles.sums, x.sums.row(b, h, t), a.Dk, rows, a.Dk);
    __syncthreads();
    window_scores(tiles.Q, tiles.K, tiles.sums, a.scale,
                  [&](int row, int i, float score) { *tiles.P.at(row, i) = __float2bfloat16(score); });
    for (int d = int(threadIdx.x); d < kDk; d += kThreads) tiles.decay[d] = exp2f(*tiles.sums.at(rows - 1, d));
    Output O = {};
    add_from_state<kDk>(O, tiles.Q_g, S);
    __syncthreads();
    add_from_scores(O, tiles.P, tiles.V);
    decay_state<kDk>(S, tiles.decay);
    update_state<kDk>(S, tiles.K_g, tiles.V);
    for_each_pair(O, rows, columns, [&](int row, int column, const float* two) {
      store_global(reinterpret_cast<std::uint32_t*>(a.o.row(b, h, t + row) + j + column), pack(two[0], two[1]));
    });
    __syncthreads();
  }
  if (a.final_state.data) {
    store_state<Shape>(a.final_state.row(b, h, 0) + j, S, a.final_state.stride_l, a.Dk, columns);
  }
}

template <int kDk>
void walk(const HalfArguments& a, const Intermediates& x) {
  const dim3 grid(unsigned(slices(a.Dv)), unsigned(a.H), unsigned(a.B));
  launch(intra_fused_kernel<kDk>, {grid, kThreads, Tiles<kDk>::kBytes}, a, x);
}

}  // namespace

void intra_fused(const HalfArguments& a) {
  const Intermediates x = prepared(a);
  prepare(a, x);
  end_part("prepare");
  a.Dk <= 64 ? walk<64>(a, x) : a.Dk <= 128 ? walk<128>(a, x) : walk<256>(a, x);
  end_part("walk");
}

std::int64_t intra_fused_memory(const HalfArguments& a) {
  return prepared_bytes(a);
}

std::int64_t intra_fused_moved(const HalfArguments& a) {
  const std::int64_t positions = std::int64_t(a.B) * a.H * a.L;
  const std::int64_t keys = (2 + 2 + 2 + 2 + 4) * positions * a.Dk * slices(a.Dv);  // q, k, q_g, k_g, sums
  return prepare_moved(a) + keys + (2 + 2) * positions * a.Dv + state_bytes(a);     // v; o
}

}  // namespace tutorial::fused_gla
