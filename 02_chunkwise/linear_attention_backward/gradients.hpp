#pragma once
/// @file
/// The three gradients as the operator itself on other inputs. Written out, with M the mask,
///
///     o_t  = scale (q_t  S_0            + sum_{i<=t} (q_t . k_i) v_i)
///     dq_t = scale (do_t S_0^T          + sum_{i<=t} (do_t . v_i) k_i)
///     dk_t = scale (v_t (dS_end/scale)^T + sum_{i>=t} (v_t . do_i) q_i)
///     dv_t = scale (k_t (dS_end/scale)   + sum_{i>=t} (k_t . q_i) do_i)
///
/// where dS_end is the gradient of the final state. So the arguments of the operator are
///
///            q    k    v    o     state before the first chunk     chunks
///     dq     do   v    k    dq    S_0^T                            from the first to the last
///     dk     v    do   q    dk    dS_end^T / scale                 from the last to the first
///     dv     k    q    do   dv    dS_end / scale                   from the last to the first
///
/// and the final state of the walk for dv, times scale, is dinitial_state.

#include <array>

#include "02_chunkwise/linear_attention.hpp"
#include "02_chunkwise/linear_attention_backward.hpp"
#include "common/tile/state_strides.hpp"

namespace tutorial::linear_attention {

/// One of the gradients.
struct Gradient {
  /// The operator's arguments. The initial state is S_0 or dS_end as the user gave it. The final state is
  /// dinitial_state, for dv alone.
  Bf16Arguments a;
  bool is_reversed;    ///< from the last chunk to the first, and each position reads those after it
  bool is_transposed;  ///< its state is the transpose of the user's
  float start_factor;  ///< its state at the start is initial_state times this

  /// How a state of the user's shape, with rows `stride_row` elements apart, lies in memory as this gradient's state.
  TUTORIAL_HOST_DEVICE tile::StateStrides strides(std::int64_t stride_row) const {
    return is_transposed ? tile::StateStrides(1, stride_row) : tile::StateStrides(stride_row);
  }
};

/// The gradients of q, k and v.
inline std::array<Gradient, 3> gradients_of(const Bf16BackwardArguments& b) {
  const auto gradient = [&](int keys, int values, const auto& q, const auto& k, const auto& v, const auto& start,
                            const auto& o) {
    return Bf16Arguments{b.B, b.H, b.L, keys, values, b.C, b.scale, q, k, v, start, o, {}};
  };
  std::array<Gradient, 3> all{
      Gradient{gradient(b.Dv, b.Dk, b.d_o, b.v, b.k, b.initial_state, b.dq), false, true, 1},
      Gradient{gradient(b.Dv, b.Dk, b.v, b.d_o, b.q, b.dfinal_state, b.dk), true, true, 1 / b.scale},
      Gradient{gradient(b.Dk, b.Dv, b.k, b.q, b.d_o, b.dfinal_state, b.dv), true, false, 1 / b.scale}};
  all[2].a.final_state = b.dinitial_state;
  return all;
}

}  // namespace tutorial::linear_attention
