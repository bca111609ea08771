#pragma once
/// @file
/// What the tensor-core stages make of q, k and beta before any product with v or a state: all that depends on one
/// chunk alone, once, whatever the number of tiles of Dv (prepare.cu).
///
///     l   = sqrt(k_t . k_t + eps) with `normalize_keys`, else 1             the length by which a key is divided
///     X   = (I + A)^-1,  A = tril(diag(beta / l) K K^T diag(1 / l), -1)
///     T   = -diag(1 / l) X diag(beta / l)
///     P   = (Q K^T) . M                                                     M_ti = 1 where i <= t, else 0
///
/// so that a chunk is, with N = -S, keys as they are and nothing but sums:
///
///     U' = T (diag(l) V + K N),   -O = scale (Q N + P U'),   N = N + K^T U'
///
/// (This U' is -1 / l times that of the README: with K for K / l the products K^T U' are the same.)

#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/delta_rule.hpp"

namespace tutorial::delta_rule {

/// In device memory. Sequences are filled up to N whole chunks of 64 with positions where q, k and beta are 0. Of T and
/// P the ten blocks of 16 x 16 on and below the diagonal are kept (lower_block() of chunk_inverse.cuh numbers them),
/// each as the fragments B of its transpose, for the left and the right 8 columns (mma.cuh): 32 lanes of 16 bytes.
struct Prepared {
  int N;           ///< chunks of a sequence
  uint4* T;        ///< [B, H, N, 10, 32], fp16: walk_chunk.cuh says why
  uint4* P;        ///< [B, H, N, 10, 32], bf16
  float* lengths;  ///< l [B, H, 64 N]
};

/// Fills a workspace, with one kernel. Needs: no tensor_core_limits().
Prepared prepare(const HalfArguments&);
/// Bytes of that workspace.
std::int64_t prepared_memory(const HalfArguments&);
/// Bytes that the kernel asks global memory for or gives to it.
std::int64_t prepared_moved(const HalfArguments&);

}  // namespace tutorial::delta_rule
