#pragma once
/// @file
/// What the stage on tensor cores computes from q, k, beta and g before any product with v or a state (prepare_gated.cuh).
/// chunk/prepare.hpp has the same without gates. With the running sums b_t of a chunk and f_t = 1 / sqrt(k_t .
/// k_t + eps), or 1 if keys are not normalised,
///
///     A_ti = beta_t f_t f_i (k_t . k_i) exp(b_t - b_i)    for i < t, else 0
///     T    = diag(f) (I + A)^-1 diag(beta)
///     P_ti = (q_t . k_i) exp(b_t - b_i)                   for i <= t, else 0
///
/// With these a chunk is nothing but products. The diagonal matrices are the three rows of `decays`:
///
///     residual = V - diag(f exp(b)) K S,   v_new = T residual,   O = scale (diag(exp(b)) Q S + P v_new)
///     S        = exp(b_e) S + K^T diag(exp(b_e - b)) v_new
///
/// v_new contains f, the factor of the key that it is multiplied by next: P and the K that the walk loads do not.

#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/chunk/for_gradients.hpp"
#include "05_deltanet_wy/chunk/prepare.hpp"
#include "05_deltanet_wy/gated_delta_rule.hpp"

namespace tutorial::gated_delta_rule {

/// The rows of a chunk's decays.
enum DecayRow {
  kOfKeys,     ///< f exp(b), of K S
  kOfQueries,  ///< exp(b), of Q S; the last is exp(b_e), that of the whole chunk
  kToEnd,      ///< exp(b_e - b), of v_new on its way into the state
  kDecayRows   ///< how many rows there are
};

/// Decays of a chunk.
inline constexpr int kDecays = kDecayRows * 64;

/// In device memory. Sequences are padded to N whole chunks of 64 with positions where q, k, beta and g are 0. T and P
/// are stored as in chunk/prepare.hpp.
struct Prepared {
  int N;          ///< chunks of a sequence
  uint4* T;       ///< [B, H, N, 2, 10, 32], bf16: T rounded, and its rounding error
  uint4* P;       ///< [B, H, N, 10, 32], bf16
  float* decays;  ///< [B, H, N, 3, 64]: f exp(b), exp(b) and exp(b_e - b)
};

/// Fills a workspace, with one kernel on current_stream(). The workspace is valid until the next call. Requires: an
/// empty tile::tensor_core_unsupported().
/// @throws CudaError if the memory cannot be allocated or the launch is refused
Prepared prepare(const Bf16Arguments&, const delta_rule::ForGradients& = {});
/// Bytes of that workspace.
std::int64_t prepared_memory(const Bf16Arguments&);

}  // namespace tutorial::gated_delta_rule
