#pragma once
/// @file
/// prepare() of the gated operator with -T and P as rows, for bulk copies.

#include "05_deltanet_wy/chunk/for_gradients.hpp"
#include "05_deltanet_wy/chunk/prepare.hpp"
#include "05_deltanet_wy/gated_delta_rule.hpp"

namespace tutorial::gated_delta_rule {

/// As Prepared, with rows in the place of fragments.
struct PreparedTiles : delta_rule::PreparedTiles {
  float* decays;  ///< as in Prepared
};

/// As prepare(), but T and P cannot be had once more. The next kernel may start early (common/device/early_start.cuh).
PreparedTiles prepare_tiles(const Bf16Arguments&, const delta_rule::ForGradients& = {});
/// Bytes of that workspace.
std::int64_t prepared_tiles_memory(const Bf16Arguments&);

}  // namespace tutorial::gated_delta_rule
