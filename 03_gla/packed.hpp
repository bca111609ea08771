#pragma once
/// @file
/// `gla` on packed sequences, as `--lengths` runs it. Errors and requirements are as in gla.hpp.

#include <cstdint>
#include <string>

#include "03_gla/gla.hpp"
#include "common/packed_sequences.hpp"

namespace tutorial::gla {

/// With q, k, v and o in bf16.
using PackedBf16Arguments = PackedSequences<Bf16Arguments>;

void dispatch_packed(const PackedBf16Arguments&);  ///< what a user calls

// Why it cannot run the problem, what it chooses, and the bytes that it needs in addition to inputs and outputs.
std::string dispatch_packed_unsupported(const PackedBf16Arguments&);
std::string dispatch_packed_note(const PackedBf16Arguments&);
std::int64_t dispatch_packed_memory(const PackedBf16Arguments&);

}  // namespace tutorial::gla
