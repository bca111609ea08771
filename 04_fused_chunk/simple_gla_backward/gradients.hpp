#pragma once
/// @file
/// The gradients of q, k and v as the operator itself on other inputs, as in chapter 02, now with gates. With Gamma_ti =
/// exp(g_(i+1) + ... + g_t), the decay from position i to position t >= i, Gamma_t0 that from the beginning, and
/// Gamma_(L+1)t that to the end,
///
///     o_t  = scale (Gamma_t0 q_t S_0                     + sum_{i<=t} Gamma_ti (q_t . k_i) v_i)
///     dq_t = scale (Gamma_t0 do_t S_0^T                  + sum_{i<=t} Gamma_ti (do_t . v_i) k_i)
///     dk_t = scale (Gamma_(L+1)t v_t (dS_end/scale)^T    + sum_{i>=t} Gamma_it (v_t . do_i) q_i)
///     dv_t = scale (Gamma_(L+1)t k_t (dS_end/scale)      + sum_{i>=t} Gamma_it (k_t . q_i) do_i)
///
/// where dS_end is the gradient of the final state. So the arguments of the operator are
///
///            q    k    v    o     state before the first chunk     chunks
///     dq     do   v    k    dq    S_0^T                            from the first to the last
///     dk     v    do   q    dk    dS_end^T / scale                 from the last to the first
///     dv     k    q    do   dv    dS_end / scale                   from the last to the first
///
/// and the final state of the walk for dv, times scale, is dinitial_state. The gates are the same for all three.

#include <array>

#include "04_fused_chunk/simple_gla.hpp"
#include "04_fused_chunk/simple_gla_backward.hpp"
#include "common/ceil_div.hpp"
#include "common/tile/launch_plan.hpp"
#include "common/tile/state_strides.hpp"

namespace tutorial::simple_gla {

/// One of the gradients.
struct Gradient {
  /// The operator's arguments. The initial state is S_0 or dS_end as the user gave it. The final state is
  /// dinitial_state, for dv alone.
  Bf16Arguments a;
  View<const __nv_bfloat16> partner;  ///< what the gradient is of, where dg needs the product of both: q and k
  bool is_reversed;                   ///< from the last chunk to the first, and each position reads those after it
  bool is_transposed;                 ///< its state is the transpose of the user's
  float start_factor;                 ///< its state at the start is initial_state times this

  /// How a state of the user's shape, with rows `stride_row` elements apart, lies in memory as this gradient's state.
  TUTORIAL_HOST_DEVICE tile::StateStrides strides(std::int64_t stride_row) const {
    return is_transposed ? tile::StateStrides(1, stride_row) : tile::StateStrides(stride_row);
  }
};

/// The gradients of q, k and v.
inline std::array<Gradient, 3> gradients_of(const Bf16BackwardArguments& b) {
  const auto operands = [&](int keys, int values, const auto& q, const auto& k, const auto& v, const auto& start,
                            const auto& o) {
    return Bf16Arguments{b.B, b.H, b.L, keys, values, b.C, b.scale, q, k, v, b.g, start, o, {}};
  };
  std::array<Gradient, 3> all{
      Gradient{operands(b.Dv, b.Dk, b.d_o, b.v, b.k, b.initial_state, b.dq), b.q, false, true, 1},
      Gradient{operands(b.Dv, b.Dk, b.v, b.d_o, b.q, b.dfinal_state, b.dk), b.k, true, true, 1 / b.scale},
      Gradient{operands(b.Dk, b.Dv, b.k, b.q, b.d_o, b.dfinal_state, b.dv), {}, true, false, 1 / b.scale}};
  all[2].a.final_state = b.dinitial_state;
  return all;
}

/// The products q_t . dq_t and k_t . dk_t in device memory. A block has 64 columns of a gradient, so each product comes
/// in one part per tile of 64 columns of Dk.
struct RowProducts {
  static constexpr int kMostTiles = 4;  ///< of Dk up to 256

  float* read;            ///< of q and dq, [tiles, B H L]
  float* written;         ///< of k and dk, [tiles, B H L]
  int tiles;              ///< of 64 columns of Dk
  std::int64_t per_tile;  ///< B H L

  /// The number of elements of both.
  static std::int64_t elements(const Bf16BackwardArguments& b) {
    return 2 * std::int64_t(ceil_div(b.Dk, 64)) * b.B * b.H * b.L;
  }
  /// @param memory elements() numbers
  RowProducts(const Bf16BackwardArguments& b, float* memory)
      : read(memory),
        written(memory + elements(b) / 2),
        tiles(ceil_div(b.Dk, 64)),
        per_tile(std::int64_t(b.B) * b.H * b.L) {}
  /// Of gradient number i of gradients_of(): null for dv.
  float* of(int i) const { return i == 0 ? read : i == 1 ? written : nullptr; }
};

}  // namespace tutorial::simple_gla
