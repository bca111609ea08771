#pragma once
/// @file
/// What the tensor-core stages compute from q, k, g and beta before any product with v or a state: everything that
/// depends on a single chunk, once for all tiles of Dv (prepare_decayed.cuh). The formulas are those of 2_chunkwise.cpp: T and
/// P, and the rows Q+, K+ (decayed from the chunk's start) and K- (decayed to its end). With these, a chunk is
///
///     v_new = T (V - K+ S),   O = scale (Q+ S + P v_new),   S = diag(exp(b_end)) S + K-^T v_new
///
/// With `normalize_keys`, everything here is that of the normalised keys.
/// Source: arXiv 2510.26692, section 3.1.

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "05_deltanet_wy/chunk/for_gradients.hpp"
#include "05_deltanet_wy/kda.hpp"
#include "common/packed_sequences.hpp"

namespace tutorial::kda {

/// In device memory. Sequences are padded to N whole chunks of 64 with positions where q, k and beta are 0 and gates 1. T
/// and P are stored as in chunk/prepare.hpp.
struct Prepared {
  int N;                 ///< chunks of a sequence
  __nv_bfloat16* Q;      ///< [B, H, 64 N, Dk], Q+
  __nv_bfloat16* K;      ///< [B, H, 64 N, Dk], K+
  __nv_bfloat16* K_end;  ///< [B, H, 64 N, Dk], K-
  float* decays;         ///< [B, H, N, Dk], exp(b_end) of each chunk
  uint4* T;              ///< [B, H, N, 2, 10, 32], bf16: T rounded, and its rounding error
  uint4* P;              ///< [B, H, N, 10, 32], bf16
};

/// Fills a workspace, with one kernel on current_stream(). It is valid until the next call. Requires: an empty
/// tensor_core_unsupported().
/// @throws CudaError if the memory cannot be allocated or the launch is refused
Prepared prepare(const Bf16Arguments&, const delta_rule::ForGradients& = {});
/// The same of packed sequences, with chunks numbered as in common/tile/packed_chunks.cuh.
Prepared prepare(const PackedSequences<Bf16Arguments>&, const delta_rule::ForGradients&);
/// Bytes of that workspace, of sequences of one length, and where heads have N chunks.
std::int64_t prepared_memory(const Bf16Arguments&);
std::int64_t prepared_memory(const Bf16Arguments&, int N);

}  // namespace tutorial::kda
