#pragma once
/// @file
/// The operator on packed sequences, as `--lengths` runs it. Errors and requirements are as in linear_attention.hpp.

#include <cstdint>
#include <string>

#include "02_chunkwise/linear_attention.hpp"
#include "common/packed_sequences.hpp"

namespace tutorial::linear_attention {

// With tensors in fp32, and with q, k, v and o in bf16.
using PackedFloatArguments = PackedSequences<FloatArguments>;
using PackedBf16Arguments = PackedSequences<Bf16Arguments>;

void packed_walk(const PackedBf16Arguments&);      ///< GPU: `segments` with sequences that begin where they are said to
void dispatch_packed(const PackedBf16Arguments&);  ///< what a user calls

// Why they cannot run the problem, what dispatch chooses, and the bytes that they need in addition to inputs and outputs.
std::string packed_unsupported(const PackedBf16Arguments&);
std::int64_t packed_memory(const PackedBf16Arguments&);
std::string dispatch_packed_unsupported(const PackedBf16Arguments&);
std::string dispatch_packed_note(const PackedBf16Arguments&);
std::int64_t dispatch_packed_memory(const PackedBf16Arguments&);

}  // namespace tutorial::linear_attention
