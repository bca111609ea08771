/// @file
/// `warpgroup_gradients` of --backward: the gradients of all chunks on products of warpgroups, with bulk copies.
///
/// Idea: in gradients_of_chunks.cu each warp computes for its own sub-chunk, on factors that it brings into registers
/// itself. A warpgroup has 64 rows, 16 of them in each warp: a chunk, with one sub-chunk per warp. So a product of the
/// warpgroup is the product of all four sub-chunks, and reads its factors where bulk copies have put them. What belongs
/// to some of the sub-chunks only is masked: A of sub-chunk r takes the keys of the sub-chunks s < r, so the warps of
/// the others multiply zeros. The decays stay between the products. Outputs leave through shared memory by bulk copies,
/// so that no thread computes addresses or asks whether its row exists.
///
///     products           V S'^T   K~ S' | V dO^T  K~ Q~^T | P^T dO  R^T q~ | dO S^T  dO V^T | R k~ | pairs
///     place of a state   S' ----------- | S on its way ------------------ | S ------------ | q, k; then dq, dk
///     q~, k~             -------------------------------- | then dv ------------------------------ | A, then dg
///     do, v              ------------------------------------------------------------------ | B
///
/// Grows out of: 6_warpgroup_states.cu; large step: the last kernel is written anew, from mma of warps to
/// products of the warpgroup
/// Improves on: `gradients_kernel` of `warpgroup_states` takes two thirds of the time. Half of its instructions load,
/// convert addresses and multiply small tiles; and it spills registers.
/// Unchanged: prepare(), the walks for the states, what is rounded, and the pairs of a sub-chunk (Pairs).
/// Equation: that of `materialized`.
/// Shapes: as `materialized`. S and S' are [B, H, N + 1, Dv, Dk] bf16, which is S^T, so that bulk copies bring tiles of
/// them; in the walk a warp stores its part by a bulk copy as well.
/// Thread mapping: block (n, h, b) has chunk n. Warp r has rows 16 r to 16 r + 15 of each product, which are sub-chunk
/// r; in the part with the pairs a lane has two columns of them.
/// Synchronization: a barrier for v and S', one for the other rows, one for S, and one for q and k. Barriers of the
/// block where a tile takes the place of another one.
/// Fences: S' is also read by ordinary loads, so the thread that loads S calls the fence. Outputs are stored by ordinary
/// stores; each lane fences them before its warp's bulk copy.
/// Registers: 255 per thread. There are none for rows of g that come early, so these wait in shared memory: copies of
/// four rows begin eight rows ahead.
/// Resources: 112 KB of shared memory at Dk = Dv = 128, two blocks per multiprocessor.
/// Work: as `materialized`; products that are masked count whole.
/// Bytes: as `materialized`.
/// Bound by: the chain of a block, from loads over products and pairs to stores, whose gaps one other block has to fill.
/// With all inputs in the second-level cache the kernel takes four fifths of its time.
/// Requires: what `warpgroup_states` requires, and q, k and all gradients that bulk copies support.
/// Weakness: q~, k~ and the states of all chunks cross device memory.
/// Sources: as `materialized`; PTX ISA, "wgmma".

#include <cuda_runtime.h>

#include <algorithm>
#include <string>
#include <type_traits>

#include "03_gla/gla_backward/gradient_parts.cuh"
#include "03_gla/gla_backward/pairs_of_sub_chunk.cuh"
#include "03_gla/gla_backward/warpgroup_states.cuh"
#include "common/device/cp_async.cuh"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/pin_address.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::gla {
namespace {

/// Shared memory of the kernel, for Dk and Dv up to kD.
template <int kD>
struct GradientTiles {
  PanelTile<kD, kD> state;                       ///< S'^T, then S^T
  PanelTile<kD> q, k, d_o, v;                    ///< q~, k~, do, v; dv takes the place of q~
  PanelTile<kD> raw_q, raw_k;                    ///< in the place of the state: q and k, then dq and dk
  FloatPanels<kChunk, kD> from_start, from_end;  ///< A and B, in the places of q~ and k~, do and v; dg that of A
  float* decays;                                 ///< [kDecayRows, kD]; then every other quarter of g
  float* gates;                                  ///< [kWarps, 4, kSliceWidth]: a quarter of g; see Gates
  float* products;                               ///< [kSubChunks, 16, 16]: scale R_ti in row t, column i
  float* restart;                                ///< [kWarps, kD]: parts of W / scale
  float2* totals;                                ///< [kD / kSliceWidth, kWarps, 32]: sums for dg of each sub-chunk

  static constexpr int kTileElements = kChunk * kD;
  static constexpr int kStateElements = std::max(kD, 2 * kChunk) * kD;
  static constexpr unsigned kTileBytes = 2 * kTileElements, kStateBytes = 2 * kD * kD;
  static constexpr int kQuarters = kWarps * 4 * kSliceWidth;  ///< elements of a quarter of all sub-chunks, a slice wide
  static constexpr int kDecayElements = std::max(kDecayRows * kD, kQuarters);
  static constexpr int kBytes = 2 * (kStateElements + 4 * kTileElements) +
                                4 * (kDecayElements + kQuarters + kChunk * kSubChunk + kWarps * kD + kWarps * kD);

  /// @param memory kBytes, aligned to kTileAlignment
  __device__ __forceinline__ explicit GradientTiles(__nv_bfloat16* memory)
      : state{memory},
        q{memory + kStateElements},
        k{q.data + kTileElements},
        d_o{k.data + kTileElements},
        v{d_o.data + kTileElements},
        raw_q{memory},
        raw_k{memory + kTileElements},
        from_start{reinterpret_cast<float*>(q.data)},
        from_end{reinterpret_cast<float*>(d_o.data)},
        decays(reinterpret_cast<float*>(v.data + kTileElements)),
        gates(decays + kDecayElements),
        products(gates + kQuarters),
        restart(products + kChunk * kSubChunk),
        totals(reinterpret_cast<float2*>(restart + kWarps * kD)) {}
};

/// A lane's two columns of a sub-chunk's rows of g, and zeros past the end of the sequence. The copies of a quarter, of
/// four rows, begin two quarters ahead, into shared memory: registers are short. Each lane copies what it reads itself.
struct Gates {
  const float* first;  ///< the sub-chunk's first row
  std::int64_t stride;
  int rows;  ///< of the sub-chunk that exist; it may exceed 16 or be negative
  int Dk;

  /// The lane's place for a quarter.
  template <class Tiles>
  static __device__ __forceinline__ float* place(const Tiles& tiles, int quarter) {
    return (quarter % 2 == 0 ? tiles.gates : tiles.decays) + warp_in_group() * 4 * kSliceWidth + fresh_lane() * 2;
  }
  /// Starts the copies of a quarter, or of none behind the last slice.
  template <class Tiles>
  __device__ __forceinline__ void start(const Tiles& tiles, int slice, int quarter) const {
    if (slice < Dk) {
      const float* from = pinned(first + quarter * 4 * stride + min(slice + fresh_lane() * 2, Dk - 2));
      float* to = place(tiles, quarter);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        cp_async<8>(to + i * kSliceWidth, from, quarter * 4 + i < rows);
        from = pinned(from + stride);
      }
    }
    cp_async_commit();
  }
  /// Waits for a quarter, and starts the copies of the next but one.
  template <class Tiles>
  __device__ __forceinline__ void take(float2 (&gates)[4], const Tiles& tiles, int slice, int quarter) const {
    cp_async_wait<1>();
    const float* from = place(tiles, quarter);
#pragma unroll
    for (int i = 0; i < 4; ++i) gates[i] = *reinterpret_cast<const float2*>(from + i * kSliceWidth);
    quarter < 2 ? start(tiles, slice, quarter + 2) : start(tiles, slice + kSliceWidth, quarter - 2);
  }
};

/// All gradients of a chunk. Grid (N, H, B).
template <int kD>
__global__ void __launch_bounds__(kWarpgroup, 2)
    warpgroup_gradients_kernel(Bf16BackwardArguments a, Between between, const __grid_constant__ GradientMaps maps) {
  __shared__ Barrier end_full, rows_full, start_full, raw_full;
  using Tiles = GradientTiles<kD>;
  const int b = int(blockIdx.z), h = int(blockIdx.y), n = int(blockIdx.x), N = between.prepared.N, t = n * kChunk;
  const int warp = uniform(warp_in_group()), first = t + warp * kSubChunk, rows = a.L - first;
  const int head = b * a.H + h;
  const std::int64_t chunk = std::int64_t(head) * N + n;
  auto* const memory = dynamic_shared<__nv_bfloat16, kTileAlignment>();
  const Tiles tiles(memory);
  const TileOrigin origin{.position = t, .head = h, .batch = b};
  if (threadIdx.x == 0) {
    for (Barrier* barrier : {&end_full, &rows_full, &start_full, &raw_full}) barrier->init(1);
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
  fill_decays(tiles, load_decays<kD>(between.prepared.decays + chunk * kSubChunks * a.Dk, a.Dk));
  __syncthreads();

  float from_end[kD / 2];
  {
    float dv[kD / 2];
    {
      KeyFragments<kD> keys;
      end_full.wait(0);
      wgmma_fence(from_end);
      start_reads<kD>(from_end, tiles.v, tiles.state);
      multiply_states(end, tiles);
      rows_full.wait(0);
      load_keys(keys, tiles, warp == 0 ? kLastThree : warp == 1 ? kLastTwo : warp == 2 ? 3 : kOne);
      wgmma_fence(dv, keys);
      const auto s = k_along_rows(tiles.state);
#pragma unroll
      for (int d = 0; d < kD; d += 16) wgmma<kD>(dv, keys[d / 16], s.along_k(d), d > 0);
      wgmma_commit();
      wgmma_wait<0>(from_end, dv, keys);
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
#pragma unroll
    for (int s = kSubChunks - 1; s > 0; --s) {
      if (warp < s) decay_columns<kD>(from_end, tiles.decays + s * kD);
      wgmma_fence(from_end, R[s]);
      start_sub_chunk<kD>(from_end, R[s], tiles.q, s);
      wgmma_commit();
      wgmma_wait<0>(from_end, dv);
    }
#pragma unroll
    for (float& x : dv) x *= a.scale;
    __syncthreads();  // q~ is no longer needed
    put_rows(tiles.q, dv);
    fence_async_proxy();
    __syncwarp();
    if (fresh_lane() == 0) {
#pragma unroll
      for (int column = 0; column < kD; column += 64) {
        store_tile(maps.dv, tiles.q.data + column / 64 * tiles.q.kPanelElements + warp * kSubChunk * 64,
                   {.column = column, .position = first, .head = h, .batch = b});
      }
      commit_stores();
    }
  }

  const auto gates = [&] { return Gates{a.g.row(b, h, first), a.g.stride_l, rows, a.Dk}; };
  {
    float from_start[kD / 2];
    std::uint32_t R[kSubChunks][4];
    {
      WarpgroupScores products;
      prefetch_rows<kD>(a.g, b, h, first, rows, a.Dk);
      start_full.wait(0);
      wgmma_fence(from_start, products);
      start_scores(products, tiles.d_o, tiles.v);
      start_reads<kD>(from_start, tiles.d_o, tiles.state);
      wgmma_commit();
      wgmma_wait<0>(from_start, products);
#pragma unroll
      for (int s = 0; s < kSubChunks; ++s) {
        to_factor(R[s], products, s * kSubChunk, warp > s);
        if (warp != s) continue;
        const int lane = fresh_lane();
        float* own = tiles.products + (s * kSubChunk + lane / 4) * kSubChunk + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < 8; i += 2) {
          const float* two = products + s * 8 + i;
          *reinterpret_cast<float2*>(own + i / 2 % 2 * 8 * kSubChunk + i / 4 * 8) =
              make_float2(a.scale * two[0], a.scale * two[1]);
        }
      }
    }
    if (fresh_lane() == 0) wait_stores_read<0>();
    __syncthreads();  // S, do and v are no longer needed, and dv has left
    if (threadIdx.x == 0) {
      raw_full.arrive_expect(2 * Tiles::kTileBytes);
      load_panels(tiles.raw_q, maps.q, raw_full, origin);
      load_panels(tiles.raw_k, maps.k, raw_full, origin);
    }
    store_reads<kD>(tiles.from_end, from_end, a.scale);
    gates().start(tiles, 0, 0);
#pragma unroll
    for (int s = 0; s < kSubChunks - 1; ++s) {
      if (warp > s) decay_columns<kD>(from_start, tiles.decays + s * kD);
      wgmma_fence(from_start, R[s]);
      start_sub_chunk<kD>(from_start, R[s], tiles.k, s);
      wgmma_commit();
      wgmma_wait<0>(from_start);
    }
    wait_at_named_barrier(kKeysAreRead, kWarpgroup);  // nor the decays
    gates().start(tiles, 0, 1);
    store_reads<kD>(tiles.from_start, from_start, a.scale);
    __syncwarp();
  }

  const int lane = fresh_lane();
  const float* products = tiles.products + warp * kSubChunk * kSubChunk;
  raw_full.wait(0);
#pragma unroll 1
  for (int slice = 0; slice < a.Dk; slice += kSliceWidth) {
    const int panel = slice / kSliceWidth, d = slice + lane * 2;
    const int two = panel * tiles.raw_q.kPanelElements + warp * kSubChunk * 64 + lane * 2;
    const int float_two =
        (slice / 32 + lane / 16) * tiles.from_end.kPanelElements + warp * kSubChunk * 32 + lane % 16 * 2;
    const auto in_row = [&](const PanelTile<kD>& tile, int i) {
      return reinterpret_cast<std::uint32_t*>(tile.data + (two ^ i % 8 * 8) + i * 64);
    };
    const auto in_float_row = [&](const FloatPanels<kChunk, kD>& tile, int i) {
      return reinterpret_cast<float2*>(const_cast<float*>(tile.data) + (float_two ^ i % 8 * 4) + i * 32);
    };
    Pairs pairs;
    std::uint32_t queries[kSubChunk];
    float2 quarter[4];  // of g
    const auto load = [&](int i, Two& q, Two& k, Two& gate_row) {
      if (i % 4 == 0) gates().take(quarter, tiles, slice, i / 4);
      queries[i] = *in_row(tiles.raw_q, i);
      convert(q, queries[i]);
      convert(k, *in_row(tiles.raw_k, i));
      gate_row[0] = gate(quarter[i % 4].x);
      gate_row[1] = gate(quarter[i % 4].y);
    };
    pairs.add(
        load, products, [&](int i) { return *in_float_row(tiles.from_start, i); },
        [&](int i, const Two& row, const Two& product) {
          store_for_copies(in_row(tiles.raw_q, i), packed_row(row));
          *in_float_row(tiles.from_start, i) = float_row(product);
        });

    Two total = {}, dg[kSubChunk];
    std::uint32_t dk[kSubChunk];
#pragma unroll
    for (int i = kSubChunk - 1; i >= 0; --i) {
      Two q, k, full;
      convert(dg[i], *in_float_row(tiles.from_start, i));
      convert(q, queries[i]);
      convert(k, i == rows - 1 ? 0u : *in_row(tiles.raw_k, i));  // the last key has passed no gate
      convert(full, *in_float_row(tiles.from_end, i));
      Two x = {pairs.dk[i][0], pairs.dk[i][1]};
      multiply_add(x, pairs.decays[i], full);
#pragma unroll
      for (int e = 0; e < 2; ++e) dg[i][e] = total[e] = (total[e] + dg[i][e]) - k[e] * x[e];
      multiply_add(x, products[i * kSubChunk + i], q);
      dk[i] = packed_row(x);
    }
#pragma unroll
    for (int i = 0; i < kSubChunk; ++i) store_for_copies(in_row(tiles.raw_k, i), dk[i]);
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
      const int rows_of_warp = panel * tiles.raw_q.kPanelElements + warp * kSubChunk * 64;
      store_tile(maps.dq, tiles.raw_q.data + rows_of_warp, to);
      store_tile(maps.dk, tiles.raw_k.data + rows_of_warp, to);
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

void warpgroup_gradients_backward(const Bf16BackwardArguments& a) {
  const Between between = prepare_gradients(a);
  start_states_walks<StateInRows>(a, between);
  const auto start = [&]<int kD>(std::integral_constant<int, kD>) {
    LaunchConfig config(dim3(unsigned(between.prepared.N), unsigned(a.H), unsigned(a.B)), kWarpgroup,
                        std::size_t(GradientTiles<kD>::kBytes));
    config.starts_early = true;
    launch(warpgroup_gradients_kernel<kD>, config, a, between, gradient_maps<kD>(a, between));
  };
  std::max(a.Dk, a.Dv) <= 64 ? start(std::integral_constant<int, 64>()) : start(std::integral_constant<int, 128>());
}

std::string warpgroup_gradients_backward_unsupported(const Bf16BackwardArguments& a) {
  if (const std::string reason = warpgroup_states_backward_unsupported(a); !reason.empty()) return reason;
  const TensorSizes keys = tensor_sizes(a, a.Dk), floats = tensor_sizes(a, 2 * a.Dk);
  for (const std::string& reason :
       {why_not_mapped(a.q, keys, kChunk), why_not_mapped(a.k, keys, kChunk),
        why_not_mapped(read_only(a.dq), keys, kSubChunk), why_not_mapped(read_only(a.dk), keys, kSubChunk),
        why_not_mapped(read_only(a.dv), tensor_sizes(a, a.Dv), kSubChunk),
        why_not_mapped(read_only(as_bf16_pairs(a.dg)), floats, kSubChunk)}) {
    if (!reason.empty()) return reason;
  }
  return "";
}

std::int64_t warpgroup_gradients_backward_memory(const Bf16BackwardArguments& a) {
  return between_memory(a);
}

}  // namespace tutorial::gla
