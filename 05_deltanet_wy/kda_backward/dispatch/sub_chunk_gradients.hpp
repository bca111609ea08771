#pragma once
/// @file
/// The gradients of the chunks that have no anchor, for `warpgroups` of `--backward`.

#include <cuda_bf16.h>

#include "05_deltanet_wy/kda_backward.hpp"
#include "05_deltanet_wy/kda_backward/dispatch/prepare_chunks.hpp"
#include "common/view.hpp"

namespace tutorial::kda {

/// Rows of a state that a walk leaves: 64 ceil(Dv / 64), of its transpose.
TUTORIAL_HOST_DEVICE constexpr int state_rows(int Dv) {
  return (Dv + 63) / 64 * 64;
}

/// What the walks leave.
struct WalkedChunks {
  View<__nv_bfloat16> v_new;     ///< [B, H, L, Dv]
  const __nv_bfloat16* S;        ///< [B, H, N, state_rows(Dv) Dk]: before each chunk; A fragments of S^T
  const __nv_bfloat16* dS;       ///< the same of dS^T, after each chunk
  View<__nv_bfloat16> v_errors;  ///< [B, H, L, Dv]: what rounding leaves out of v_new, of marked chunks
};

/// Starts the kernel for all gradients but dv of these chunks, on current_stream().
/// @throws CudaError if the launch is refused
void gradients_by_sub_chunks(const Bf16BackwardArguments&, const PreparedChunks&, const WalkedChunks&);

}  // namespace tutorial::kda
