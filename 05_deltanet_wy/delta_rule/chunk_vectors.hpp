#pragma once
/// @file
/// What stage 6's first two kernels make of every chunk, for those after them and for the tests.

#include "05_deltanet_wy/delta_rule.hpp"

namespace tutorial::delta_rule {

/// All fp32 in device memory, in the stage's workspace.
struct ChunkVectors {
  float* T = nullptr;        ///< [B, H, N, C, C], N = ceil(L / C); rows past the end of L are zeros
  View<float> W = {};        ///< [B, H, L, Dk] = T K
  View<float> U = {};        ///< [B, H, L, Dv] = T V
  View<float> written = {};  ///< [B, H, L, Dv] = U' = U - W S
  float* states = nullptr;   ///< [B, H, N, Dk, Dv]: what each chunk starts from
  View<float> factors = {};  ///< [B, H, L]: of the keys, where they are to be normalised; else data is null
};

/// Starts the kernels for T, W and U alone, and waits for none. Needs: no chunk_gpu_limits().
/// @throws CudaError if the memory is not there or a launch is refused
ChunkVectors chunk_vectors(const FloatArguments&);

}  // namespace tutorial::delta_rule
