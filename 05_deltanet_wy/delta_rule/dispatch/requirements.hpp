#pragma once
/// @file
/// What the kernels require, the memory that they take and the bytes that they move; and what dispatch and the gated
/// operator ask about walks, on the CPU and in segments (requirements.cu).

#include <algorithm>
#include <cstdint>
#include <string>

#include "05_deltanet_wy/delta_rule.hpp"
#include "common/tile/launch_plan.hpp"

namespace tutorial::delta_rule {

// Why a kernel cannot run the problem, as a sentence; empty if it can.
std::string chunk_gpu_unsupported(const FloatArguments&);  ///< also block_inverse
std::string tensor_core_unsupported(const Bf16Arguments&);
std::string fused_unsupported(const Bf16Arguments&);
std::string warpgroup_chain_unsupported(const Bf16Arguments&);  ///< all of warpgroups
std::string recurrent_gpu_unsupported(const FloatArguments&);
std::string specialized_warps_unsupported(const Bf16Arguments&);

// Bytes of memory that a kernel needs beside its inputs and outputs: products, vectors, states.
std::int64_t dense_product_memory(const FloatArguments&);
std::int64_t wy_memory(const FloatArguments&);
std::int64_t ut_transform_memory(const FloatArguments&);
std::int64_t chunk_gpu_memory(const FloatArguments&);  ///< also block_inverse
std::int64_t tensor_core_memory(const Bf16Arguments&);
std::int64_t fused_memory(const Bf16Arguments&);            ///< also specialized_warps
std::int64_t warpgroup_chain_memory(const Bf16Arguments&);  ///< also scores_in_walk
std::int64_t segments_memory(const Bf16Arguments&);

// Bytes that a stage's kernels read from device memory or write to it, even if a cache serves them.
std::int64_t chunk_gpu_bytes_moved(const FloatArguments&);  ///< also block_inverse
std::int64_t tensor_core_bytes_moved(const Bf16Arguments&);
std::int64_t fused_bytes_moved(const Bf16Arguments&);
std::int64_t warpgroup_chain_bytes_moved(const Bf16Arguments&);
std::int64_t scores_in_walk_bytes_moved(const Bf16Arguments&);
std::int64_t cluster_bytes_moved(const Bf16Arguments&);  ///< also three_blocks
std::int64_t segments_bytes_moved(const Bf16Arguments&);
std::int64_t recurrent_gpu_bytes_moved(const FloatArguments&);
std::int64_t specialized_warps_bytes_moved(const Bf16Arguments&);
std::int64_t one_kernel_bytes_moved(const Bf16Arguments&);
std::int64_t one_block_bytes_moved(const Bf16Arguments&);

/// Bytes of memory that `segments` needs beside inputs and outputs, with any number of them.
std::int64_t segments_memory(const Bf16Arguments&, const tile::LaunchPlan&);
/// Bytes that its kernels read from device memory or write to it.
std::int64_t segments_bytes_moved(const Bf16Arguments&, const tile::LaunchPlan&);

/// The part of both that is due to the states that segments start from: H and E (chunk/segment_maps.cuh).
std::int64_t segment_maps_memory(const Bf16Arguments&, const tile::LaunchPlan&);
/// @param inverse_rows of a chunk's T, each of 64 bf16
std::int64_t segment_maps_bytes_moved(const Bf16Arguments&, const tile::LaunchPlan&, int inverse_rows);

/// Bytes of a thread that walks: S, the chunk and its outputs.
inline std::int64_t walk_memory(const FloatArguments& a) {
  const std::int64_t C = std::min(a.C, a.L), Dk = a.Dk, Dv = a.Dv;
  return 8 * (Dk * Dv + C * (2 * Dk + 2 * Dv + 1));
}

/// Bytes of a thread for W, U, v_new, the products with S, and scores.
inline std::int64_t step_memory(const FloatArguments& a) {
  const std::int64_t C = std::min(a.C, a.L), Dk = a.Dk, Dv = a.Dv;
  return 8 * (C * (Dk + 3 * Dv) + C * C);
}

}  // namespace tutorial::delta_rule
