#pragma once
/// @file
/// The gradients of simple_gla as those of gla, chapter 03's operator: the scalar gate is repeated for each of the Dk rows
/// of the state, and its gradient is the sum of the repetitions' gradients. dispatch uses it for widths whose tiles do not
/// fit into a block's shared memory on this GPU.

#include "04_fused_chunk/simple_gla_backward.hpp"

namespace tutorial::simple_gla {

/// Computes the gradients with chapter 03's dispatch. Requires: an empty as_gla_backward_unsupported().
/// @throws CudaError if the memory cannot be allocated or a launch is refused
void dispatch_as_gla_backward(const Bf16BackwardArguments&);
/// Why that is not possible, as a sentence; empty if it is.
std::string as_gla_backward_unsupported(const Bf16BackwardArguments&);
/// What chapter 03's dispatch picks.
std::string as_gla_backward_note(const Bf16BackwardArguments&);
/// Bytes of the workspace: the repeated gates, their gradients, and what chapter 03's dispatch takes.
std::int64_t as_gla_backward_memory(const Bf16BackwardArguments&);

}  // namespace tutorial::simple_gla
