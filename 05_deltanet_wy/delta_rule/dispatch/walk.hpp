#pragma once
/// @file
/// What dispatch chooses between, and the kernel behind it: `specialized_warps` for every width of the tensor cores,
/// with normalised keys, and with the number of columns per block that suits the number of heads.

#include "05_deltanet_wy/delta_rule.hpp"
#include "05_deltanet_wy/delta_rule/prepared.hpp"

namespace tutorial::delta_rule {

/// Whether dispatch takes the walk of `segments`: on Hopper, if bulk copies support the tensors and keys need not be
/// normalised.
bool runs_on_warpgroups(const Bf16Arguments&);

/// Starts the walk over all chunks on current_stream(). Requires: an empty walk_unsupported().
/// @throws CudaError if the launch is refused
void walk(const Bf16Arguments&, const Prepared&);
/// Why the problem is not supported, as a sentence; empty if it is.
std::string walk_unsupported(const Bf16Arguments&);
/// Columns of Dv per block, 32 or 64.
int walk_columns(const Bf16Arguments&);

}  // namespace tutorial::delta_rule
