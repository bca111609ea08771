/// @file
/// `warpgroups`: gates in the kernels of `longer_chunks`, and dg across pairs of chunks.
///
/// Idea: `longer_chunks` of `delta_rule` has everything that gates need. Its walks hold sums in registers between two
/// products, where factors of positions multiply them. Its last kernel has S and dS of a pair of chunks in shared
/// memory, and a warpgroup has all columns of its rows of dQ and dK in registers: the products of rows for dg are sums
/// over what a thread has, and over four lanes.
///
/// dK = reading + writing, and in dg they have opposite signs. So the kernel takes x = k . reading when the sums
/// contain reading alone, and y = k . (reading + writing) at the end: k . (reading - writing) = 2 x - y.
///
///     dQ       dO S^T, D_q | + Y K | q . dq | + y_t k_t | to memory
///     dK       dV S^T, D_k | + Z K | x | + v_new dS^T, D_e | + Y^T Q | + Z^T K | y | + y_t q_t | to memory
///
/// The pairs (t, t) come after these products, so that they never are in dg; nor is what the last position of all writes:
/// there dg takes x alone. All else that x and y have in common is in dg, or cancels but for errors of fp32.
///
/// What is added up to dg goes as far as a pair, 128 positions. The formulas of `tensor_core` hold for a chunk of any
/// length: S is the state before the pair, dS the one after it, and a pair of positions is in dg wherever both are in
/// the same pair of chunks. The sums b_t go from the start of a pair to its end. With all gates at their least, 2^-127,
/// they reach -16256, where neighbouring fp32 numbers are 2^-10 apart: a decay is then off by 2^-9 at the very worst, as
/// much as what bf16 does to it.
///
/// With the sums of gates and the products of rows, the two warpgroups' instructions do not fit into the instruction
/// cache any more, if each has its own, as in `longer_chunks`. So both run the same ones, with the number of the chunk
/// as a variable.
/// Improves on: in `tensor_core` each warp of a walk reads all of K, Q, T and P of a chunk as fragments; S and dS of
/// every chunk cross memory; the last kernel waits for all tiles of a chunk before it computes.
/// Unchanged: what is rounded, the terms of dg, and the roles of `longer_chunks`.
/// Equation: that of `tensor_core`, with chunks of 128 in the last kernel. dq, dk and dg are computed divided by scale.
/// Shapes: those of `longer_chunks`; g, dg [B, H, L] fp32; decays and f as prepare_tiles() leaves them.
/// Thread mapping: the walks as in `longer_chunks`, but a whole warp loads tiles and decays. In the last kernel, warp 0
/// of warpgroup 0 loads, warp 1 adds up gates, warp 2 adds up dg; warpgroups 1 and 2 have 64 of the positions each.
/// Synchronization: that of `longer_chunks`; a pair of barriers for the sums of gates, two pairs of chunks deep, and one
/// for the row products.
/// Resources: 227 KB of shared memory at Dk = Dv = 128, all that a block can have.
/// Work: that of `longer_chunks`; 280 ex2 and 10 Dk multiply-adds per position in fp32.
/// Bytes: per position at Dk = Dv = 128, 920 in prepare_tiles(), 1292 and 1676 in the walks, if the tiles of Dv share
/// what they read, and 2324 in the last kernel: 6.2 KB.
/// Bound by: the memory's bandwidth and the chain in the walks; latency in the last kernel, whose two warpgroups issue in
/// a third of the clocks.
/// Requires: compute capability 9.0, Dk and Dv multiples of 16, up to 128, tensors that a tensor map can describe.
/// Weakness: most tiles of the last kernel are read until the end of a pair, so those of the next pair come late. There
/// are two blocks per head and tile of Dv in the walks, so fewer than 33 heads of 128 columns leave multiprocessors idle.
/// Sources: as `longer_chunks` and `tensor_core`.

#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "05_deltanet_wy/delta_rule_backward/dispatch/gradient_pairs.cuh"
#include "05_deltanet_wy/delta_rule_backward/dispatch/requirements.hpp"
#include "05_deltanet_wy/delta_rule_backward/dispatch/segmented_walks.cuh"
#include "05_deltanet_wy/delta_rule_backward/dispatch/segments.hpp"
#include "05_deltanet_wy/gated_delta_rule/prepare_gated.hpp"
#include "05_deltanet_wy/gated_delta_rule/prepare_gated_tiles.hpp"
#include "05_deltanet_wy/gated_delta_rule/running_sums.cuh"
#include "05_deltanet_wy/gated_delta_rule_backward.hpp"
#include "05_deltanet_wy/gated_delta_rule_backward/dispatch/forward_arguments.hpp"
#include "common/ceil_div.hpp"
#include "common/device/bulk_copy.cuh"
#include "common/device/device.hpp"
#include "common/device/early_start.cuh"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/launch.cuh"
#include "common/device/mbarrier.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/registers.cuh"
#include "common/device/workspace.hpp"
#include "common/parts.hpp"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::gated_delta_rule {
namespace {

using namespace delta_rule;  // walks, and pairs of chunks
using namespace tile;

/// What the last kernel knows of a pair's positions, in shared memory.
struct Positions {
  float sums[kPair];     ///< b of the pair
  float factors[kPair];  ///< f

  /// The decay from the start of the pair to position t.
  __device__ __forceinline__ float from_start(int t) const { return ex2(sums[t]); }
  /// From position i to the end of the pair.
  __device__ __forceinline__ float to_end(int i) const { return ex2(sums[kPair - 1] - sums[i]); }
};

/// What the warpgroups pass on for dg, divided by scale.
struct RowProducts {
  float of_rows[kPair];  ///< q . dq + k . (reading - writing)
  float of_pair[8];      ///< a warp's part of the terms that all positions have
};

constexpr int kPositionsDepth = 2;

/// The barriers of the last kernel.
struct PairBarriers : GradientBarriers {
  Barrier positions_full[kPositionsDepth], positions_empty[kPositionsDepth];
  Barrier products_full[1], products_empty[1];
};

/// The thread's two rows of a gradient, for what multiplies rows.
using TwoRows = float[2];

/// Multiplies each row by its factor.
template <int kSums>
__device__ __forceinline__ void scale_rows(float (&O)[kSums], const TwoRows& factors) {
#pragma unroll
  for (int i = 0; i < kSums; ++i) O[i] *= factors[i / 2 % 2];
}

/// Calls f(row, two elements of O, two of X) for all pairs of elements that the thread has; row is 0 or 1.
/// @param first the row of X that belongs to the warpgroup's first one
template <int kDk, class F>
__device__ __forceinline__ void for_each_pair(float (&O)[kDk / 2], const PanelTile<kDk, kPair>& X, int first, F f) {
  // Otherwise the compiler would keep the elements of X in registers for the next call.
  const int corner = hide_from_compiler(X.unit(first + wgmma_row(0), 0)), column = int(lane_index()) % 4 * 2;
#pragma unroll
  for (int i = 0; i < kDk / 2; i += 2) {
    const int row = i / 2 % 2;
    const auto* place = X.data + X.advance(corner, row * 8, i / 4 * 8) + column;
    f(row, O + i, unpack(*reinterpret_cast<const std::uint32_t*>(place)));
  }
}

/// The sums over the four lanes of a row.
__device__ __forceinline__ void sum_rows(TwoRows& x) {
  x[0] = warp_sum<4>(x[0]);
  x[1] = warp_sum<4>(x[1]);
}

/// The products of the rows of O and X. All four lanes of a row get them.
template <int kDk>
__device__ __forceinline__ void multiply_rows(TwoRows& products, float (&O)[kDk / 2], const PanelTile<kDk, kPair>& X,
                                              int first) {
  products[0] = products[1] = 0;
  for_each_pair<kDk>(O, X, first, [&](int row, const float* o, float2 x) { products[row] += o[0] * x.x + o[1] * x.y; });
  sum_rows(products);
}

/// Each row of O += its factor times that of X.
template <int kDk>
__device__ __forceinline__ void add_rows(float (&O)[kDk / 2], const TwoRows& factors, const PanelTile<kDk, kPair>& X,
                                         int first) {
  for_each_pair<kDk>(O, X, first, [&](int row, float* o, float2 x) {
    o[0] += factors[row] * x.x;
    o[1] += factors[row] * x.y;
  });
}

/// y = the scores times their decays, rounded, and zeros unless one position is before the other. Rows are positions of
/// the pair from `first_row` on, columns those from `first_column` on.
/// @tparam kIsTransposed whether the rows are the earlier positions
/// @tparam kIsZ whether scores are also multiplied by `factor` and the later position's f
template <bool kIsTransposed, bool kIsZ>
__device__ __forceinline__ void decay_scores(WarpgroupFragments& y, WarpgroupScores& scores, const Positions& at,
                                             int first_row, int first_column, float factor = 1) {
  first_row = hide_from_compiler(first_row);  // the decays are computed again for the next scores, not kept
  TwoRows of_rows, later;
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const int p = first_row + wgmma_row(2 * row);
    of_rows[row] = at.sums[p];
    later[row] = kIsZ && !kIsTransposed ? factor * at.factors[p] : 1;
  }
  const int first = first_column + wgmma_column(0), distance = first - first_row - wgmma_row(0);
#pragma unroll
  for (int i = 0; i < kChunk / 2; i += 4) {
    const float2 b = *reinterpret_cast<const float2*>(at.sums + first + i * 2);
    float2 f = make_float2(1, 1);
    if (kIsZ && kIsTransposed) f = *reinterpret_cast<const float2*>(at.factors + first + i * 2);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float here = of_rows[e / 2], there = e % 2 ? b.y : b.x;
      const int after = distance + i * 2 + e % 2 - e / 2 * 8;  // the column's position, seen from the row's
      float decay = ex2(kIsTransposed ? there - here : here - there);
      if (kIsZ) decay *= kIsTransposed ? factor * (e % 2 ? f.y : f.x) : later[e / 2];
      scores[i + e] = (kIsTransposed ? after > 0 : after < 0) ? decay * scores[i + e] : 0;
    }
  }
  round_columns(y, scores);
}

/// The products of the elements of 16 bytes.
__device__ __forceinline__ float dot(const uint4& x, const uint4& y) {
  const auto two = [](std::uint32_t x, std::uint32_t y) {
    const float2 a = unpack(x), b = unpack(y);
    return a.x * b.x + a.y * b.y;
  };
  return two(x.x, y.x) + two(x.y, y.y) + two(x.z, y.z) + two(x.w, y.w);
}

/// The thread's part of <S, dS>, of 256 threads. @param thread the number of this one
template <int kDk, int kDv>
__device__ __forceinline__ float product_of_states(const PanelTile<kDk, kDv>& S, const PanelTile<kDk, kDv>& dS,
                                                   int thread) {
  float sum = 0;
#pragma unroll 2  // registers are scarce here
  for (int unit = 0; unit < kDk * kDv / 8; unit += 2 * kWarpgroup) {
    sum += dot(reinterpret_cast<const uint4*>(S.data)[unit + thread],
               reinterpret_cast<const uint4*>(dS.data)[unit + thread]);
  }
  return sum;
}

/// dQ, dK and dbeta of one chunk of each pair, and its row products, by a warpgroup. Both warpgroups run the same
/// instructions: with instructions of their own they would need 160 KB of them, more than a multiprocessor keeps.
/// @param group the chunk, 0 or 1, which the compiler knows to be the same in a warp
template <int kDk, int kDv>
__device__ __forceinline__ void compute_gradients(const Bf16BackwardArguments& g, const GradientMaps& maps,
                                                  __nv_bfloat16* memory, PairBarriers& barriers,
                                                  const Positions* positions, RowProducts& products_of_pair,
                                                  const Pairs& pairs, int group) {
  const int own_row = group * kChunk;
  const float minus = -1 / g.scale;
  // The compiler would keep the places of all factors in registers from product to product.
  const auto tiles = [&] { return GradientTiles<kDk, kDv>(memory + hide_from_compiler(0)); };
  auto ring = Ring<1>::consumer();  // all places are in the same phase, but kDS,
  auto ring_of_dS = ring;           // which errors of v_new take first, where there are any
  auto positions_ring = Ring<kPositionsDepth>::consumer();
  auto products_ring = Ring<1>::producer();
  const auto wait = [&](Place place) { ring.wait(barriers.full + place); };
  const auto release = [&](Place place) {
    if (lane_index() == 0) barriers.empty[place].arrive();
  };
  const auto release_stored = [&](Place place) {  // after the copy that store_gradient() has started
    if (threadIdx.x % kWarpgroup == 0) wait_stores_read<0>();
    release(place);
  };
  // One lane of a row keeps the sum of its products in shared memory. In a register the compiler would put the sum off
  // until the end of the pair, and keep what it is computed from until then.
  // What the last position of all writes passes no gate: `of_last` is its factor.
  int last = 0;  // that position, seen from the pair's first
  const auto pass_on = [&](const TwoRows& products, float factor, float of_last, bool is_first = false) {
    if (lane_index() % 4 != 0) return;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const int p = own_row + wgmma_row(2 * row);
      float& sum = products_of_pair.of_rows[p];
      sum = (is_first ? 0 : sum) + (p == last ? of_last : factor) * products[row];
    }
  };
  for (int number = int(blockIdx.x); number < pairs.all; number += int(gridDim.x)) {
    const Pair pair = pairs[number];
    last = g.L - 1 - pair.first;
    float dQ[kDk / 2], dK[kDk / 2];  // divided by scale; dK is reading at first
    WarpgroupScores scores;
    WarpgroupFragments y;

    wait(kS);
    wait(kDO);
    wgmma_fence(dQ);
    start_product_with_state<kDk, kDv>(dQ, k_along_rows(tiles().dO).along_mn(own_row), tiles().S, false);
    wgmma_commit();
    positions_ring.wait(barriers.positions_full);
    const Positions& at = positions[positions_ring.stage()];
    TwoRows decays, own;  // own: y_t
#pragma unroll
    for (int row = 0; row < 2; ++row) decays[row] = at.from_start(own_row + wgmma_row(2 * row));
    wait(kV);
    wait(kK);
    wgmma_wait<0>(dQ);
    scale_rows(dQ, decays);
    for (int other = 0; other <= group; ++other) {  // Y K
      wgmma_fence(scores);
      start_scores_of_rows<kDv>(scores, tiles().dO, own_row, tiles().V, other * kChunk);
      wgmma_commit();
      wgmma_wait<0>(scores);
      diagonal_of(own, scores);  // in the end those of the own chunk
      decay_scores<false, false>(y, scores, at, own_row, other * kChunk);
      wgmma_fence(dQ, y);
      start_product_with_rows<kDk>(dQ, y, tiles().K, other * kChunk);
      wgmma_commit();
      wgmma_wait<0>(dQ);
    }
    // Read here: whoever tells the next pair's waits for one lane of each warp, long after this.
    const unsigned alike = unsigned(barriers.alike[0]) | unsigned(barriers.alike[1]) << 1;
    const auto is_alike = [&](int chunk) { return (alike >> chunk & 1) != 0; };
    if (alike) {  // what rounding leaves out of Y
#pragma unroll 1
      for (int other = 0; other <= group; ++other) {
        if (!is_alike(other)) continue;
        wgmma_fence(scores);
        start_scores_of_rows<kDv>(scores, tiles().dO, own_row, tiles().V, other * kChunk);
        wgmma_commit();
        wgmma_wait<0>(scores);
        decay_scores<false, false>(y, scores, at, own_row, other * kChunk);
        keep_errors(scores);
        round_columns(y, scores);
        wgmma_fence(dQ, y);
        start_product_with_rows<kDk>(dQ, y, tiles().K, other * kChunk);
        wgmma_commit();
        wgmma_wait<0>(dQ);
      }
    }
    wait(kDV);
    wgmma_fence(dK);
    start_product_with_state<kDk, kDv>(dK, k_along_rows(tiles().dV).along_mn(own_row), tiles().S, false);
    wgmma_commit();
#pragma unroll
    for (int row = 0; row < 2; ++row) decays[row] *= minus * at.factors[own_row + wgmma_row(2 * row)];
    wgmma_wait<0>(dK);
    scale_rows(dK, decays);
    wait(kQ);
    products_ring.wait(barriers.products_empty);
    TwoRows products;
    if (alike) {  // what rounding leaves out of v_new
      ring_of_dS.wait(barriers.full + kDS);
#pragma unroll 1
      for (int other = 0; other <= group; ++other) {
        if (!is_alike(other)) continue;
        wgmma_fence(scores);
        start_scores_of_rows<kDv>(scores, tiles().dV, own_row, tiles().V_errors, other * kChunk);
        wgmma_commit();
        wgmma_wait<0>(scores);
        decay_scores<false, true>(y, scores, at, own_row, other * kChunk, minus);
        wgmma_fence(dK, y);
        start_product_with_rows<kDk>(dK, y, tiles().K, other * kChunk);
        wgmma_commit();
        wgmma_wait<0>(dK);
      }
      // What dK gets of writing here would count with reading, as 2 - 1, and is to count as -1.
      multiply_rows<kDk>(products, dK, tiles().K, own_row);
      pass_on(products, 2, 1, true);
#pragma unroll 1
      for (int other = is_alike(group) ? group : 2; other < 2; ++other) {
        wgmma_fence(scores);
        start_scores_of_rows<kDv>(scores, tiles().V_errors, own_row, tiles().dO, other * kChunk);
        wgmma_commit();
        wgmma_wait<0>(scores);
        decay_scores<true, false>(y, scores, at, own_row, other * kChunk);
        wgmma_fence(dK, y);
        start_product_with_rows<kDk>(dK, y, tiles().Q, other * kChunk);
        wgmma_commit();
        wgmma_wait<0>(dK);
        wgmma_fence(scores);
        start_scores_of_rows<kDv>(scores, tiles().V_errors, own_row, tiles().dV, other * kChunk);
        wgmma_commit();
        wgmma_wait<0>(scores);
        decay_scores<true, true>(y, scores, at, own_row, other * kChunk, minus);
        wgmma_fence(dK, y);
        start_product_with_rows<kDk>(dK, y, tiles().K, other * kChunk);
        wgmma_commit();
        wgmma_wait<0>(dK);
      }
      multiply_rows<kDk>(products, dK, tiles().K, own_row);
      pass_on(products, -2, -1);
#pragma unroll 1
      for (int other = 0; other <= group; ++other) {
        if (!is_alike(other)) continue;
        wgmma_fence(scores);
        start_scores_of_rows<kDv>(scores, tiles().dO, own_row, tiles().V_errors, other * kChunk);
        wgmma_commit();
        wgmma_wait<0>(scores);
        if (other == group) {
          TwoRows errors;
          diagonal_of(errors, scores);
          own[0] += errors[0];
          own[1] += errors[1];
        }
        decay_scores<false, false>(y, scores, at, own_row, other * kChunk);
        wgmma_fence(dQ, y);
        start_product_with_rows<kDk>(dQ, y, tiles().K, other * kChunk);
        wgmma_commit();
        wgmma_wait<0>(dQ);
      }
      release(kDS);
      ring_of_dS.advance();
    }
    multiply_rows<kDk>(products, dQ, tiles().Q, own_row);
    pass_on(products, 1, 1, alike == 0);
    sum_rows(own);
    add_rows<kDk>(dQ, own, tiles().K, own_row);
    ring_of_dS.wait(barriers.full + kDS);
    float of_pair =
        at.from_start(kPair - 1) * product_of_states<kDk, kDv>(tiles().S, tiles().dS, int(threadIdx.x) - kWarpgroup);
    end_reads_of(kS, group);
    float betas[2];
    load_betas(betas, g, pair.b, pair.h, pair.first + own_row);

    TwoRows diagonal;
    for (int other = 0; other <= group; ++other) {  // -Z K
      wgmma_fence(scores);
      start_scores_of_rows<kDv>(scores, tiles().dV, own_row, tiles().V, other * kChunk);
      wgmma_commit();
      wgmma_wait<0>(scores);
      diagonal_of(diagonal, scores);
      decay_scores<false, true>(y, scores, at, own_row, other * kChunk, minus);
      wgmma_fence(dK, y);
      start_product_with_rows<kDk>(dK, y, tiles().K, other * kChunk);
      wgmma_commit();
      wgmma_wait<0>(dK);
      if (!is_alike(other)) continue;
      keep_errors(scores);
      round_columns(y, scores);
      wgmma_fence(dK, y);
      start_product_with_rows<kDk>(dK, y, tiles().K, other * kChunk);
      wgmma_commit();
      wgmma_wait<0>(dK);
    }
    // The first chunk has one product of scores before this, the second one two before it says that it needs S no longer.
    wait_for_reads_of(kS, group);
    store_gradient<kDk>(tiles().dQ, dQ, g.scale, maps.dq, pair, group, fresh_lane());
    sum_rows(diagonal);
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const int p = own_row + wgmma_row(2 * row), t = pair.first + p;
      if (lane_index() / 8 != lane_index() % 4 || t >= g.L) continue;  // the lanes with the betas
      const float beta = fmaxf(betas[row], kLeastBeta);
      store_global(g.dbeta.row(pair.b, pair.h, t), diagonal[row] / (at.factors[p] * beta * beta));
    }
    multiply_rows<kDk>(products, dK, tiles().K, own_row);
    pass_on(products, 2, 1);
    release_stored(kS);

    float writing[kDk / 2];
    wgmma_fence(writing);
    start_product_with_state<kDk, kDv>(writing, k_along_rows(tiles().V).along_mn(own_row), tiles().dS, false);
    wgmma_commit();
#pragma unroll
    for (int row = 0; row < 2; ++row) decays[row] = at.to_end(own_row + wgmma_row(2 * row));
    wgmma_wait<0>(writing);
    end_reads_of(kDS, group);
    scale_rows(writing, decays);
    multiply_rows<kDk>(products, writing, tiles().K, own_row);
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      if (lane_index() % 4 == 0 && own_row + wgmma_row(2 * row) != last) of_pair += products[row];
    }
    of_pair = warp_sum(of_pair);
    if (lane_index() == 0) products_of_pair.of_pair[group * 4 + warp_in_group()] = of_pair;
#pragma unroll
    for (int i = 0; i < kDk / 2; ++i) dK[i] += writing[i];

    for (int other = group; other < 2; ++other) {  // Y^T Q
      wgmma_fence(scores);
      start_scores_of_rows<kDv>(scores, tiles().V, own_row, tiles().dO, other * kChunk);
      wgmma_commit();
      wgmma_wait<0>(scores);
      decay_scores<true, false>(y, scores, at, own_row, other * kChunk);
      wgmma_fence(dK, y);
      start_product_with_rows<kDk>(dK, y, tiles().Q, other * kChunk);
      wgmma_commit();
      wgmma_wait<0>(dK);
    }
    if (is_alike(group)) {  // what rounding leaves out of Y^T
#pragma unroll 1
      for (int other = group; other < 2; ++other) {
        wgmma_fence(scores);
        start_scores_of_rows<kDv>(scores, tiles().V, own_row, tiles().dO, other * kChunk);
        wgmma_commit();
        wgmma_wait<0>(scores);
        decay_scores<true, false>(y, scores, at, own_row, other * kChunk);
        keep_errors(scores);
        round_columns(y, scores);
        wgmma_fence(dK, y);
        start_product_with_rows<kDk>(dK, y, tiles().Q, other * kChunk);
        wgmma_commit();
        wgmma_wait<0>(dK);
      }
    }
    release(kDO);
    for (int other = group; other < 2; ++other) {  // -Z^T K
      wgmma_fence(scores);
      start_scores_of_rows<kDv>(scores, tiles().V, own_row, tiles().dV, other * kChunk);
      wgmma_commit();
      wgmma_wait<0>(scores);
      decay_scores<true, true>(y, scores, at, own_row, other * kChunk, minus);
      wgmma_fence(dK, y);
      start_product_with_rows<kDk>(dK, y, tiles().K, other * kChunk);
      wgmma_commit();
      wgmma_wait<0>(dK);
      if (!is_alike(group)) continue;
      keep_errors(scores);
      round_columns(y, scores);
      wgmma_fence(dK, y);
      start_product_with_rows<kDk>(dK, y, tiles().K, other * kChunk);
      wgmma_commit();
      wgmma_wait<0>(dK);
    }
    release(kDV);
    release(kV);
    multiply_rows<kDk>(products, dK, tiles().K, own_row);
    pass_on(products, -1, 0);
    __syncwarp();
    if (lane_index() == 0) barriers.products_full[0].arrive();
    products_ring.advance();
    add_rows<kDk>(dK, own, tiles().Q, own_row);
    if (g.normalize_keys) {
      TwoRows along;
      multiply_rows<kDk>(along, dK, tiles().K, own_row);
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const float f = at.factors[own_row + wgmma_row(2 * row)];
        along[row] *= -f * f;
      }
      add_rows<kDk>(dK, along, tiles().K, own_row);
    }
    fence_async_proxy();  // Q and K have been read by ordinary loads
    __syncwarp();
    if (lane_index() == 0) barriers.positions_empty[positions_ring.stage()].arrive();
    release(kQ);
    release(kK);
    positions_ring.advance();
    wait_for_reads_of(kDS, group);
    store_gradient<kDk>(tiles().dK, dK, g.scale, maps.dk, pair, group, fresh_lane());
    release_stored(kDS);
    ring.advance();
    ring_of_dS.advance();
  }
}

/// The sums of the gates of each pair, and the factors of its keys, by a warp.
/// @param factors f [B, H, 64 N]
__device__ __forceinline__ void add_up_gates(const Bf16BackwardArguments& g, const float* factors, int N,
                                             Positions* positions, PairBarriers& barriers, const Pairs& pairs) {
  auto ring = Ring<kPositionsDepth>::producer();
  for (int number = int(blockIdx.x); number < pairs.all; number += int(gridDim.x)) {
    const Pair pair = pairs[number];
    Positions& at = positions[ring.stage()];
    ring.wait(barriers.positions_empty);
    running_sums(at.sums, g.g, pair.b, pair.h, pair.first, g.L);
    running_sums(at.sums + kChunk, g.g, pair.b, pair.h, pair.first + kChunk, g.L);
    __syncwarp();
    for (int i = int(lane_index()); i < kChunk; i += 32) at.sums[kChunk + i] += at.sums[kChunk - 1];
    const float* from = factors + (std::int64_t(pair.b) * g.H + pair.h) * N * kChunk;
#pragma unroll
    for (int i = int(lane_index()); i < kPair; i += 32) {
      at.factors[i] = pair.first + i < N * kChunk ? load_for_update(from + pair.first + i) : 1;
    }
    __syncwarp();
    if (lane_index() == 0) barriers.positions_full[ring.stage()].arrive();
    ring.advance();
  }
}

/// dg of each pair, by a warp: of a position, the terms that all have, and the row products from it on.
__device__ __forceinline__ void add_up_products(const Bf16BackwardArguments& g, const RowProducts& products,
                                                PairBarriers& barriers, const Pairs& pairs) {
  auto ring = Ring<1>::consumer();
  const int last = kPair - 4 - 4 * int(lane_index());  // lane 0 has the last four positions
  for (int number = int(blockIdx.x); number < pairs.all; number += int(gridDim.x)) {
    const Pair pair = pairs[number];
    ring.wait(barriers.products_full);
    const float4 four = *reinterpret_cast<const float4*>(products.of_rows + last);
    float sum = 0;
#pragma unroll
    for (const float part : products.of_pair) sum += part;
    __syncwarp();
    if (lane_index() == 0) barriers.products_empty[0].arrive();
    ring.advance();
    float dg = sum + warp_prefix_sum(four.x + four.y + four.z + four.w);
    const float before[] = {0, four.x, four.y, four.z};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      dg -= before[i];
      const int t = pair.first + last + i;
      if (t < g.L) store_global(g.dg.row(pair.b, pair.h, t), g.scale * dg);
    }
  }
}

/// Grid (any number of blocks). Starts early. @param factors f [B, H, 64 N]
template <int kDk, int kDv>
__global__ void __launch_bounds__(kBlockThreads, 1)
    gradients_kernel(Bf16BackwardArguments g, const __grid_constant__ GradientMaps maps, const float* factors,
                     delta_rule::PreparedTiles prepared, Pairs pairs) {
  using Tiles = GradientTiles<kDk, kDv>;
  __shared__ PairBarriers barriers;
  __shared__ Positions positions[kPositionsDepth];
  __shared__ __align__(16) RowProducts products;
  const Tiles tiles(dynamic_shared<__nv_bfloat16, kTileAlignment>());
  if (threadIdx.x == 0) {
    for (Barrier& barrier : barriers.full) barrier.init(1);
    for (Barrier& barrier : barriers.empty) barrier.init(2 * 4);
    for (Barrier& barrier : barriers.positions_full) barrier.init(1);
    for (Barrier& barrier : barriers.positions_empty) barrier.init(2 * 4);
    barriers.products_full[0].init(2 * 4), barriers.products_empty[0].init(1);
    fence_barrier_init();
  }
  __syncthreads();
  const int group = int(threadIdx.x) / kWarpgroup;
  if (group == 0) {
    decrease_registers<40>();
    const int warp = uniform(int(threadIdx.x) / 32);
    if (warp == 1) {
      wait_for_previous_kernel();
      add_up_gates(g, factors, prepared.N, positions, barriers, pairs);
    }
    if (warp == 2) add_up_products(g, products, barriers, pairs);
    if (threadIdx.x != 0) return;
    wait_for_previous_kernel();
    auto ring = Ring<1>::producer(), ring_of_dS = ring;
    for (int number = int(blockIdx.x); number < pairs.all; number += int(gridDim.x)) {
      const Pair pair = pairs[number];
      const MarksOfPair marks(prepared, pair, g.H, g.L);
      const auto load = [&]<int kColumns, int kRows>(Place place, const PanelTile<kColumns, kRows>& tile,
                                                     const TensorMap& map, int row) {
        Barrier& full = barriers.full[place];
        (place == kDS ? ring_of_dS : ring).wait(barriers.empty + place);
        if (place == kV) marks.tell(barriers);
        full.arrive_expect(kColumns * kRows * unsigned(sizeof(__nv_bfloat16)));
        load_panels(tile, map, full, {.position = row, .head = pair.h, .batch = pair.b});
      };
      const int state = pair.first / kPair * kDv;
      // In the order in which the places are released; of those that are released at once, what is needed first comes first.
      load(kS, tiles.S, maps.S, state);
      load(kDO, tiles.dO, maps.d_o, pair.first);
      load(kV, tiles.V, maps.v_new, pair.first);
      load(kDV, tiles.dV, maps.dv, pair.first);
      load(kK, tiles.K, maps.k, pair.first);
      load(kQ, tiles.Q, maps.q, pair.first);
      if (marks.any()) {
        ring_of_dS.wait(barriers.empty + kDS);
        marks.load_errors<kDv>(tiles.V_errors, maps.v_errors, barriers.full[kDS], pair);
        ring_of_dS.advance();
      }
      load(kDS, tiles.dS, maps.dS, state);
      ring.advance();
      ring_of_dS.advance();
    }
  } else {
    increase_registers<232>();
    compute_gradients<kDk, kDv>(g, maps, tiles.S.data, barriers, positions, products, pairs, uniform(group) - 1);
  }
}

/// Bytes of the keys' factors.
std::int64_t factors_memory(const Bf16BackwardArguments& g) {
  return std::int64_t(g.B) * g.H * ceil_div(g.L, kChunk) * kChunk * 4;
}

/// All kernels.
void run(const Bf16BackwardArguments& g, const BackwardSegments& cut) {
  auto* factors = workspace<float>("gated_delta_rule --backward: factors", std::size_t(factors_memory(g) / 4));
  const std::size_t chunks = std::size_t(std::int64_t(g.B) * g.H * ceil_div(g.L, kChunk));
  auto* bounds = cut.count > 1 ? workspace<float>("gated_delta_rule --backward: bounds", chunks) : nullptr;
  const PreparedTiles prepared =
      prepare_tiles(forward_of(g), {.least_beta = kLeastBeta, .factors = factors, .bounds = bounds});
  end_part("prepare");
  const Workspace x = workspace_of(g, "gated_delta_rule --backward: warpgroups", 2);
  start_segmented_walks<2, true>(g, walk_maps(g, prepared, x), prepared.decays, bounds, cut);
  const int count = ceil_div(g.L, kPair), all = g.B * g.H * count;
  select_widths(g, [&]<int kDk, int kDv>() {
    LaunchConfig config(unsigned(std::min(all, multiprocessor_count())), unsigned(kBlockThreads),
                        GradientTiles<kDk, kDv>::kBytes);
    config.starts_early = start_early(g);
    launch(gradients_kernel<kDk, kDv>, config, g, GradientMaps(g, x, kPair, kDv), factors, prepared,
           Pairs{count, all, g.H});
  });
  end_part("gradients");
}

}  // namespace

void warpgroups_backward(const Bf16BackwardArguments& g) {
  run(g, {1, ceil_div(g.L, kChunk)});
}

void segments_backward(const Bf16BackwardArguments& g) {
  run(g, BackwardSegments::one_wave(g));
}

std::string warpgroups_backward_unsupported(const Bf16BackwardArguments& g) {
  delta_rule::Bf16BackwardArguments without_gates = g;
  without_gates.normalize_keys = false;  // here the last kernel has all of a key
  return delta_rule::warpgroups_backward_unsupported(without_gates);
}

std::int64_t warpgroups_backward_memory(const Bf16BackwardArguments& g) {
  return prepared_tiles_memory(forward_of(g)) + WorkspaceBytes(g, 2).all() + factors_memory(g);
}

std::int64_t segments_backward_memory(const Bf16BackwardArguments& g) {
  return warpgroups_backward_memory(g) + backward_segments_memory(g, BackwardSegments::one_wave(g), 1);
}

std::int64_t warpgroups_backward_bytes_moved(const Bf16BackwardArguments& g) {
  const std::int64_t positions = std::int64_t(g.B) * g.H * g.L;
  const std::int64_t decays = prepared_tiles_memory(forward_of(g)) - delta_rule::prepared_tiles_memory(forward_of(g));
  const std::int64_t tiles = ceil_div(g.Dv, kColumns);
  // Beside what moves without gates: g twice, dg; decays and factors.
  return delta_rule::longer_chunks_backward_bytes_moved(g) + 12 * positions + (1 + 2 * tiles) * decays +
         2 * factors_memory(g);
}

}  // namespace tutorial::gated_delta_rule
