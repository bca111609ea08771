#pragma once
/// @file
/// What the kernels of `warpgroups` read of a chunk that does not depend on v or a state: the rows and matrices of
/// kda/prepare_decayed.hpp, for bulk copies.

#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/kda.hpp"

namespace tutorial::kda {

/// 2 to that is the least decay of a chunk that has one anchor for its gradients, as for its scores (kda/chunk_anchor.cuh).
inline constexpr float kLeastPowerOfChunk = -100;

/// Rows of a chunk in PreparedChunks::matrices.
inline constexpr int kMatrixRows = 3 * 64;

/// In device memory. Sequences are padded to N whole chunks of 64 with positions where q, k and beta are 0 and gates 1.
struct PreparedChunks {
  int N;                    ///< chunks of a sequence
  __nv_bfloat16* Q;         ///< [B, H, 64 N, Dk], Q+
  __nv_bfloat16* K;         ///< [B, H, 64 N, Dk], K+
  __nv_bfloat16* K_end;     ///< [B, H, 64 N, Dk], K-
  __nv_bfloat16* matrices;  ///< [B, H, N, 3, 64, 64]: -T rounded, its rounding error, P
  float* decays;            ///< [B, H, N, Dk], exp(b_end), with a minus if the chunk has one anchor
  int* anchors;             ///< [B, H, N]: 1 if it has one, else 0. 32 chunks in a line of the cache
  float* factors;           ///< [B, H, 64 N] of keys that are to be normalised; null: they are as they are
  float* bounds;            ///< [B, H, N], of chunks (chunk/zero_starts.cuh); null: not wanted
  /// [B, H, 64 N, Dk], what rounding leaves out of K- in chunks that are marked (chunk/alike_keys.cuh). The marks are
  /// those of -T and of P
  __nv_bfloat16* K_errors;
  __nv_bfloat16* P_errors;  ///< [B, H, 64 N, 64], the same of P
};

/// Fills a workspace, with one kernel on current_stream(). It is valid until the next call. Every beta is at least
/// kLeastBeta. The next kernel may start early. Requires: an empty one_anchor_unsupported().
/// @param bounds where the bounds of chunks go, or null
/// @throws CudaError if the memory cannot be allocated or the launch is refused
PreparedChunks prepare_chunks(const Bf16Arguments&, float* bounds = nullptr);
/// Bytes of that workspace, without the bounds.
std::int64_t prepared_chunks_memory(const Bf16Arguments&);

}  // namespace tutorial::kda
