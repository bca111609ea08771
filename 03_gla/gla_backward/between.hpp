#pragma once
/// @file
/// What the kernels of the gradients leave for each other in device memory.

#include <cuda_bf16.h>

#include <cstdint>

#include "03_gla/gla/prepare.hpp"
#include "03_gla/gla_backward.hpp"

namespace tutorial::gla {

/// What the kernels leave for each other in device memory.
struct Between {
  Prepared prepared;  ///< q~, k~, decays and scores; in `one_anchor` also other rows
  __nv_bfloat16* S;   ///< [B, H, N + 1, Dv, Dk]: the transposed states after n chunks. `materialized` has other tiles
  __nv_bfloat16* dS;  ///< likewise: the gradient of the state after n chunks, divided by scale. In `one_anchor` it has
                      ///< the decay of the chunk before it, if that has an anchor, and number 0 is not there
};

/// The operator's arguments.
inline Bf16Arguments forward_of(const Bf16BackwardArguments& a) {
  return {a.B, a.H, a.L, a.Dk, a.Dv, a.C, a.scale, a.q, a.k, a.v, a.g, a.initial_state, {}, {}};
}
/// Reserves memory for what the kernels leave for each other. It is valid until the next call.
/// @throws CudaError if the memory cannot be allocated
Between reserve_between(const Bf16BackwardArguments&);

}  // namespace tutorial::gla
