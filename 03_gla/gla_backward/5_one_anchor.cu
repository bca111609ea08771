/// @file
/// `one_anchor` of --backward: with one anchor, at its start, a chunk is computed like one without gates.
///
/// Idea: `anchored_pairs` has an anchor for each sub-chunk. So each of its sums goes from sub-chunk to sub-chunk: a
/// decay, a product, and the wait for it. Now the anchor is the start of the chunk, in front of its first gate. With b
/// the running sum of g in the chunk, the rows have the decays from there on:
///
///     q^_t = q_t . exp(b_t)      k^_i = k_i . exp(-b_i)      sum over d of q_td k_id exp(b_td - b_id) = q^_t k^_i^T
///
/// |k~| is at most |k|, but |k^| is at least |k|. The walk from the end multiplies S' by the decay of the chunk, D =
/// exp(b) of the last position, before it stores it: S'' = D . S'. Then nothing has to be multiplied between two
/// products. All pairs of a chunk are one product, of which a mask keeps one half, and a walk takes one step for each
/// chunk ("." is a product of elements):
///
///     walks    S = D . (S + k^^T V)      S'' = D . S',  S' = S'' + q^^T dO
///     dv       P = q^ k^^T               dV = scale (k^ S'' + P^T dO)    of P what is not above the diagonal
///     dq, dk   A'' = dO S^T + R k^       dq'_t = scale exp(b_t) . A''_t  of R what is below the diagonal
///              B'' = V S''^T + R^T q^    dk'_i = scale exp(-b_i) . B''_i
///     dg       q_t . dq'_t - k_t . dk'_t = scale (q^_t . A''_t - k^_t . B''_t)
///              W = scale (1 / D) . rows' sums of S . S'', with S after the chunk
///
/// k^ is up to 1 / D times as large as k. That does no harm while D is at least 2^-60 in each column: 64 gates of
/// exp(-0.649). A sum R k^ is up to 2^66 times as large then as one of its terms without decays, and bf16 and fp32
/// reach 2^127. prepare_chunks_kernel looks at the sums of g. The rows of a chunk that forgets more get the decays of
/// their sub-chunks, as prepare() does it, and the walks and the last kernel treat this chunk as `anchored_pairs` does.
/// The sign says which chunk is which: of a chunk with one anchor -D is stored where a decay would be. So the walks
/// know it from what they load anyway.
///
///     products           V S''^T  k^ S'' dO V^T | V dO^T  k^ q^^T | P^T dO  R^T q^ | dO S^T  R k^ | elements
///     place of a state   S'' ------------------ | S on its way ------------------- | S ---------- | A'', then dg
///     q^, k^             ------------------------------------------------------------------------ | then dq, dk
///     do, v              --------------------------------------------------------- | v: dv        | B''
///
/// Grows out of: 4_anchored_pairs.cu
/// Improves on: in `anchored_pairs` a chunk waits for one product after the other, in the walks and in the last kernel.
/// Unchanged: what is loaded and stored (but for P, and S' before the first chunk), and the work on elements.
/// Equation: that of `anchored_pairs`. What is rounded: q^, k^, R, P and the states.
/// Shapes: those of `anchored_pairs`, with q^ and k^ for q~ and k~, and S'' for S'. Of the four rows of decays of a
/// chunk with one anchor, row 0 is -D, and rows 1 to 3 are b / ln 2 at the end of sub-chunks 0 to 2.
/// Thread mapping: as `anchored_pairs`. In prepare_chunks_kernel block (n, h, b) has a chunk, and each warp a
/// sub-chunk.
/// Synchronization: as `anchored_pairs`, with one named barrier less: dO S^T and R k^ end together, so one barrier
/// frees the places of A'' and of B''. In prepare_chunks_kernel one barrier, for the sums of g. A walk sends a state to
/// memory while the next products run.
/// Fences: before bulk copies store what threads have written, a state in the walks, and gradients.
/// Registers: 255 per thread in the last kernel.
/// Resources: those of `anchored_pairs`.
/// Work: on tensor cores per position 10 Dk Dv + 64 (6 Dk + 6 Dv) operations, with the masked halves of R and P, and
/// with R computed twice; per position and column four exponentials, and Dk Dv / 32 multiplications for the states'
/// decays.
/// Bytes: as `anchored_pairs`, without P. A chunk without an anchor loads q, k and g once more for prepare().
/// Bound by: the memory's bandwidth.
/// Requires: what `anchored_pairs` requires.
/// Weakness: the rows and the states of all chunks cross device memory. One column that forgets too much makes its
/// whole chunk go through sub-chunks.
/// Sources: as `anchored_pairs`; an anchor for a chunk: arXiv 2510.26692, section 3.1.

#include <cuda_runtime.h>

#include <algorithm>
#include <type_traits>

#include "03_gla/gla/prepare_sub_chunk.cuh"
#include "03_gla/gla_backward/by_sub_chunks.cuh"
#include "03_gla/gla_backward/states_walk.cuh"
#include "common/tile/base2.cuh"

namespace tutorial::gla {
namespace {

constexpr float kLeastPowerOfChunk = -60;  // 2 to that is the least decay of a chunk that has an anchor

/// q^, k^, -D and b of a chunk, or what prepare() leaves. Grid (N, H, B).
template <int kElements>
__global__ void __launch_bounds__(kWarpgroup, 3) prepare_chunks_kernel(Bf16Arguments a, Prepared out) {
  __shared__ float sums[kWarps][32 * kElements];  // of base-2 logarithms, of each sub-chunk
  const int b = int(blockIdx.z), h = int(blockIdx.y), lane = int(lane_index()), warp = int(threadIdx.x) / 32;
  const int first = int(blockIdx.x) * kChunk + warp * kSubChunk, rows = a.L - first, d = lane * kElements;
  const std::int64_t at = ((std::int64_t(b) * a.H + h) * out.N + int(blockIdx.x)) * kSubChunks + warp;  // sub-chunk
  const PreparedRows<kElements> to(a, out, at, d);
  Row<kElements> all[kSubChunk];
#pragma unroll
  for (int t = 0; t < kSubChunk; ++t) all[t] = load_row<kElements>(a, b, h, first + t, d);
  float running[kElements] = {}, end[kElements] = {};
#pragma unroll
  for (int t = 0; t < kSubChunk; ++t) {
    float g[kElements];
    convert(g, all[t].g);
#pragma unroll
    for (int e = 0; e < kElements; ++e) running[e] += t < rows ? g[e] : 0.0f;
  }
#pragma unroll
  for (int e = 0; e < kElements; ++e) {
    sums[warp][d + e] = base2(running[e]);
    running[e] = 0;
  }
  __syncthreads();  // the sums are there
  bool allows = true;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      if (w == warp) running[e] = end[e];
      end[e] += sums[w][d + e];
    }
  }
#pragma unroll
  for (const float x : end) allows = allows && x >= kLeastPowerOfChunk;
  allows = __all_sync(kAllLanes, allows || !to.has_columns);  // a warp has all columns

  if (!allows) {
    prepare_sub_chunk<2>(a, out, b, h, first, at);  // 2: fewer registers
    return;
  }
  float own[kElements];
#pragma unroll
  for (int e = 0; e < kElements; ++e) own[e] = warp == 0 ? -ex2(end[e]) : running[e];
  to.decay(own);
#pragma unroll
  for (int t = 0; t < kSubChunk; ++t) {
    float power[kElements], q[kElements], k[kElements];
    convert(power, all[t].g);
    convert(q, all[t].q);
    convert(k, all[t].k);
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      running[e] += t < rows ? base2(power[e]) : 0.0f;
      q[e] *= ex2(running[e]);
      k[e] = t < rows ? k[e] * ex2(-running[e]) : 0.0f;
    }
    to.query(t, q);
    to.key(t, k);
  }
}

/// S at all borders of chunks, and S'' from the last but for the first. Grid (2 x tiles of Dv, H, B): the second half is
/// for S''.
template <int kDk>
__global__ void __launch_bounds__(kBlock<kDk>, 2)
    states_kernel(Bf16BackwardArguments a, Between between, const __grid_constant__ StateMaps maps) {
  __shared__ Barrier full[kPipelineDepth], empty[kPipelineDepth];
  const StatesWalk walk(a, between.prepared.N);
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  let_next_kernel_start();
  walk.init<kDk>(full, empty);
  if (threadIdx.x >= kStateThreads<kDk>) {
    walk.load<kDk>(a, maps, memory, full, empty);
    return;
  }

  const StatePart part(a, walk, memory + kPipelineDepth * StateTiles<kDk>::kBytes);
  const TensorMap& map = walk.is_from_end ? maps.dS : maps.S;
  GroupState S;
  part.load_start(S, a, walk);
  // What put() has written is sent when the products of the next chunk have been started, or before them if that chunk
  // has no anchor.
  if (!walk.is_from_end) part.put(S);
  auto ring = Ring<kPipelineDepth>::consumer();
  for (int i = 0; i < walk.N; ++i) {
    const StateTiles<kDk> tiles(memory + ring.stage() * StateTiles<kDk>::kBytes);
    const int border = walk.is_from_end ? walk.N - i : i;
    ring.wait(full);
    if (*tiles.decays.data < 0) {
      const auto v = k_from_row_to_row(tiles.V), k = tiles.keys(part.first_row);
      StateDecays<kGroupRows> decays;
      tiles.load_decays(decays, 0, part.first_row, -1);
      if (walk.is_from_end) {
        decay_state<kGroupRows>(S, decays);
        part.put(S);
      }
      wgmma_fence(S);
#pragma unroll
      for (int r = 0; r < kSubChunks; ++r) {
        start_sub_chunk_update<kGroupRows>(S, v.along_k(r * kSubChunk), k.along_k(r * kSubChunk));
      }
      wgmma_commit();
      part.send(border, map);
      wgmma_wait<0>(S);
      if (!walk.is_from_end) decay_state<kGroupRows>(S, decays);
    } else {
      if (walk.is_from_end) part.put(S);
      part.send(border, map);
      walk_sub_chunks(S, tiles, part.first_row, walk.is_from_end);
    }
    __syncwarp();  // all lanes have read the decays
    if (lane_index() == 0) empty[ring.stage()].arrive();
    ring.advance();
    if (!walk.is_from_end) part.put(S);
  }
  if (!walk.is_from_end) part.send(walk.N, map);
  part.store_end(S, a, walk);
}

/// Makes scores a factor, with zeros where a pair does not count.
/// @param keeps keeps(column - row): whether it does
template <class Keeps>
__device__ __forceinline__ void mask_pairs(ScoreFragments& pairs, WarpgroupScores& scores, const Keeps& keeps) {
#pragma unroll
  for (int i = 0; i < kChunk / 2; ++i) scores[i] = keeps(wgmma_column(i) - wgmma_row(i)) ? scores[i] : 0.0f;
#pragma unroll
  for (int s = 0; s < kSubChunks; ++s) wgmma_fragment(pairs[s], scores, s * kSubChunk);
}

/// sums += X Y, Y the rows of a chunk.
template <int kD>
__device__ __forceinline__ void start_pairs(float (&sums)[kD / 2], const ScoreFragments& X, const PanelTile<kD>& Y) {
#pragma unroll
  for (int s = 0; s < kSubChunks; ++s) start_sub_chunk<kD>(sums, X[s], Y, s);
}

/// The gradients of a chunk with one anchor, after start_loads().
/// @param end the state after the chunk
template <int kD>
__device__ __forceinline__ void gradients_with_anchor(const Bf16BackwardArguments& a, const Between& between,
                                                      const AnchoredTiles<kD>& tiles, ChunkBarriers& barriers,
                                                      const GradientMaps& maps, const ChunkPlace& at,
                                                      const StateUnits<kD>& end) {
  __syncthreads();
  float from_end[kD / 2];
  {
    float dv[kD / 2];
    {
      WarpgroupScores products;
      barriers.end_full.wait(0);
      wgmma_fence(from_end);
      start_reads<kD>(from_end, tiles.v, tiles.state);
      multiply_states(end, tiles);
      barriers.rows_full.wait(0);
      wgmma_fence(dv, products);
      const auto k = k_along_rows(tiles.k), s = k_along_rows(tiles.state);
#pragma unroll
      for (int d = 0; d < kD; d += 16) wgmma<kD>(dv, k.along_k(d), s.along_k(d), d > 0);
      start_scores(products, tiles.d_o, tiles.v);
      wgmma_commit();
      wgmma_wait<0>(from_end, dv, products);
      ScoreFragments R;
#pragma unroll
      for (int s = 0; s < kSubChunks; ++s) {
        if (s == at.warp) put_own(tiles.products + s * kSubChunk * kSubChunk, products, s, a.scale);
      }
      mask_pairs(R, products, [](int after) { return after < 0; });
      tiles.put_factors(R, at.warp);
    }
    __syncthreads();  // S'' is no longer needed
    load_start(tiles, barriers, maps, at);
    prefetch_rows<kD>(a.g, at.b, at.h, at.first, at.rows, a.Dk);

    // The compiler would keep addresses of factors in registers from product to product.
    const AnchoredTiles<kD> again(tiles.state.data + hide_from_compiler(0));
    ScoreFragments transposed_R, transposed_P;
    {
      WarpgroupScores products, scores;
      wgmma_fence(products, scores);
      start_scores(products, again.v, again.d_o);
      start_scores(scores, again.k, again.q);
      wgmma_commit();
      wgmma_wait<0>(products, scores);
      mask_pairs(transposed_R, products, [](int after) { return after > 0; });
      mask_pairs(transposed_P, scores, [](int after) { return after >= 0; });
    }
    wgmma_fence(from_end, dv, transposed_R, transposed_P);
    start_pairs<kD>(dv, transposed_P, again.d_o);
    start_pairs<kD>(from_end, transposed_R, again.q);
    wgmma_commit();
    wgmma_wait<0>(from_end, dv, transposed_R, transposed_P);
    store_dv(tiles, maps, at, dv, a.scale);
  }

  constexpr int kPanels = kD / kSliceWidth;
  Two D[kPanels], before[kPanels];  // for the lane's columns of each slice; b / ln 2 before the sub-chunk
  Gates gates;
  {
    float from_start[kD / 2];
    ScoreFragments R;
    tiles.load_factors(R, at.warp);
    barriers.start_full.wait(0);
    wgmma_fence(from_start, R);
    start_reads<kD>(from_start, tiles.d_o, tiles.state);
    start_pairs<kD>(from_start, R, tiles.k);
    wgmma_commit();
    gates.load_slice(a, at.b, at.h, at.first);
    const float* of_chunk = at.decays(between, a.Dk);
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
      const auto row = [&](int i) {
        const float* two = of_chunk + i * a.Dk + min(panel * kSliceWidth + fresh_lane() * 2, a.Dk - 2);
        return load_for_update(reinterpret_cast<const float2*>(two));
      };
      const float2 minus_D = row(0);
      convert(D[panel], make_float2(-minus_D.x, -minus_D.y));
      convert(before[panel], at.warp > 0 ? row(at.warp) : float2{});
    }
    wgmma_wait<0>(from_start, R);
    if (fresh_lane() == 0) wait_stores_read<0>();
    wait_at_named_barrier(kKeysAreRead, kWarpgroup);  // no product needs do, k^ and S any more, and dv has left
    store_reads<kD>(tiles.from_end, from_end, a.scale);
    store_reads<kD>(tiles.from_start, from_start, a.scale);
    __syncwarp();
  }

#pragma unroll 1
  for (int slice = 0; slice < a.Dk; slice += kSliceWidth) {
    const bool is_first = slice == 0;
    const LaneColumns<kD> columns(slice);
    gates.start(a, at.b, at.h, at.first, slice + kSliceWidth);
    Two total = {}, dg[kSubChunk];
    finish_with_anchor(dg, tiles, columns, gates, a, at, of_slice(before, is_first), Two{}, {1, 1});
    sum_up(dg, total);
    const float2 decay = of_slice(D, is_first);
    store_slice(tiles, maps, at, columns, slice, dg, total, {a.scale / decay.x, a.scale / decay.y});
  }
  if (fresh_lane() == 0) wait_stores_read<0>();
}

/// All gradients of a chunk. Grid (N, H, B).
template <int kD>
__global__ void __launch_bounds__(kWarpgroup, 2)
    gradients_kernel(Bf16BackwardArguments a, Between between, const __grid_constant__ GradientMaps maps) {
  __shared__ ChunkBarriers barriers;
  const AnchoredTiles<kD> tiles(dynamic_shared<__nv_bfloat16, kTileAlignment>());
  const ChunkPlace at(a, between.prepared.N);
  start_loads(tiles, barriers, maps, at);
  const bool chunk_has_anchor = load_for_update(at.decays(between, a.Dk)) < 0;
  const StateUnits<kD> end = load_end<kD>(a, between, at);
  // The compiler shall keep the code of the rare case behind that of the common one: blocks wait for instructions far
  // from the kernel's start.
  if (!chunk_has_anchor) [[unlikely]] {
    gradients_by_sub_chunks(a, between, tiles, barriers, maps, at, load_decays(a, between, at), end);
    return;
  }
  gradients_with_anchor(a, between, tiles, barriers, maps, at, end);
}

}  // namespace

void one_anchor_backward(const Bf16BackwardArguments& a) {
  const Between between = reserve_between(a);
  const dim3 chunks(unsigned(between.prepared.N), unsigned(a.H), unsigned(a.B));
  const auto prepare_chunks = a.Dk <= 64 ? prepare_chunks_kernel<2> : prepare_chunks_kernel<4>;
  launch(prepare_chunks, {chunks, kWarpgroup}, forward_of(a), between.prepared);
  const auto walk = [&]<int kDk>(std::integral_constant<int, kDk>) {
    launch(states_kernel<kDk>, walk_config<kDk>(a), a, between, state_maps(a, between));
  };
  a.Dk <= 64 ? walk(std::integral_constant<int, 64>()) : walk(std::integral_constant<int, 128>());
  const auto start = [&]<int kD>(std::integral_constant<int, kD>) {
    LaunchConfig config(chunks, kWarpgroup, std::size_t(AnchoredTiles<kD>::kBytes));
    config.starts_early = true;
    launch(gradients_kernel<kD>, config, a, between, gradient_maps<kD>(a, between));
  };
  std::max(a.Dk, a.Dv) <= 64 ? start(std::integral_constant<int, 64>()) : start(std::integral_constant<int, 128>());
}

}  // namespace tutorial::gla
