#pragma once
/// @file
/// The operator `gla` on packed sequences with this chapter's kernels to choose from, as `--lengths` runs it. Its arguments
/// are chapter 03's. Errors and requirements are as in fused_gla.hpp.

#include <cstdint>
#include <string>

#include "03_gla/packed.hpp"
#include "04_fused_chunk/fused_gla.hpp"

namespace tutorial::fused_gla {

using gla::PackedBf16Arguments;

void dispatch_packed(const PackedBf16Arguments&);  ///< what a user calls

// Why it cannot run the problem, what it chooses, and the bytes that it needs in addition to inputs and outputs.
std::string dispatch_packed_unsupported(const PackedBf16Arguments&);
std::string dispatch_packed_note(const PackedBf16Arguments&);
std::int64_t dispatch_packed_memory(const PackedBf16Arguments&);

}  // namespace tutorial::fused_gla
