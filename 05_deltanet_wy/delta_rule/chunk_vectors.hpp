#pragma once
/// @file
/// What the first two kernels of `chunk_gpu` compute of every chunk, for the kernels after them and for the tests.

#include "05_deltanet_wy/delta_rule.hpp"

namespace tutorial::delta_rule {

/// All fp32 in device memory, in the stage's workspace.
struct ChunkVectors {
  float* T = nullptr;        ///< [B, H, N, C, C], N = ceil(L / C); rows past the end of L are zeros
  View<float> W = {};        ///< [B, H, L, Dk] = T K
  View<float> U = {};        ///< [B, H, L, Dv] = T V
  View<float> v_new = {};    ///< [B, H, L, Dv] = U - W S; filled later
  float* states = nullptr;   ///< [B, H, N, Dk, Dv]: what each chunk starts from; filled later
  View<float> factors = {};  ///< [B, H, L] = f, if keys are to be normalised; otherwise data is null
};

/// Starts the kernels for T, W and U. Requires: an empty chunk_gpu_unsupported().
/// @throws CudaError if the memory cannot be allocated or a launch is refused
ChunkVectors chunk_vectors(const FloatArguments&);

}  // namespace tutorial::delta_rule
