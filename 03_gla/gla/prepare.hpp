#pragma once
/// @file
/// What the tensor-core stages compute from q, k and g before any product with v or a state: everything that depends on
/// one sub-chunk alone, once for all tiles of Dv (prepare.cu).
///
/// A sub-chunk has c = 16 positions, here 1 to 16. exp(g_t) are the gates of position t, one for each of the Dk
/// elements:
///
///     q~_t = q_t . exp(g_1) ... exp(g_t)              decayed from the sub-chunk's start: multiplies the state there
///     k~_i = k_i . exp(g_(i+1)) ... exp(g_16)         decayed to its end: what the state gets of key i
///     D = exp(g_1) ... exp(g_16)                      the sub-chunk's decay, by which the state is multiplied
///     P_ti = sum_d q_td k_id exp(g_(i+1)d) ... exp(g_td), i <= t       the scores of the sub-chunk with itself
///
/// All of these are products of numbers between 0 and 1. Source: Yang et al., arXiv 2312.06635, section 4.3, for the
/// two levels.

#include <cuda_bf16.h>

#include <cstdint>

#include "03_gla/gla.hpp"
#include "common/tile/sub_chunk.hpp"

namespace tutorial::gla {

/// In device memory. Sequences are padded to N whole chunks of 64 with positions whose k is 0 and whose gates are 1,
/// which leave the state as it is. Their q~ and scores are those of the last q and unused.
struct Prepared {
  int N;                  ///< chunks of a sequence
  __nv_bfloat16* q;       ///< [B, H, 64 N, Dk], q~
  __nv_bfloat16* k;       ///< [B, H, 64 N, Dk], k~
  float* decays;          ///< [B, H, 4 N, Dk], D of each sub-chunk
  __nv_bfloat16* scores;  ///< [B, H, 64 N, 16]: P_ti of a sub-chunk in row i, column t
};

/// Reserves the workspace that prepare() fills. It is valid until the next call of either.
/// @throws CudaError if the memory cannot be allocated
Prepared reserve_prepared(const Bf16Arguments&);
/// Fills a workspace, with one kernel on current_stream(). It is valid until the next call. Requires: an empty
/// subchunk_walk_unsupported().
/// @throws CudaError if the memory cannot be allocated or the launch is refused
Prepared prepare(const Bf16Arguments&);
/// Bytes of that workspace.
std::int64_t prepared_memory(const Bf16Arguments&);

}  // namespace tutorial::gla
