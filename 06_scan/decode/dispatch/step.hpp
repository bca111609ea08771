#pragma once
/// @file
/// The kernel behind decode's dispatch, with a choice of how many columns of the state a block has.

#include <cstdint>

#include "06_scan/decode.hpp"
#include "common/ceil_div.hpp"

namespace tutorial::decode {

/// The widest key that it supports, and the widest for which a thread has room for its part of a wide tile.
inline constexpr int kMaxKeyDim = 1024, kMaxKeyDimOfWideTile = 256;

/// Columns of the state per block.
enum class Tile { narrow = 8, wide = 32 };

/// The tile that dispatch picks on this GPU.
/// @throws CudaError if there is none
Tile select_tile(const Bf16Arguments&);

/// Blocks of a token.
inline std::int64_t block_count(const Bf16Arguments& a, Tile tile) {
  return std::int64_t(a.B) * a.H * ceil_div(a.Dv, int(tile));
}

/// Starts prefill() for the prompt, then one kernel per token, on current_stream(). Requires: an empty
/// dispatch_unsupported().
/// @throws CudaError if the memory cannot be allocated or a launch is refused
template <Rule kRule>
void planned_step(const Bf16Arguments&, Tile);

/// Starts the kernels of the tokens from P on, with the states in the slots of a pool.
/// @param indices [B], -1 for an idle entry, whose states and outputs stay as they are
/// @tparam State float or __nv_bfloat16
/// @throws CudaError if a launch is refused
template <Rule kRule, class State>
void pooled_steps(const Bf16Arguments&, Tile, const View<State>& pool, const std::int32_t* indices);

}  // namespace tutorial::decode
