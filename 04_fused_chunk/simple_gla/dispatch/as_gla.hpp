#pragma once
/// @file
/// simple_gla as gla, chapter 03's operator, whose dispatch supports every width: the scalar gate is repeated for each
/// of the Dk rows of the state. dispatch uses it for problems that the tensor-core stages do not support.

#include "04_fused_chunk/simple_gla.hpp"

namespace tutorial::simple_gla {

/// Repeats the gates g [B, H, L] for each of Dk rows of the state. @param gates [B, H, L, Dk]
/// @throws CudaError if the launch is refused
void repeat_gates(const View<const float>& g, int B, int H, int L, int Dk, float* gates);

/// Computes the operator with chapter 03's dispatch. Requires: an empty as_gla_unsupported().
/// @throws CudaError if the memory cannot be allocated or a launch is refused
void dispatch_as_gla(const Bf16Arguments&);
/// Why that is not possible, as a sentence; empty if it is.
std::string as_gla_unsupported(const Bf16Arguments&);
/// What chapter 03's dispatch picks.
std::string as_gla_note(const Bf16Arguments&);
/// Bytes of the workspace: the repeated gates and what chapter 03's dispatch takes.
std::int64_t as_gla_memory(const Bf16Arguments&);

}  // namespace tutorial::simple_gla
