#pragma once
/// @file
/// What prepare_gated.hpp has, of packed sequences.

#include <cstdint>

#include "05_deltanet_wy/gated_delta_rule/prepare_gated.hpp"
#include "common/packed_sequences.hpp"

namespace tutorial::gated_delta_rule {

/// As prepare() of sequences of one length, with chunks numbered as in common/tile/packed_chunks.cuh.
Prepared prepare(const PackedSequences<Bf16Arguments>&, const delta_rule::ForGradients&);
/// Bytes of that workspace.
std::int64_t prepared_memory(const PackedSequences<Bf16Arguments>&);

}  // namespace tutorial::gated_delta_rule
