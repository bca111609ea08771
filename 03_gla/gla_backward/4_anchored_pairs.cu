/// @file
/// `anchored_pairs` of --backward: the states of all chunks first, then all chunks at once, on products of warpgroups.
///
/// Idea: only the states depend on the chunks before. A first kernel walks the chunks and does nothing else: it updates
/// S from the first chunk on and, in other blocks at the same time, dS from the last one, and stores both in bf16 at the
/// borders of chunks. It is the operator's `warpgroup_walk` without outputs. A second kernel has one block for each
/// chunk (by_sub_chunks.cuh). Its products have 64 rows, 16 in each warp of a warpgroup: a sub-chunk per warp. What
/// belongs to some sub-chunks only is masked: A of sub-chunk r takes the keys of the sub-chunks s < r, so the warps of
/// the others multiply zeros. The gates of dq and dk belong to the columns of the result. So a warp multiplies its sums
/// by the decay of a sub-chunk before it adds what lies on the near side of it.
///
/// Within a sub-chunk each element of dq_t = sum_i R_ti k_i exp(g_(i+1)) ... exp(g_t) has a decay of its own, as if no
/// product were possible. But with b the running sum of g in the sub-chunk and b_e its last value,
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
/// bf16: D_r is at least 2^-80 in each column, as with gates of exp(-3.46). A sub-chunk that forgets more computes its
/// pairs one by one in fp32 (Pairs), with q and k from memory.
///
/// dg is a running sum that starts anew in each chunk, from W. Its pairs of q . dq' and of k . dk' have to cancel, and
/// they do: q_t . dq'_t - k_t . dk'_t is scale exp(-b_e) . (q~_t . A'_t - k~_t . B'_t), and in the bracket a pair has
/// the same three rounded factors twice. R_tt, which has no decay, is added to dq'_t and dk'_t afterwards, with q and k
/// recovered from q~ and k~. So q and k are not loaded.
///
///     products           V S'^T   K~ S'  dO V^T | V dO^T  K~ Q~^T | P^T dO  R^T q~ | dO S^T | R k~ | elements
///     place of a state   S' ------------------- | S on its way ------------------- | S ---- |      | A, then dg
///     q~, k~             ------------------------------------------------------------------------- | then dq, dk
///     do, v              --------------------------------------------------------- | v: dv  | B
///
/// Grows out of: 03_gla/gla/9_warpgroup_walk.cu; large step: a stage in between would have the pairs of sub-chunks in
/// fp32, or products of warps. Each is a kernel as long as this one of which this one keeps neither tiles nor copies nor
/// masks (as `materialized`, which dispatch takes on other cards, shows).
/// Improves on: `chunkwise` computes on the CPU, one head per thread and one chunk after the other.
/// Unchanged: prepare(), and the walk of `warpgroup_walk`; the equations of `chunkwise`, with C = 64 and sub-chunks of
/// 16.
/// Equation: q~, k~, D, P as in prepare.hpp; R = dO V^T; S_n and S'_n = dS / scale are the states after n chunks. r, s
/// count the sub-chunks of chunk n; D_{r..s} is the product D_r ... D_s, or 1 if s < r
///
///   S_{n+1} = diag(D_3) (... diag(D_0) S_n + k~_0^T V_0 ...) + k~_3^T V_3        states_kernel
///   S'_n    = diag(D_0) (... diag(D_3) S'_{n+1} + q~_3^T dO_3 ...) + q~_0^T dO_0  the same, from the last chunk
///   A_r  = D_{0..r-1} . dO_r S_n^T    + sum over s < r of D_{s+1..r-1} . R_rs k~_s         gradients_kernel
///   B_r  = D_{r+1..3} . V_r S'_{n+1}^T + sum over s > r of D_{r+1..s-1} . R_sr^T q~_s
///   dV_r = scale ((D_{r+1..3} . k~_r) S'_{n+1} + P_rr^T dO_r + sum over s > r of P_sr^T dO_s)
///          P_sr = q~_s (D_{r+1..s-1} . k~_r)^T
///   W_n  = scale * sums of the rows of S_{n+1} . S'_{n+1}
///   dg_t = W_n + sum over s >= t, in the chunk, of q_s . dq'_s - k_s . dk'_s
///   of which position L has no k . dk', and S_N in W_N nothing of k_L: that pair with the final state passes no gate
///
/// What is rounded to bf16: q~, k~, k~ with further decays, R, P and the states.
/// Shapes: q, k, dq, dk [B, H, L, Dk], v, do, dv [B, H, L, Dv] bf16; g, dg, states fp32. In device memory S^T and S'^T
/// [B, H, N + 1, Dv, Dk] bf16, and what prepare() leaves; tiles are panels (common/tile/panel_tile.cuh).
/// Thread mapping: block (direction and tile, h, b) of states_kernel has 64 columns of Dv, and each of its warpgroups 64
/// rows of S; one thread of a last warp loads. Block (n, h, b) of gradients_kernel has chunk n. Warp r has rows 16 r to
/// 16 r + 15 of each product, which are sub-chunk r; of the elements at the end a lane has two columns of them.
/// Synchronization: in states_kernel the warps of the state wait for tiles (`full`), and the loads for the state
/// (`empty`). In gradients_kernel a barrier for v and S', one for the other rows, one for S. Barriers of the block where
/// a tile takes the place of another one. R as left factors, computed early so that dv can take the place of v, waits in
/// shared memory, where each lane reads what it has stored itself. g waits in registers: its first slice is loaded
/// before the last products, and each row of the next one when that of the slice before has been used.
/// Fences: S' and decays are also read by ordinary loads, so the thread that loads what takes their place calls the
/// fence. Outputs and states are written by ordinary stores; each lane fences them before its warp's bulk copy.
/// Registers: 254 per thread.
/// Resources: 112 KB of shared memory at Dk = Dv = 128, two blocks per multiprocessor, in both kernels.
/// Work: on tensor cores per position 10 Dk Dv operations, and 2 (3 Dk + 3 Dv) for each of 40 pairs; products that are
/// masked count whole; two exponentials per position and column.
/// Bytes: prepare()'s; q~, k~, v and do twice, and 8 Dk Dv per chunk written and read; g and the gradients once; q and k
/// once more only where gates are strong.
/// Bound by: the memory's bandwidth on an H100.
/// Requires: compute capability 9.0, Dk and Dv multiples of 16 and at most 128, rows aligned to 16 bytes, and v, do and
/// gradients that bulk copies support.
/// Weakness: q~, k~ and the states of all chunks cross device memory. Each sum waits for four products, one after the
/// other. One column that forgets too much makes its whole sub-chunk go through pairs in fp32.
/// Sources: arXiv 2312.06635, sections 3.3 (materialization) and 4.3, and appendix; an anchor for a chunk: arXiv
/// 2510.26692, section 3.1; PTX ISA, "wgmma". flash-linear-attention also starts dg anew at each chunk.

#include <cuda_runtime.h>

#include <algorithm>
#include <type_traits>

#include "03_gla/gla_backward/by_sub_chunks.cuh"
#include "03_gla/gla_backward/states_walk.cuh"

namespace tutorial::gla {
namespace {

/// S at all borders of chunks, and S' from the last but for the first. Grid (2 x tiles of Dv, H, B): the second half is
/// for S'.
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
  if (!walk.is_from_end) part.put(S);
  auto ring = Ring<kPipelineDepth>::consumer();
  for (int i = 0; i < walk.N; ++i) {
    const StateTiles<kDk> tiles(memory + ring.stage() * StateTiles<kDk>::kBytes);
    const int border = walk.is_from_end ? walk.N - i : i;
    ring.wait(full);
    if (walk.is_from_end) part.put(S);
    part.send(border, map);
    walk_sub_chunks(S, tiles, part.first_row, walk.is_from_end);
    __syncwarp();  // all lanes have read the decays
    if (lane_index() == 0) empty[ring.stage()].arrive();
    ring.advance();
    if (!walk.is_from_end) part.put(S);
  }
  if (!walk.is_from_end) part.send(walk.N, map);
  part.store_end(S, a, walk);
}

/// All gradients of a chunk. Grid (N, H, B).
template <int kD>
__global__ void __launch_bounds__(kWarpgroup, 2)
    gradients_kernel(Bf16BackwardArguments a, Between between, const __grid_constant__ GradientMaps maps) {
  __shared__ ChunkBarriers barriers;
  const AnchoredTiles<kD> tiles(dynamic_shared<__nv_bfloat16, kTileAlignment>());
  const ChunkPlace at(a, between.prepared.N);
  start_loads(tiles, barriers, maps, at);
  const StateUnits<kD> end = load_end<kD>(a, between, at);
  gradients_by_sub_chunks(a, between, tiles, barriers, maps, at, load_decays(a, between, at), end);
}

}  // namespace

void anchored_pairs_backward(const Bf16BackwardArguments& a) {
  const Between between = reserve_between(a);
  const dim3 chunks(unsigned(between.prepared.N), unsigned(a.H), unsigned(a.B));
  prepare(forward_of(a));
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
