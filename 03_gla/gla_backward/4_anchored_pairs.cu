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
/// Grows out of: 03_gla/gla/9_warpgroup_walk.cu; large step: the pairs of a sub-chunk, from multiply-adds in fp32 to
/// products of the warpgroup
/// Improves on: in `warpgroup_gradients` a warp spends 40 % of its time on pairs, and loads q and k for them.
/// Unchanged: prepare(), the walks for the states, and all other products.
/// Equation: that of `materialized`. What is rounded: k~, q~ and R for the pairs of a sub-chunk, as for all others.
/// Shapes: as `warpgroup_gradients`.
/// Thread mapping: as `warpgroup_gradients`.
/// Synchronization: as `warpgroup_gradients`, without the barrier for q and k. R as left factors, computed early so that
/// dv can take the place of v, waits in shared memory, where each lane reads what it has stored itself. g waits in
/// registers: without the pairs of fp32 there are enough. Its first slice is loaded before the last products, and each
/// row of the next one when that of the slice before has been used.
/// Fences: as `warpgroup_gradients`.
/// Registers: 254 per thread.
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
#include <type_traits>

#include "03_gla/gla_backward/by_sub_chunks.cuh"
#include "03_gla/gla_backward/states_walk.cuh"

namespace tutorial::gla {
namespace {

/// S at all borders of chunks, and S' from the last. Grid (2 x tiles of Dv, H, B): the second half is for S'.
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
  part.put(S);
  part.send(walk.is_from_end ? walk.N : 0, map);
  auto ring = Ring<kPipelineDepth>::consumer();
  for (int i = 0; i < walk.N; ++i) {
    const StateTiles<kDk> tiles(memory + ring.stage() * StateTiles<kDk>::kBytes);
    ring.wait(full);
    walk_sub_chunks(S, tiles, part.first_row, walk.is_from_end);
    __syncwarp();  // all lanes have read the decays
    if (lane_index() == 0) empty[ring.stage()].arrive();
    ring.advance();
    part.put(S);
    part.send(walk.is_from_end ? walk.N - 1 - i : i + 1, map);
  }
  part.store_end(S, a, walk);
}

/// All gradients of a chunk. Grid (N, H, B).
template <int kD>
__global__ void __launch_bounds__(kWarpgroup, 2)
    anchored_pairs_kernel(Bf16BackwardArguments a, Between between, const __grid_constant__ GradientMaps maps) {
  __shared__ ChunkBarriers barriers;
  const AnchoredTiles<kD> tiles(dynamic_shared<__nv_bfloat16, kTileAlignment>());
  const ChunkPlace at(a, between.prepared.N, int(blockIdx.z), int(blockIdx.y), int(blockIdx.x));
  start_loads(tiles, barriers, maps, at);
  const ColumnDecays decays = load_decays<kD>(a, between, at);
  gradients_by_sub_chunks(a, between, tiles, barriers, maps, at, decays, load_end<kD>(a, between, at));
}

}  // namespace

void anchored_pairs_backward(const Bf16BackwardArguments& a) {
  const Between between = reserve_between(a);
  prepare(forward_of(a));
  const auto walk = [&]<int kDk>(std::integral_constant<int, kDk>) {
    launch(states_kernel<kDk>, walk_config<kDk>(a), a, between, state_maps(a, between));
  };
  a.Dk <= 64 ? walk(std::integral_constant<int, 64>()) : walk(std::integral_constant<int, 128>());
  const auto start = [&]<int kD>(std::integral_constant<int, kD>) {
    LaunchConfig config(dim3(unsigned(between.prepared.N), unsigned(a.H), unsigned(a.B)), kWarpgroup,
                        std::size_t(AnchoredTiles<kD>::kBytes));
    config.starts_early = true;
    launch(anchored_pairs_kernel<kD>, config, a, between, gradient_maps<kD>(a, between));
  };
  std::max(a.Dk, a.Dv) <= 64 ? start(std::integral_constant<int, 64>()) : start(std::integral_constant<int, 128>());
}

}  // namespace tutorial::gla
