#pragma once
/// @file
/// What the tensor-core stages make of q, k and beta before any product with v or a state: all that depends on one
/// chunk alone, once, whatever the number of tiles of Dv (prepare.cu).
///
///     f   = 1 / sqrt(k_t . k_t + eps) with `normalize_keys`, else 1         makes a key one of length 1
///     T   = -(I + A)^-1 diag(beta),  A = tril(diag(beta f) K K^T diag(f), -1)
///     P   = (Q K^T) . M                                                     M_ti = 1 where i <= t, else 0
///
/// so that a chunk is, with N = -S, keys as they are and nothing but sums:
///
///     U' = diag(f) T (V + diag(f) K N),   -O = scale (Q N + P U'),   N = N + K^T U'
///
/// (This U' is -f times that of the README. There K is diag(f) K, so K^T U' and P U' are the same but for their signs.)
/// Source: Yang et al., arXiv 2406.06484, section 3.2.

#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/delta_rule.hpp"

namespace tutorial::delta_rule {

/// In device memory. Sequences are filled up to N whole chunks of 64 with positions where q, k and beta are 0. Of T and
/// P the ten blocks of 16 x 16 on and below the diagonal are kept (blocks.hpp numbers them),
/// each as the fragments B of its transpose, for the left and the right 8 columns (mma.cuh): 32 lanes of 16 bytes.
struct Prepared {
  int N;           ///< chunks of a sequence
  uint4* T;        ///< [B, H, N, 2, 10, 32], bf16: T rounded, and what that leaves of it (split.cuh)
  uint4* P;        ///< [B, H, N, 10, 32], bf16
  float* factors;  ///< f [B, H, 64 N]
};

/// Fills a workspace, with one kernel on current_stream(). It holds until the next call. Needs: no
/// tensor_core_limits().
/// @throws CudaError if the memory is not there or the launch is refused
Prepared prepare(const HalfArguments&);
/// Bytes of that workspace.
std::int64_t prepared_memory(const HalfArguments&);
/// Bytes that the kernel asks global memory for or gives to it.
std::int64_t prepared_moved(const HalfArguments&);

}  // namespace tutorial::delta_rule
