/// @file
/// `anchored_pairs` of --backward: the pairs within a sub-chunk are products of the warpgroup, too.
///
/// Idea: within a sub-chunk each element of dq_t = sum_i R_ti k_i exp(g_(i+1)) ... exp(g_t) has a decay of its own, so
/// `warpgroup_gradients` computes its 120 pairs in fp32. With b the running sum of g in the sub-chunk and b_e its
/// last value,
///
///     exp(b_t - b_i) = exp(b_t - b_e) exp(b_e - b_i),   and exp(b_e - b_i) k_i is k~_i, which is there
///
/// So the end of the sub-chunk is an anchor for all of its pairs. A and B collect what comes from outside of the
/// sub-chunk: at each step the sums are multiplied by a decay, and a product is added. One more step makes A' of A and
/// B' of B, and what is left is a factor for each element (dq' and dk' lack the pair of a position with itself):
///
///     A' = D_r . A + R_rr k~_r    dq'_t = scale exp(b_t - b_e) . A'_t     of R_rr only what is below the diagonal
///     B' = D_r . B + R_rr^T q~_r  dk'_t = scale exp(-b_t) . B'_t
///
/// Both exponentials are at least 1. They do no harm as long as everything stays in the range of fp32, which is that of
/// bf16: D_r is at least 2^-80 in each column, as with gates of exp(-3.46). A sub-chunk that forgets more goes through
/// its pairs as before, with q and k from memory.
///
/// For dg the pairs of q . dq' and of k . dk' have to cancel, and they do: q_t . dq'_t - k_t . dk'_t is
/// scale exp(-b_e) . (q~_t . A'_t - k~_t . B'_t), and in the bracket a pair has the same three rounded factors twice.
/// R_tt, which has no decay, is added to dq'_t and dk'_t afterwards, with q and k recovered from q~ and k~. So q and k
/// are not loaded.
///
///     products           V S'^T   K~ S'  dO V^T | V dO^T  K~ Q~^T | P^T dO  R^T q~ | dO S^T | R k~ | elements
///     place of a state   S' ------------------- | S on its way ------------------- | S ---- |      | A, then dg
///     q~, k~             ------------------------------------------------------------------------- | then dq, dk
///     do, v              --------------------------------------------------------- | v: dv  | B
///
/// Grows out of: 7_warpgroup_gradients.cu; port to tensor cores: the pairs of a sub-chunk, from multiply-adds in fp32 to
/// products of the warpgroup
/// Improves on: in `warpgroup_gradients` a warp spends 40 % of its time on pairs, and loads q and k for them.
/// Unchanged: prepare(), the walks for the states, and all other products.
/// Equation: that of `materialized`. What is rounded: k~, q~ and R for the pairs of a sub-chunk, as for all others.
/// Shapes: as `warpgroup_gradients`.
/// Thread mapping: as `warpgroup_gradients`.
/// Synchronization: as `warpgroup_gradients`, without the barrier for q and k. R as left factors, computed early so that
/// dv can take the place of v, waits in shared memory, where each lane reads what it has stored itself.
/// Fences: as `warpgroup_gradients`.
/// Registers: 255 per thread.
/// Resources: 112 KB of shared memory at Dk = Dv = 128, two blocks per multiprocessor.
/// Work: as `materialized`, but per pair of positions in a sub-chunk 4 Dk operations on tensor cores (half of them for
/// dq, half for dk) in the place of 8 Dk in fp32; two exponentials per position and column.
/// Bytes: as `warpgroup_gradients`, without q and k in the last kernel, unless gates are strong.
/// Bound by: the memory's bandwidth on an H100.
/// Requires: what `warpgroup_gradients` requires.
/// Weakness: q~, k~ and the states of all chunks cross device memory. One column that forgets too much makes its whole
/// sub-chunk go through pairs in fp32.
/// Sources: as `materialized`; an anchor for a chunk: arXiv 2510.26692, section 3.1.

#include <cuda_runtime.h>

#include <algorithm>
#include <string>
#include <type_traits>

#include "03_gla/gla_backward/gradient_parts.cuh"
#include "03_gla/gla_backward/pairs_of_sub_chunk.cuh"
#include "03_gla/gla_backward/warpgroup_states.cuh"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/movmatrix.cuh"
#include "common/device/named_barrier.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::gla {
namespace {

/// Named barriers beside kKeysAreRead.
enum ReadBarrier : unsigned { kValuesAreRead = kKeysAreRead + 1, kOutputGradientsAreRead };

/// Shared memory of the kernel, for Dk and Dv up to kD.
template <int kD>
struct AnchoredTiles {
  PanelTile<kD, kD> state;                       ///< S'^T, then S^T
  PanelTile<kD> q, k, d_o, v;                    ///< q~, k~, do, v; dq, dk and dv take the places of q~, k~ and v
  FloatPanels<kChunk, kD> from_start, from_end;  ///< A and B, in the places of the state, and of do and v; dg that of A
  float* decays;                                 ///< [kDecayRows, kD]; then every other quarter of g
  float* gates;                                  ///< [kWarps, 4, kSliceWidth]: a quarter of g; see Gates
  float2* totals;                                ///< [kD / kSliceWidth, kWarps, 32]: sums for dg of each sub-chunk
  float* products;                               ///< [kSubChunks, 16, 16]: scale R_ti in row t, column i
  float* restart;                                ///< [kWarps, kD]: parts of W / scale

  static constexpr int kTileElements = kChunk * kD;
  static constexpr int kStateElements = std::max(kD, 2 * kChunk) * kD;
  static constexpr unsigned kTileBytes = 2 * kTileElements, kStateBytes = 2 * kD * kD;
  static constexpr int kQuarters = kWarps * 4 * kSliceWidth;  ///< elements of a quarter of all sub-chunks, a slice wide
  static constexpr int kDecayElements = std::max(kDecayRows * kD, kQuarters);
  static constexpr int kTotals = std::max(kWarps * kD, 3 * 128);
  static constexpr int kBytes = 2 * (kStateElements + 4 * kTileElements) +
                                4 * (kDecayElements + kQuarters + kTotals + kChunk * kSubChunk + kWarps * kD);

  /// @param memory kBytes, aligned to kTileAlignment
  __device__ __forceinline__ explicit AnchoredTiles(__nv_bfloat16* memory)
      : state{memory},
        q{memory + kStateElements},
        k{q.data + kTileElements},
        d_o{k.data + kTileElements},
        v{d_o.data + kTileElements},
        from_start{reinterpret_cast<float*>(memory)},
        from_end{reinterpret_cast<float*>(d_o.data)},
        decays(reinterpret_cast<float*>(v.data + kTileElements)),
        gates(decays + kDecayElements),
        totals(reinterpret_cast<float2*>(gates + kQuarters)),
        products(gates + kQuarters + kTotals),
        restart(products + kChunk * kSubChunk) {}

  /// The lane's part of R_rs as a left factor, s <= r: in the warp's own part of the gates, and in the totals.
  __device__ __forceinline__ uint4& factor(int r, int s) const {
    static_assert(sizeof(uint4[32]) * 2 == 4 * kQuarters / kWarps && sizeof(uint4[32]) * 3 <= 4 * kTotals);
    return reinterpret_cast<uint4*>(gates)[((s < 2 ? 2 * r : 12 - 2 * r) + s) * 32 + fresh_lane()];
  }
};

/// Whether no column forgets too much in a sub-chunk for an anchor at its end. @param decays of the sub-chunk, [kD]
template <int kD>
__device__ __forceinline__ bool has_anchor(const float* decays) {
  constexpr float kLeast = 0x1p-80f;
  bool allows = true;
#pragma unroll
  for (int d = 0; d < kD; d += 32) allows = allows && decays[d + fresh_lane()] >= kLeast;
  return __all_sync(kAllLanes, allows);
}

/// Writes the scores of a sub-chunk's own pairs, times a factor. Called by its warp.
__device__ __forceinline__ void put_own(float* to, const WarpgroupScores& scores, int s, float factor) {
  const int lane = fresh_lane();
  to += lane / 4 * kSubChunk + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    const float* two = scores + s * 8 + i;
    *reinterpret_cast<float2*>(to + i / 2 % 2 * 8 * kSubChunk + i / 4 * 8) =
        make_float2(factor * two[0], factor * two[1]);
  }
}

/// Makes a sub-chunk's own scores zero on the diagonal and above.
__device__ __forceinline__ void keep_pairs(WarpgroupScores& scores, int s) {
  const int lane = fresh_lane();
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int row = lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    scores[s * 8 + i] = column < row ? scores[s * 8 + i] : 0.0f;
  }
}

/// The transposed of a left factor of 16 columns.
__device__ __forceinline__ void load_transposed(std::uint32_t (&factor)[4], const uint4& x) {
  factor[0] = transpose_8x8(x.x), factor[1] = transpose_8x8(x.z), factor[2] = transpose_8x8(x.y),
  factor[3] = transpose_8x8(x.w);
}

/// All gradients of a chunk. Grid (N, H, B).
template <int kD>
__global__ void __launch_bounds__(kWarpgroup, 2)
    anchored_pairs_kernel(Bf16BackwardArguments a, Between between, const __grid_constant__ GradientMaps maps) {
  __shared__ Barrier end_full, rows_full, start_full;
  using Tiles = AnchoredTiles<kD>;
  const int b = int(blockIdx.z), h = int(blockIdx.y), n = int(blockIdx.x), N = between.prepared.N, t = n * kChunk;
  const int warp = uniform(warp_in_group()), first = t + warp * kSubChunk, rows = a.L - first;
  const int head = b * a.H + h;
  const std::int64_t chunk = std::int64_t(head) * N + n;
  auto* const memory = dynamic_shared<__nv_bfloat16, kTileAlignment>();
  const Tiles tiles(memory);
  const TileOrigin origin{.position = t, .head = h, .batch = b};
  if (threadIdx.x == 0) {
    for (Barrier* barrier : {&end_full, &rows_full, &start_full}) barrier->init(1);
    fence_barrier_init();
    end_full.arrive_expect(Tiles::kTileBytes + Tiles::kStateBytes);
    load_panels(tiles.v, maps.v, end_full, origin);
    wait_for_previous_kernel();
    load_panels(tiles.state, maps.dS, end_full, {.head = n + 1, .batch = head});
    rows_full.arrive_expect(3 * Tiles::kTileBytes);
    load_panels(tiles.k, maps.prepared_k, rows_full, origin);
    load_panels(tiles.d_o, maps.d_o, rows_full, origin);
    load_panels(tiles.q, maps.prepared_q, rows_full, origin);
  }
  wait_for_previous_kernel();
  const std::int64_t size = std::int64_t(a.Dk) * a.Dv;
  const StateUnits<kD> end(between.S + (std::int64_t(head) * (N + 1) + n + 1) * size, a.Dk, a.Dv);
  fill_decays(tiles, between.prepared.decays + chunk * kSubChunks * a.Dk, a.Dk);
  __syncthreads();
  const bool anchored = has_anchor<kD>(tiles.decays + warp * kD);  // the pairs of the warp's sub-chunk

  float from_end[kD / 2];
  {
    float dv[kD / 2];
    {
      KeyFragments<kD> keys;
      WarpgroupScores products;
      end_full.wait(0);
      wgmma_fence(from_end);
      start_reads<kD>(from_end, tiles.v, tiles.state);
      multiply_states(end, tiles);
      rows_full.wait(0);
      load_keys(keys, tiles, warp == 0 ? kLastThree : warp == 1 ? kLastTwo : warp == 2 ? 3 : kOne);
      wgmma_fence(dv, products, keys);
      const auto s = k_along_rows(tiles.state);
#pragma unroll
      for (int d = 0; d < kD; d += 16) wgmma<kD>(dv, keys[d / 16], s.along_k(d), d > 0);
      start_scores(products, tiles.d_o, tiles.v);
      wgmma_commit();
      wgmma_wait<0>(from_end, dv, products, keys);
#pragma unroll
      for (int s = 0; s < kSubChunks; ++s) {
        if (warp < s) continue;
        if (warp == s) {
          put_own(tiles.products + s * kSubChunk * kSubChunk, products, s, a.scale);
          keep_pairs(products, s);
        }
        std::uint32_t R[4];
        to_factor(R, products, s * kSubChunk, warp > s || anchored);
        tiles.factor(warp, s) = make_uint4(R[0], R[1], R[2], R[3]);
      }
    }
    __syncthreads();  // S' is no longer needed
    if (threadIdx.x == 0) {
      fence_async_proxy();  // S' has been read by ordinary loads
      start_full.arrive_expect(Tiles::kStateBytes);
      load_panels(tiles.state, maps.S, start_full, {.head = n, .batch = head});
    }

    std::uint32_t own_scores[4];  // P_rr^T
    {
      const int lane = fresh_lane();
      const auto* scores = reinterpret_cast<const std::uint32_t*>(
          between.prepared.scores + (chunk * kChunk + warp * kSubChunk + lane / 4) * kSubChunk + lane % 4 * 2);
#pragma unroll
      for (int i = 0; i < 4; ++i) own_scores[i] = load_for_update(scores + i % 2 * 8 * (kSubChunk / 2) + i / 2 * 4);
    }
    std::uint32_t R[kSubChunks][4], P[kSubChunks][4];  // R_sr^T and P_sr^T, zeros for s <= r, but P_rr^T
    {
      // The compiler would keep places of factors in registers from product to product.
      const Tiles again(memory + hide_from_compiler(0));
      const auto q = k_along_rows(again.q), k = k_along_rows(again.k);
      KeyFragments<kD> keys;
      WarpgroupScores products;
      SubChunkOutput of_1, of_2, of_3;
      load_keys(keys, tiles, warp == 0 ? kFirstTwo : warp == 1 ? 2 : kOne);
      wgmma_fence(products, of_3, keys);
      start_scores(products, again.v, again.d_o);
#pragma unroll
      for (int d = 0; d < kD; d += 16) {
        wgmma<kSubChunk>(of_3, keys[d / 16], q.along_mn(3 * kSubChunk).along_k(d), d > 0);
      }
      wgmma_commit();
      wgmma_wait<0>(products, of_3, keys);
#pragma unroll
      for (int s = 1; s < kSubChunks; ++s) to_factor(R[s], products, s * kSubChunk, warp < s);
      load_keys(keys, tiles, warp == 0 ? 1 : kOne);
      wgmma_fence(of_1, of_2, keys);
#pragma unroll
      for (int d = 0; d < kD; d += 16) {
        wgmma<kSubChunk>(of_1, k.along_k(d), q.along_mn(kSubChunk).along_k(d), d > 0);
        wgmma<kSubChunk>(of_2, keys[d / 16], q.along_mn(2 * kSubChunk).along_k(d), d > 0);
      }
      wgmma_commit();
      wgmma_wait<0>(of_1, of_2, keys);
      to_factor(P[1], of_1, 0, warp < 1);
      to_factor(P[2], of_2, 0, warp < 2);
      to_factor(P[3], of_3, 0, warp < 3);
#pragma unroll
      for (int s = 0; s < kSubChunks; ++s) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (s == 0) P[s][i] = 0;
          P[s][i] = warp == s ? own_scores[i] : P[s][i];
        }
      }
    }
    wgmma_fence(dv, P);
#pragma unroll
    for (int s = 0; s < kSubChunks; ++s) start_sub_chunk<kD>(dv, P[s], tiles.d_o, s);
    std::uint32_t own[4];
    load_transposed(own, tiles.factor(warp, warp));
#pragma unroll
    for (int s = kSubChunks - 1; s >= 0; --s) {
      std::uint32_t factor[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) factor[i] = warp == s ? own[i] : s > 0 ? R[s][i] : 0u;
      if (warp < s || (warp == s && anchored)) decay_columns<kD>(from_end, tiles.decays + s * kD);
      wgmma_fence(from_end, factor);
      start_sub_chunk<kD>(from_end, factor, tiles.q, s);
      wgmma_commit();
      wgmma_wait<0>(from_end, dv);
    }
#pragma unroll
    for (float& x : dv) x *= a.scale;
    wait_at_named_barrier(kValuesAreRead, kWarpgroup);  // v is no longer needed
    put_rows(tiles.v, dv);
    fence_async_proxy();
    __syncwarp();
    if (fresh_lane() == 0) {
#pragma unroll
      for (int column = 0; column < kD; column += 64) {
        store_tile(maps.dv, tiles.v.data + column / 64 * tiles.v.kPanelElements + warp * kSubChunk * 64,
                   {.column = column, .position = first, .head = h, .batch = b});
      }
      commit_stores();
    }
  }

  const auto gates = [&] { return Gates{a.g.row(b, h, first), a.g.stride_l, rows, a.Dk}; };
  constexpr int kPanels = kD / kSliceWidth;
  Two decays[kPanels];  // of the sub-chunk, for the lane's columns of each slice
  {
    float from_start[kD / 2];
    prefetch_rows<kD>(a.g, b, h, first, rows, a.Dk);
    if (!anchored) {
      prefetch_rows<kD>(a.q, b, h, first, rows, a.Dk);
      prefetch_rows<kD>(a.k, b, h, first, rows, a.Dk);
    }
    start_full.wait(0);
    wgmma_fence(from_start);
    start_reads<kD>(from_start, tiles.d_o, tiles.state);
    wgmma_commit();
    wgmma_wait<0>(from_start);
    if (fresh_lane() == 0) wait_stores_read<0>();
    wait_at_named_barrier(kOutputGradientsAreRead, kWarpgroup);  // do is no longer needed, and dv has left
    store_reads<kD>(tiles.from_end, from_end, a.scale);
    std::uint32_t R[kSubChunks][4];
#pragma unroll
    for (int s = 0; s < kSubChunks; ++s) {
      const uint4 x = warp >= s ? tiles.factor(warp, s) : uint4{};
      R[s][0] = x.x, R[s][1] = x.y, R[s][2] = x.z, R[s][3] = x.w;
    }
    __syncwarp();  // the factors are no longer needed
    gates().start(tiles, 0, 0);
#pragma unroll
    for (int s = 0; s < kSubChunks; ++s) {
      if (warp > s || (warp == s && anchored)) decay_columns<kD>(from_start, tiles.decays + s * kD);
      wgmma_fence(from_start, R[s]);
      start_sub_chunk<kD>(from_start, R[s], tiles.k, s);
      wgmma_commit();
      wgmma_wait<0>(from_start);
    }
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
      const float* of_lane = tiles.decays + warp * kD + panel * kSliceWidth + fresh_lane() * 2;
      convert(decays[panel], *reinterpret_cast<const float2*>(of_lane));
    }
    wait_at_named_barrier(kKeysAreRead, kWarpgroup);  // k~, S and the decays are no longer needed
    gates().start(tiles, 0, 1);
    store_reads<kD>(tiles.from_start, from_start, a.scale);
    __syncwarp();
  }

  const int lane = fresh_lane();
  const float* products = tiles.products + warp * kSubChunk * kSubChunk;
#pragma unroll 1
  for (int slice = 0; slice < a.Dk; slice += kSliceWidth) {
    const int panel = slice / kSliceWidth, d = slice + lane * 2;
    const int two = panel * tiles.q.kPanelElements + warp * kSubChunk * 64 + lane * 2;
    const int float_two =
        (slice / 32 + lane / 16) * tiles.from_end.kPanelElements + warp * kSubChunk * 32 + lane % 16 * 2;
    const auto in_row = [&](const PanelTile<kD>& tile, int i) {
      return reinterpret_cast<std::uint32_t*>(tile.data + (two ^ i % 8 * 8) + i * 64);
    };
    const auto in_float_row = [&](const FloatPanels<kChunk, kD>& tile, int i) {
      return reinterpret_cast<float2*>(const_cast<float*>(tile.data) + (float_two ^ i % 8 * 4) + i * 32);
    };
    Two total = {}, dg[kSubChunk];
    if (anchored) {
      const Two D = {panel == 0 ? decays[0][0] : decays[kPanels - 1][0],
                     panel == 0 ? decays[0][1] : decays[kPanels - 1][1]};
      const Two growth = {1 / D[0], 1 / D[1]}, end = {log2f(D[0]), log2f(D[1])};
      Two sum = {};
#pragma unroll
      for (int j = 0; j < kSubChunk; j += 4) {
        Two q[4], k[4], A[4], B[4];
        float2 quarter[4];  // of g
        gates().take(quarter, tiles, slice, j / 4);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          convert(q[i], *in_row(tiles.q, j + i));
          convert(k[i], *in_row(tiles.k, j + i));
          convert(A[i], *in_float_row(tiles.from_start, j + i));
          convert(B[i], *in_float_row(tiles.from_end, j + i));
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int t = j + i;
          const Two g = {base2(quarter[i].x), base2(quarter[i].y)};
          Two dq, dk;
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            sum[e] += g[e];
            const float own = products[t * (kSubChunk + 1)], from_start = A[i][e], from_end = B[i][e];
            // A' is as small as its factor is large, and so is B'. So nothing leaves the range on the way.
            dq[e] = ex2(sum[e] - end[e]) * (from_start + own * k[i][e]);
            dk[e] = ex2(-sum[e]) * (from_end + own * q[i][e]);
            // The last key has passed no gate.
            const float key = t == rows - 1 ? 0.0f : k[i][e];
            dg[t][e] = growth[e] * q[i][e] * from_start - growth[e] * key * from_end;
          }
          store_for_copies(in_row(tiles.q, t), packed_row(dq));
          store_for_copies(in_row(tiles.k, t), packed_row(dk));
        }
      }
#pragma unroll
      for (int i = kSubChunk - 1; i >= 0; --i) {
#pragma unroll
        for (int e = 0; e < 2; ++e) dg[i][e] = total[e] += dg[i][e];
      }
    } else {
      // As in `warpgroup_gradients`, with q and k from memory.
      Pairs pairs;
      float2 quarter[4];  // of g
      const auto raw = [&](const View<const __nv_bfloat16>& tensor, int i) {
        const auto* row = tensor.row(b, h, min(first + hide_from_compiler(i), a.L - 1)) + min(d, a.Dk - 2);
        return load_global(reinterpret_cast<const std::uint32_t*>(row));
      };
      const auto load = [&](int i, Two& q, Two& k, Two& gate_row) {
        if (i % 4 == 0) gates().take(quarter, tiles, slice, i / 4);
        convert(q, raw(a.q, i));
        convert(k, raw(a.k, i));
        gate_row[0] = gate(quarter[i % 4].x);
        gate_row[1] = gate(quarter[i % 4].y);
      };
      pairs.add(
          load, products, [&](int i) { return *in_float_row(tiles.from_start, i); },
          [&](int i, const Two& row, const Two& product) {
            store_for_copies(in_row(tiles.q, i), packed_row(row));
            *in_float_row(tiles.from_start, i) = float_row(product);
          });
#pragma unroll
      for (int i = kSubChunk - 1; i >= 0; --i) {
        Two q, k, full;
        convert(dg[i], *in_float_row(tiles.from_start, i));
        convert(q, raw(a.q, i));
        convert(k, i == rows - 1 ? 0u : raw(a.k, i));
        convert(full, *in_float_row(tiles.from_end, i));
        Two x = {pairs.dk[i][0], pairs.dk[i][1]};
        multiply_add(x, pairs.decays[i], full);
#pragma unroll
        for (int e = 0; e < 2; ++e) dg[i][e] = total[e] = (total[e] + dg[i][e]) - k[e] * x[e];
        multiply_add(x, products[i * kSubChunk + i], q);
        store_for_copies(in_row(tiles.k, i), packed_row(x));
      }
    }
    float2* here = tiles.totals + panel * kWarps * 32 + lane;
    here[warp * 32] = float_row(total);
    __syncthreads();
    Two after = {};
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float2 part = *reinterpret_cast<const float2*>(tiles.restart + w * kD + d);
      after[0] += part.x, after[1] += part.y;
    }
    after[0] *= a.scale, after[1] *= a.scale;
#pragma unroll
    for (int w = kWarps - 1; w > 0; --w) {
      const float2 later = here[w * 32];
      if (w > warp) after[0] += later.x, after[1] += later.y;
    }
#pragma unroll
    for (int i = 0; i < kSubChunk; ++i) {
      store_for_copies(in_float_row(tiles.from_start, i), make_float2(dg[i][0] + after[0], dg[i][1] + after[1]));
    }
    fence_async_proxy();
    __syncwarp();
    if (lane == 0) {
      TileOrigin to{.column = slice, .position = first, .head = h, .batch = b};
      const int rows_of_warp = panel * tiles.q.kPanelElements + warp * kSubChunk * 64;
      store_tile(maps.dq, tiles.q.data + rows_of_warp, to);
      store_tile(maps.dk, tiles.k.data + rows_of_warp, to);
      to.column *= 2;  // the map counts pairs of bf16
      const float* of_g = tiles.from_start.data + slice / 32 * tiles.from_start.kPanelElements + warp * kSubChunk * 32;
      store_tile(maps.dg, of_g, to);
      to.column += 64;
      store_tile(maps.dg, of_g + tiles.from_start.kPanelElements, to);
      commit_stores();
    }
  }
  if (lane == 0) wait_stores_read<0>();
}

}  // namespace

void anchored_pairs_backward(const Bf16BackwardArguments& a) {
  const Between between = prepare_gradients(a);
  start_states_walks<StateInRows>(a, between);
  const auto start = [&]<int kD>(std::integral_constant<int, kD>) {
    LaunchConfig config(dim3(unsigned(between.prepared.N), unsigned(a.H), unsigned(a.B)), kWarpgroup,
                        std::size_t(AnchoredTiles<kD>::kBytes));
    config.starts_early = true;
    launch(anchored_pairs_kernel<kD>, config, a, between, gradient_maps<kD>(a, between));
  };
  std::max(a.Dk, a.Dv) <= 64 ? start(std::integral_constant<int, 64>()) : start(std::integral_constant<int, 128>());
}

}  // namespace tutorial::gla
