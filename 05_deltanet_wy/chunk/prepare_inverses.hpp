#pragma once
/// @file
/// T of each chunk in device memory, computed by a warpgroup: for walks that compute P themselves.

#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/delta_rule.hpp"
#include "common/device/tensor_map.hpp"
#include "common/tile/packed_plan.hpp"

namespace tutorial::delta_rule {

/// Rows of a chunk in PreparedInverses.
inline constexpr int kInverseRows = 96;

/// -T in two bf16 as a SplitTriangle has them (split_triangle.cuh), without its quarter of zeros.
struct PreparedInverses {
  int N;                 ///< chunks of a head
  __nv_bfloat16* tiles;  ///< [B, H, N, 96, 64]
};

/// Fills a workspace with it, with one kernel on current_stream(). The next kernel may start
/// early (common/device/early_start.cuh). The workspace is valid until the next call. Requires: an empty
/// warpgroup_chain_unsupported().
/// @throws CudaError if the memory cannot be allocated or the launch is refused
PreparedInverses prepare_inverses(const Bf16Arguments&);
/// The same for those segments of packed sequences that another one follows, the first `states` entries of the plan's list.
/// Their chunks stand one behind the other, and N is how many there are. Requires: B = 1.
PreparedInverses prepare_inverses(const Bf16Arguments&, const tile::PackedPlan&);
/// The tensor map of that workspace; a bulk copy brings the rows of a chunk.
TensorMap map_of(const PreparedInverses&, const Bf16Arguments&);
/// Bytes of that workspace.
std::int64_t prepared_inverses_memory(const Bf16Arguments&);
std::int64_t prepared_inverses_memory(const Bf16Arguments&, const tile::PackedPlan&);

}  // namespace tutorial::delta_rule
