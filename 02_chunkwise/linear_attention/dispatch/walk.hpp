#pragma once
/// @file
/// The kernels behind dispatch, for every launch plan.

#include "02_chunkwise/linear_attention.hpp"
#include "02_chunkwise/normalized.hpp"
#include "common/tile/launch_plan.hpp"

namespace tutorial::linear_attention {

/// Starts the kernels of a plan on current_stream(). They also compute the initial state of each segment (`starts`),
/// and of z if there is a normaliser. Requires: an empty tile::tensor_core_unsupported().
/// @param normalizer null: o is not normalised
/// @throws CudaError if memory runs out or a launch is refused
void walk(const Bf16Arguments&, const tile::LaunchPlan&, const Normalizer* normalizer = nullptr);

/// Kernel 1 of walk(): computes the sums of k_t^T v_t of the first `count` segments of each head. Other walks start it,
/// too.
/// @param states [B, H, count, Dk, Dv]
void segment_states(const Bf16Arguments&, const tile::LaunchPlan&, int count, float* states);

/// How the tiles of roles_walk() are loaded: by tensor maps, or 16 bytes at a time.
enum class RolesLoader { kBulkCopies, kCpAsync };

/// The same with roles for warps, without a normaliser. Requires: Dk <= 128, and for kBulkCopies an empty
/// bulk_copies_unsupported(). A plan may have tiles of 128 columns even if widest_tile() is 64.
void roles_walk(const Bf16Arguments&, const tile::LaunchPlan&, RolesLoader);

/// The same by warpgroups, for Hopper. Requires: an empty warpgroup_mma_unsupported(), and a plan with tiles of 64
/// columns.
void hopper_walk(const Bf16Arguments&, const tile::LaunchPlan&, const Normalizer* normalizer = nullptr);

}  // namespace tutorial::linear_attention
