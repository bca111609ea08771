#pragma once
/// @file
/// The gradients of packed sequences, as `--backward --lengths` computes them. Errors and requirements are as
/// in the headers of the gradients.

#include <cstdint>
#include <string>

#include "05_deltanet_wy/delta_rule_backward.hpp"
#include "05_deltanet_wy/gated_delta_rule_backward.hpp"
#include "05_deltanet_wy/kda_backward.hpp"
#include "common/packed_sequences.hpp"

namespace tutorial::delta_rule {

/// With all but beta and the states in bf16.
using PackedBf16BackwardArguments = PackedSequences<Bf16BackwardArguments>;

void dispatch_packed_backward(const PackedBf16BackwardArguments&);  ///< what a user calls

// Why it cannot run the problem, what it chooses, and the bytes that it needs in addition to inputs and outputs.
std::string dispatch_packed_backward_unsupported(const PackedBf16BackwardArguments&);
std::string dispatch_packed_backward_note(const PackedBf16BackwardArguments&);
std::int64_t dispatch_packed_backward_memory(const PackedBf16BackwardArguments&);

}  // namespace tutorial::delta_rule

namespace tutorial::gated_delta_rule {

/// With all but gates, beta and the states in bf16.
using PackedBf16BackwardArguments = PackedSequences<Bf16BackwardArguments>;

void dispatch_packed_backward(const PackedBf16BackwardArguments&);  ///< what a user calls

// Why it cannot run the problem, what it chooses, and the bytes that it needs in addition to inputs and outputs.
std::string dispatch_packed_backward_unsupported(const PackedBf16BackwardArguments&);
std::string dispatch_packed_backward_note(const PackedBf16BackwardArguments&);
std::int64_t dispatch_packed_backward_memory(const PackedBf16BackwardArguments&);

}  // namespace tutorial::gated_delta_rule

namespace tutorial::kda {

/// With all but gates, beta and the states in bf16.
using PackedBf16BackwardArguments = PackedSequences<Bf16BackwardArguments>;

void dispatch_packed_backward(const PackedBf16BackwardArguments&);  ///< what a user calls

// Why it cannot run the problem, what it chooses, and the bytes that it needs in addition to inputs and outputs.
std::string dispatch_packed_backward_unsupported(const PackedBf16BackwardArguments&);
std::string dispatch_packed_backward_note(const PackedBf16BackwardArguments&);
std::int64_t dispatch_packed_backward_memory(const PackedBf16BackwardArguments&);

}  // namespace tutorial::kda
