#pragma once
/// @file
/// What the tensor-core stages compute from q, k, g and beta before any product with v or a state: everything that
/// depends on a single chunk, once for all tiles of Dv (prepare.cu). The formulas are those of 2_chunkwise.cpp: T and
/// P, and the rows Q+, K+ (decayed from the chunk's start) and K- (decayed to its end). With these, a chunk is
///
///     v_new = T (V - K+ S),   O = scale (Q+ S + P v_new),   S = diag(exp(b_end)) S + K-^T v_new
///
/// With `normalize_keys`, everything here is that of the normalised keys.
/// Source: arXiv 2510.26692, section 3.1.

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "05_deltanet_wy/delta_rule_backward/for_gradients.hpp"
#include "05_deltanet_wy/kda.hpp"

namespace tutorial::kda {

/// The rows of all chunks in device memory. Sequences are padded to N whole chunks of 64 with positions where q, k and
/// beta are 0 and gates 1.
struct PreparedRows {
  int N;                 ///< chunks of a sequence
  __nv_bfloat16* Q;      ///< [B, H, 64 N, Dk], Q+
  __nv_bfloat16* K;      ///< [B, H, 64 N, Dk], K+
  __nv_bfloat16* K_end;  ///< [B, H, 64 N, Dk], K-
  float* decays;         ///< [B, H, N, Dk], exp(b_end) of each chunk
};

/// The rows, with T and P as in delta_rule/prepared.hpp.
struct Prepared : PreparedRows {
  uint4* T;  ///< [B, H, N, 2, 10, 32], bf16: T rounded, and its rounding error
  uint4* P;  ///< [B, H, N, 10, 32], bf16
};

/// Fills a workspace, with one kernel on current_stream(). It is valid until the next call. Requires: an empty
/// tensor_core_unsupported().
/// @throws CudaError if the memory cannot be allocated or the launch is refused
Prepared prepare(const Bf16Arguments&, const delta_rule::ForGradients& = {});
/// Bytes of that workspace.
std::int64_t prepared_memory(const Bf16Arguments&);

/// The same for bulk copies: T and P as rows, like delta_rule's PreparedTiles.
struct PreparedTiles : PreparedRows {
  __nv_bfloat16* tiles;  ///< [B, H, N, 3, 64, 64]: -T rounded, its rounding error, P
};

/// As prepare().
PreparedTiles prepare_tiles(const Bf16Arguments&);
/// Bytes of that workspace.
std::int64_t prepared_tiles_memory(const Bf16Arguments&);

/// What `two_products` reads. With Y = V - K+ S, v_new is T Y, and T is multiplied into what v_new would be multiplied
/// by. Both products have the sign of -Y, because wgmma only adds.
///
///     S = diag(exp(b_end)) S + J^T Y,   O = scale (Q+ S + R Y);   J = T^T K-,   R = P T
struct PreparedUpdates {
  int N;             ///< chunks of a sequence
  __nv_bfloat16* Q;  ///< [B, H, 64 N, Dk], Q+
  __nv_bfloat16* K;  ///< [B, H, 64 N, Dk], K+
  __nv_bfloat16* J;  ///< [B, H, 64 N, Dk], -J
  __nv_bfloat16* R;  ///< [B, H, 64 N, 64], -R
  float* decays;     ///< [B, H, N, Dk], exp(b_end) of each chunk
};

/// As prepare(). Requires: a GPU of compute capability 9.0.
PreparedUpdates prepare_updates(const Bf16Arguments&);
/// The workspace alone, for a stage that fills it in another way.
/// @throws CudaError if the memory cannot be allocated
PreparedUpdates reserve_updates(const Bf16Arguments&);
/// Starts the walk of `two_products` on current_stream(). Requires: an empty warpgroup_chain_unsupported().
/// @throws CudaError if the launch is refused
void walk_with_updates(const Bf16Arguments&, const PreparedUpdates&);
/// Bytes of that workspace.
std::int64_t prepared_updates_memory(const Bf16Arguments&);

/// Columns of Dv in a block of `specialized_warps` on this GPU: 32 or 64.
/// @throws CudaError if there is no device
int walk_columns(const Bf16Arguments&);

}  // namespace tutorial::kda
