#pragma once
/// @file
/// prepare() of kda for gradients that are right where keys are alike.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "05_deltanet_wy/chunk/for_gradients.hpp"
#include "05_deltanet_wy/kda/prepare_decayed.hpp"
#include "common/packed_sequences.hpp"

namespace tutorial::kda {

/// Where what rounding leaves out goes in chunks that are marked (chunk/alike_keys.cuh).
struct RoundingErrors {
  __nv_bfloat16* K;  ///< of K-, [B, H, 64 N, Dk]
  uint4* P;          ///< of P as it is in ForGradients::blocks, [B, H, N, 10, 32]
};

/// prepare(), with T, P and the errors of marked chunks computed from scores in fp32.
/// @throws CudaError if the memory cannot be allocated or the launch is refused
Prepared prepare_marked(const Bf16Arguments&, const delta_rule::ForGradients&, const RoundingErrors&);
/// The same of packed sequences.
Prepared prepare_marked(const PackedSequences<Bf16Arguments>&, const delta_rule::ForGradients&, const RoundingErrors&);

}  // namespace tutorial::kda
