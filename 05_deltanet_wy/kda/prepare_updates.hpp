#pragma once
/// @file
/// What the walk of `two_products` reads. With Res = V - K+ S, v_new is T Res, and T is multiplied into what v_new
/// would be multiplied by:
///
///     S = diag(exp(b_end)) S + J^T Res,   O = scale (Q+ S + R Res);   J = T^T K-,   R = P T
///
/// The README calls J and R K^u and P^u.

#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/kda.hpp"
#include "common/device/walked_heads.hpp"

namespace tutorial::kda {

/// In device memory. J and R have the sign of -Res, because wgmma only adds.
struct PreparedUpdates {
  int N;             ///< chunks of a sequence
  __nv_bfloat16* Q;  ///< [B, H, 64 N, Dk], Q+
  __nv_bfloat16* K;  ///< [B, H, 64 N, Dk], K+
  __nv_bfloat16* J;  ///< [B, H, 64 N, Dk], -J
  __nv_bfloat16* R;  ///< [B, H, 64 N, 64], -R
  float* decays;     ///< [B, H, N, Dk], exp(b_end) of each chunk
  /// [B, H, N, 4]: the sum of the four is a bound of the chunk (chunk/zero_starts.cuh). Null if nobody asks for it.
  float* bounds = nullptr;
  WalkedHeads heads{};  ///< for which there is nothing to prepare
};

/// Fills a workspace, with one kernel on current_stream(). It is valid until the next call. Requires: an empty
/// warpgroups_unsupported().
/// @throws CudaError if the memory cannot be allocated or the launch is refused
PreparedUpdates prepare_updates(const Bf16Arguments&);
/// The same with the kernel of `one_anchor`. Requires: an empty one_anchor_unsupported().
/// @param with_bounds whether bounds are wanted
/// @param heads for which there is nothing to prepare
PreparedUpdates prepare_with_one_anchor(const Bf16Arguments&, bool with_bounds = false, const WalkedHeads& heads = {});
/// The workspace alone, for a stage that fills it in another way.
/// @throws CudaError if the memory cannot be allocated
PreparedUpdates reserve_updates(const Bf16Arguments&);
/// Starts the walk of `two_products` on current_stream(). Requires: an empty warpgroup_chain_unsupported().
/// @throws CudaError if the launch is refused
void walk_with_updates(const Bf16Arguments&, const PreparedUpdates&);
/// Bytes of that workspace, without bounds.
std::int64_t prepared_updates_memory(const Bf16Arguments&);

}  // namespace tutorial::kda
