#pragma once
/// @file
/// What the tensor-core stages make of q, k and the gates before any product with v or a state: all that depends on
/// one sub-chunk alone, once, whatever the number of tiles of Dv (prepare.cu).
///
/// A sub-chunk has c = 16 positions, 1 to 16 say. With a_t = 2^(g_t / ln 2) the gates of position t, one for each of
/// the Dk elements:
///
///     q_t   a_1 ... a_t            what of the state before the sub-chunk reaches query t
///     k_i   a_(i+1) ... a_16       what of key i reaches the sub-chunk's end
///           a_1 ... a_16           what of the state reaches the end: the sub-chunk's decay
///     P_ti = sum_d q_td k_id a_(i+1)d ... a_td, i <= t       the scores of its own pairs
///
/// All of these are products of numbers between 0 and 1. Source: Yang et al., arXiv 2312.06635, section 4.3, for the
/// two levels.

#include <cuda_bf16.h>

#include <cstdint>

#include "03_gla/gla.hpp"

namespace tutorial::gla {

inline constexpr int kSubChunk = 16;  ///< positions of a sub-chunk, c

/// In device memory. Sequences are filled up to N whole chunks of 64 with positions where k is 0 and gates are 1, so
/// that they leave the state alone. q~ and scores of these positions are of the last q: outputs that nobody stores.
struct Prepared {
  int N;                  ///< chunks of a sequence
  __nv_bfloat16* q;       ///< [B, H, 64 N, Dk], decayed from the start of their sub-chunk
  __nv_bfloat16* k;       ///< [B, H, 64 N, Dk], decayed to the end of their sub-chunk
  float* decays;          ///< [B, H, 4 N, Dk], of whole sub-chunks
  __nv_bfloat16* scores;  ///< [B, H, 4 N, 2, 16, 8]: P_ti of a sub-chunk in [t / 8][i][t % 8]
};

/// Fills a workspace, with one kernel on current_stream(). It holds until the next call. Needs: no subchunk_limits().
/// @throws CudaError if the memory is not there or the launch is refused
Prepared prepare(const HalfArguments&);
/// Bytes of that workspace.
std::int64_t prepared_memory(const HalfArguments&);

/// Why the tensor-core stages cannot run this, as a sentence; empty where they can.
std::string subchunk_limits(const HalfArguments&);

}  // namespace tutorial::gla
