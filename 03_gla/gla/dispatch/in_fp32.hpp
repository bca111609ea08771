#pragma once
/// @file
/// dispatch for bf16 problems that the tensor-core stages do not support: three kernels copy q, k and v to fp32,
/// dispatch for fp32 computes o, and one kernel copies o back.

#include "03_gla/gla.hpp"

namespace tutorial::gla {

/// Starts all of these kernels on current_stream().
/// @throws CudaError if the memory cannot be allocated or a launch is refused
void dispatch_in_fp32(const Bf16Arguments&);

std::string in_fp32_unsupported(const Bf16Arguments&);  ///< why it cannot run, as a sentence; empty if it can
std::string in_fp32_note(const Bf16Arguments&);         ///< the stage that computes it
std::int64_t in_fp32_memory(const Bf16Arguments&);      ///< bytes of the copies, and of that stage

}  // namespace tutorial::gla
