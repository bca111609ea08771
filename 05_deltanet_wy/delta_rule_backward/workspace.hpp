#pragma once
/// @file
/// What the walks leave in device memory, and the last kernel, which takes it from there. `both_ends` has other walks.

#include <cuda_runtime.h>

#include "05_deltanet_wy/chunk/prepare.hpp"
#include "05_deltanet_wy/delta_rule_backward.hpp"

namespace tutorial::delta_rule {

/// What the kernels pass on to each other in device memory. They also read dv, which is an output.
struct Workspace : Prepared {
  View<__nv_bfloat16> v_new;  ///< [B, H, L, Dv]
  View<__nv_bfloat16>
      v_errors;  ///< the same: what rounding leaves out, of marked chunks (chunk/alike_keys.cuh); or null
  uint4* S;      ///< [B, H, N, Dv / 16, Dk / 16, 32]: before each chunk; A fragments of S^T
  uint4* dS;     ///< the same of dS^T, after each chunk
};

/// Memory for it, with T and P, for which it starts prepare(). @param name of the memory
/// @throws CudaError if the memory cannot be allocated or a launch is refused
Workspace workspace_of(const Bf16BackwardArguments&, const char* name);

/// Starts the kernel that computes dq, dk and dbeta of all chunks.
/// @throws CudaError if the launch is refused
void start_gradients(const Bf16BackwardArguments&, const Workspace&);

}  // namespace tutorial::delta_rule
