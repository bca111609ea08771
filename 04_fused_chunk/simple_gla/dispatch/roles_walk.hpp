#pragma once
/// @file
/// The walk with roles for warps, for dispatch on cards without products of warpgroups.

#include <cstdint>

#include "04_fused_chunk/simple_gla.hpp"
#include "common/tile/launch_plan.hpp"

namespace tutorial::simple_gla {

/// How the tiles of roles_walk() are loaded: by tensor maps, or 16 bytes at a time.
enum class RolesLoader { kBulkCopies, kCpAsync };

/// How they should be loaded: by bulk copies if the GPU has them and they can take these tensors.
RolesLoader roles_loader(const Bf16Arguments&);

/// Starts the kernels of a plan on current_stream(). They also compute its `starts`. A plan may have tiles of 128
/// columns even if widest_tile() is 64. Its workspace is that of walk(). Requires: Dk <= 128, an empty
/// fused_unsupported(), and for kBulkCopies that roles_loader() returns it.
/// @throws CudaError if the memory cannot be allocated or a launch is refused
void roles_walk(const Bf16Arguments&, tile::LaunchPlan, RolesLoader);

/// Bytes that its kernels read from device memory or write to it, even if a cache serves them.
std::int64_t roles_walk_bytes_moved(const Bf16Arguments&, const tile::LaunchPlan&);

}  // namespace tutorial::simple_gla
