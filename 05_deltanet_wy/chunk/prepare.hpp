#pragma once
/// @file
/// What the tensor-core stages compute from q, k and beta before any product with v or a state: everything that depends
/// on a single chunk. It is computed once, for any number of tiles of Dv (prepare.cu).
///
///     A   = tril(diag(beta) K K^T, -1)
///     T   = (I + A)^-1 diag(beta)
///     P   = (Q K^T) . M                   M_ti = 1 where i <= t, else 0
///
/// With T and P, a chunk is nothing but products:
///
///     residual = V - K S,   v_new = T residual,   O = scale (Q S + P v_new),   S = S + K^T v_new
///
/// With `normalize_keys`, diag(f) K takes the place of K in all of these, with f_t = 1 / sqrt(k_t . k_t + eps). A
/// already contains f. P and the K that the walk loads do not; the walk applies f to them (warp_products.cuh).
/// Source: Yang et al., arXiv 2406.06484, section 3.2.

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "05_deltanet_wy/delta_rule.hpp"
#include "common/device/tensor_map.hpp"

namespace tutorial::delta_rule {

/// T and P in device memory. Sequences are padded to N whole chunks of 64 with positions where q, k and beta are 0. Of
/// T and P the ten blocks of 16 x 16 on and below the diagonal are kept (blocks.hpp numbers them), each as the B
/// fragments of its transpose, for the left and the right 8 columns (mma.cuh): 32 lanes of 16 bytes.
struct Prepared {
  int N;           ///< chunks of a sequence
  uint4* T;        ///< [B, H, N, 2, 10, 32], bf16: T rounded, and its rounding error (split.cuh)
  uint4* P;        ///< [B, H, N, 10, 32], bf16
  float* factors;  ///< f [B, H, 64 N]; 1 if keys are not normalised
};

/// Fills a workspace, with one kernel on current_stream(). The workspace is valid until the next call. Requires: an
/// empty tile::tensor_core_unsupported().
/// @param least_beta in the place of every beta below it
/// @throws CudaError if the memory cannot be allocated or the launch is refused
Prepared prepare(const Bf16Arguments&, float least_beta = -INFINITY);
/// Bytes of that workspace.
std::int64_t prepared_memory(const Bf16Arguments&);

/// Rows of a chunk in PreparedTiles.
inline constexpr int kPreparedRows = 3 * 64;

/// The same in device memory as rows, for bulk copies and warpgroup products: -T rounded, its rounding error, and P, 64
/// rows each. T has the opposite sign because wgmma only adds (warpgroup_products.cuh).
struct PreparedTiles {
  int N;                 ///< chunks of a sequence
  __nv_bfloat16* tiles;  ///< [B, H, N, 3, 64, 64]
};

/// As prepare(), but keys are not normalised. The next kernel may start early (common/device/early_start.cuh).
PreparedTiles prepare_tiles(const Bf16Arguments&, float least_beta = -INFINITY);
/// The same without P, whose rows are not written, and which takes no q.
PreparedTiles prepare_tiles_of_T(const Bf16Arguments&);
/// The tensor map of that workspace: rows of 64 columns, kPreparedRows per chunk. Requires: a GPU of compute capability
/// 9.0.
/// @param box rows that a bulk copy brings
TensorMap map_of(const PreparedTiles&, const Bf16Arguments&, int box = kPreparedRows);
/// Bytes of that workspace.
std::int64_t prepared_tiles_memory(const Bf16Arguments&);

}  // namespace tutorial::delta_rule
