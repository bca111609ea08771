/// @file
/// `warpgroup_states` of --backward: the walk for the states on products of warpgroups.
///
/// Idea: a walk that only updates a state has one product per sub-chunk, S += k~^T v, and multiplies S by decays
/// between two products. As a product of warpgroups (chapter 02, "Hopper in one sitting") it is one instruction, on
/// factors that bulk copies have loaded, and the state is in its sums for the whole sequence, as in `warpgroup_walk` of
/// the operator. No element of S needs another one. So two warpgroups share S: while one waits for its product, the
/// other one multiplies its rows by decays.
/// Grows out of: 5_materialized.cu; large step: from mma of warps to products of warpgroups, with chapter
/// 02's bulk copies.
/// Improves on: `states_kernel` of `materialized` executes more instructions for addresses, copies, ldmatrix and mma
/// than for decays.
/// Unchanged: prepare(), and the gradients of all chunks from their states (gradients_of_chunks.cu).
/// Equation: as `materialized`.
/// Shapes: as `materialized`; tiles are panels (common/tile/panel_tile.cuh).
/// Thread mapping: block (direction and tile, h, b) has 64 columns of Dv, for S or for S'. Each of its warpgroups has
/// 64 rows of S, and one thread of a last warp loads.
/// Synchronization: the warps of the state wait for tiles (`full`), and the loads wait for the state (`empty`).
/// Resources: 112 KB of shared memory at Dk = 128, two blocks per multiprocessor.
/// Work: as `materialized`.
/// Bytes: as `materialized`; k~ and q~ are read once per 64 columns of Dv, after the first time from the second-level
/// cache.
/// Bound by: the dependent products and decays of a sub-chunk; with many heads by the memory's bandwidth.
/// Requires: compute capability 9.0, what `materialized` requires, and v and do that bulk copies support.
/// Weakness: the states cross device memory, and with few heads there are few blocks.
/// Sources: as `materialized`; PTX ISA, "wgmma".

#include "03_gla/gla_backward.hpp"
#include "03_gla/gla_backward/gradients_of_chunks.hpp"
#include "03_gla/gla_backward/warpgroup_states.cuh"

namespace tutorial::gla {

void warpgroup_states_backward(const Bf16BackwardArguments& a) {
  const Between between = prepare_gradients(a);
  start_states_walks<StateInTiles>(a, between);
  compute_gradients(a, between);
}

std::string warpgroup_states_backward_unsupported(const Bf16BackwardArguments& a) {
  const std::string reason = gradients_unsupported(a);
  return reason.empty() ? states_walks_unsupported(a) : reason;
}

std::int64_t warpgroup_states_backward_memory(const Bf16BackwardArguments& a) {
  return between_memory(a);
}

}  // namespace tutorial::gla
