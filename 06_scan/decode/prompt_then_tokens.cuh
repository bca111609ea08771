#pragma once
/// @file
/// What all stages that decode share: prefill() computes the prompt, then there is one kernel per token; and where the
/// states are meanwhile.

#include <cstdint>

#include "06_scan/decode.hpp"
#include "06_scan/decode/chapters.hpp"
#include "common/device/workspace.hpp"
#include "common/parts.hpp"

namespace tutorial::decode {

/// Where a token finds the states and where it leaves them. From the second token on, S is updated in place: each
/// element is written by the thread that has read it. z is read by all blocks of a head and written by one of them, and
/// no block knows whether the others have read. So z alternates between two places, and the last one is final_z.
/// @tparam T the type of S in memory; dispatch alone has bf16, too
template <class T>
struct StatesIn {
  View<const T> S;  ///< data is null where S = 0
  const float* z;   ///< null where z = 0
  View<T> new_S;    ///< may be S
  float* new_z;     ///< may not be z
  /// Where S and new_S have the states of entry b, of a pool: [B], -1 for an entry that is idle; null: at b. Of the
  /// stages only dispatch asks.
  const std::int32_t* slots = nullptr;
};
using States = StatesIn<float>;  ///< in fp32

/// Elements of z.
inline std::int64_t z_count(const Bf16Arguments& a) {
  return std::int64_t(a.B) * a.H * a.Dk;
}

/// Whether the tokens need a second place for z.
template <Rule kRule>
bool needs_second_z(const Bf16Arguments& a) {
  const int writers = a.L - a.P + (a.P > 0 ? 1 : 0);  // one after the other
  return kRule == Rule::normalized && writers > 1;
}

/// Computes the prompt by prefill(), and then calls token(states, t) for each token t = P, ..., L - 1, which starts a
/// kernel.
template <Rule kRule, class Token>
void prompt_then_tokens(const Bf16Arguments& a, Token token) {
  float* z_places[2] = {a.final_z, nullptr};  // by the number of tokens that are still to come, modulo 2
  if (needs_second_z<kRule>(a)) z_places[1] = workspace<float>("decode: z", std::size_t(z_count(a)));
  const View<const float> S{a.final_state.data, a.final_state.stride_b, a.final_state.stride_h, a.final_state.stride_l};
  States states{a.initial_state, a.initial_z, a.final_state, nullptr};
  if (a.P > 0) {
    Bf16Arguments prompt = prompt_of(a);
    prompt.final_z = z_places[(a.L - a.P) % 2];
    {
      const PartListener ignores_its_parts([](const char*) {});  // the prompt is one part
      prefill<kRule>(prompt);
    }
    if (a.P < a.L) end_part("prompt");
    states.S = S;
    states.z = prompt.final_z;
  }
  for (int t = a.P; t < a.L; ++t) {
    states.new_z = z_places[(a.L - 1 - t) % 2];
    token(states, t);
    states.S = S;
    states.z = states.new_z;
  }
  if (a.P > 0 && a.P < a.L) end_part("tokens");
}

}  // namespace tutorial::decode
