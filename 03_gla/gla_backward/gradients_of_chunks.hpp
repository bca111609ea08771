#pragma once
/// @file
/// The gradients of all chunks at once, from their states: the second kernel of `materialized`, which explains it, and
/// what the kernels leave for each other.

#include <cuda_bf16.h>

#include <cstdint>
#include <string>

#include "03_gla/gla/prepared.hpp"
#include "03_gla/gla_backward.hpp"

namespace tutorial::gla {

/// What the kernels leave for each other in device memory.
struct Between {
  Prepared prepared;  ///< q~, k~, decays and scores; in `one_anchor` also other rows
  __nv_bfloat16* S;   ///< [B, H, N + 1, Dv / 8, Dk / 8, 8, 8]: the states after n chunks
  __nv_bfloat16* dS;  ///< likewise: the gradient of the state after n chunks, divided by scale. In `one_anchor` it has
                      ///< the decay of the chunk before it, if that has an anchor, and number 0 is not there
};

/// The operator's arguments.
Bf16Arguments forward_of(const Bf16BackwardArguments&);

/// Reserves memory for what the kernels leave for each other. It is valid until the next call of this function or of
/// prepare_gradients().
/// @throws CudaError if the memory cannot be allocated
Between reserve_between(const Bf16BackwardArguments&);

/// Starts prepare() on current_stream(), and reserves memory for the states. It is valid until the next call.
/// @throws CudaError if the memory cannot be allocated or the launch is refused
Between prepare_gradients(const Bf16BackwardArguments&);
/// Starts the kernel that computes all gradients but dinitial_state, when the states have been computed. It starts
/// early (common/device/early_start.cuh).
/// @throws CudaError if the launch is refused
void compute_gradients(const Bf16BackwardArguments&, const Between&);
/// Why it cannot; empty if it can.
std::string gradients_unsupported(const Bf16BackwardArguments&);
/// Bytes of what the kernels leave for each other.
std::int64_t between_memory(const Bf16BackwardArguments&);

}  // namespace tutorial::gla
