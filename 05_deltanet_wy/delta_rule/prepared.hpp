#pragma once
/// @file
/// What the tensor-core stages make of q, k and beta before any product with v or a state: all that depends on one
/// chunk alone, once, whatever the number of tiles of Dv (prepare.cu).
///
///     A   = tril(diag(beta) K K^T, -1)
///     T   = (I + A)^-1 diag(beta)
///     P   = (Q K^T) . M                   M_ti = 1 where i <= t, else 0
///
/// so that a chunk is nothing but products:
///
///     residual = V - K S,   v_new = T residual,   O = scale (Q S + P v_new),   S = S + K^T v_new
///
/// With `normalize_keys` K is diag(f) K in all of these, f = 1 / sqrt(k_t . k_t + eps): so A is. In P and in what the
/// walk loads, K stays as it is; the walk applies f (walk_chunk.cuh).
/// Source: Yang et al., arXiv 2406.06484, section 3.2.

#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/delta_rule.hpp"
#include "common/device/tensor_map.hpp"

namespace tutorial::delta_rule {

/// In device memory. Sequences are filled up to N whole chunks of 64 with positions where q, k and beta are 0. Of T and
/// P the ten blocks of 16 x 16 on and below the diagonal are kept (blocks.hpp numbers them), each as the B fragments of
/// its transpose, for the left and the right 8 columns (mma.cuh): 32 lanes of 16 bytes.
struct Prepared {
  int N;           ///< chunks of a sequence
  uint4* T;        ///< [B, H, N, 2, 10, 32], bf16: T rounded, and what rounding leaves out of it (split.cuh)
  uint4* P;        ///< [B, H, N, 10, 32], bf16
  float* factors;  ///< f [B, H, 64 N]; 1 where keys are not normalised
};

/// Fills a workspace, with one kernel on current_stream(). It holds until the next call. Requires: an empty
/// tile::tensor_core_unsupported().
/// @throws CudaError if the memory is not there or the launch is refused
Prepared prepare(const Bf16Arguments&);
/// Bytes of that workspace.
std::int64_t prepared_memory(const Bf16Arguments&);

/// Rows of a chunk in PreparedTiles.
inline constexpr int kPreparedRows = 3 * 64;

/// The same in device memory as rows, for bulk copies and warpgroup products: -T rounded, what rounding leaves out of
/// it, and P, 64 rows each. T has the opposite sign because wgmma only adds (warpgroup_products.cuh).
struct PreparedTiles {
  int N;                 ///< chunks of a sequence
  __nv_bfloat16* tiles;  ///< [B, H, N, 3, 64, 64]
};

/// As prepare(). Keys are not normalised.
PreparedTiles prepare_tiles(const Bf16Arguments&);
/// The map of that workspace: rows of 64 columns, kPreparedRows for each chunk. Requires: a GPU of compute capability 9.0.
/// @param box rows that a bulk copy brings
TensorMap map_of(const PreparedTiles&, const Bf16Arguments&, int box = kPreparedRows);
/// Bytes of that workspace.
std::int64_t prepared_tiles_memory(const Bf16Arguments&);

}  // namespace tutorial::delta_rule
