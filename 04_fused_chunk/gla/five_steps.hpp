#pragma once
/// @file
/// The five steps of stage 2, each a function of its own, and what they leave for each other. Plain pointers and sizes
/// only.
///
/// Windows of BT = 16 positions, N = ceil(L / 16) of them. The keys' width is cut into NK = ceil(Dk / 64) slices, the
/// values' into NV = ceil(Dv / 64).

#include <cuda_bf16.h>

#include "04_fused_chunk/fused_gla.hpp"

namespace tutorial::fused_gla {

inline constexpr int kWindow = 16;  ///< positions of a window, BT
inline constexpr int kSlice = 64;   ///< columns of a slice, BK and BV

/// Slices of so many columns.
inline int slices(int columns) {
  return (columns - 1) / kSlice + 1;
}
/// Windows of so many positions.
inline int windows(int L) {
  return (L - 1) / kWindow + 1;
}

/// What the steps leave in device memory, packed.
struct Intermediates {
  View<float> sums;         ///< [B, H, L, Dk], to base 2, from the window's first position on
  View<__nv_bfloat16> q_g;  ///< [B, H, L, Dk]
  View<__nv_bfloat16> k_g;  ///< [B, H, L, Dk]
  float* partials;          ///< [NK, B, H, L, Dv]: what each slice of the keys adds to o out of the state
  __nv_bfloat16* scores;    ///< [NK, B, H, N, 16, 16], zero above the diagonal
};

// Each starts one kernel on current_stream() and throws CudaError if the launch is refused. Needs: no window_limits().

/// Step 1: sums.
void decay_cumsum(const HalfArguments&, const Intermediates&);
/// Step 2: q_g = q 2^sums scale and k_g = k 2^(last - sums), from sums; `last` is the window's last row of them.
void prepare_qg_kg(const HalfArguments&, const Intermediates&);
/// Step 3: partials and the final state, from q_g, k_g and the last rows of sums: the walk.
void fused_chunk(const HalfArguments&, const Intermediates&);
/// Step 4: scores, from sums.
void inner_chunk(const HalfArguments&, const Intermediates&);
/// Step 5: o, from partials and scores.
void combine(const HalfArguments&, const Intermediates&);

/// Steps 1 and 2 in one: sums, q_g and k_g. (Stage 3.)
void prepare(const HalfArguments&, const Intermediates&);

/// Memory for sums, q_g and k_g, which the next call uses again; the others are null. CudaError where it is not there,
/// as for intermediates().
Intermediates prepared(const HalfArguments&);
/// Memory for all of them.
Intermediates intermediates(const HalfArguments&);

/// Bytes of sums, q_g and k_g together.
inline std::int64_t prepared_bytes(const HalfArguments& a) {
  return 8 * std::int64_t(a.B) * a.H * a.L * a.Dk;
}
/// Bytes that reading the initial state and writing the final state move.
inline std::int64_t state_bytes(const HalfArguments& a) {
  const int states = (a.initial_state.data != nullptr) + (a.final_state.data != nullptr);
  return std::int64_t(4) * states * a.B * a.H * a.Dk * a.Dv;
}

// Bytes that the kernels ask global memory for, or give to it.
std::int64_t decay_cumsum_moved(const HalfArguments&);
std::int64_t prepare_qg_kg_moved(const HalfArguments&);
std::int64_t fused_chunk_moved(const HalfArguments&);
std::int64_t inner_chunk_moved(const HalfArguments&);
std::int64_t combine_moved(const HalfArguments&);
std::int64_t prepare_moved(const HalfArguments&);

}  // namespace tutorial::fused_gla
