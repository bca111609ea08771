/// @file
/// The definition of a pool: each entry by itself, on the state in its slot.

#include <algorithm>

#include "06_scan/decode_pool.hpp"

namespace tutorial::decode {
namespace {

/// Entry b alone.
FloatArguments entry_of(FloatArguments a, int b) {
  a.B = 1;
  const auto advance = [&](auto& view) {
    if (view.data) view.data += b * view.stride_b;
  };
  advance(a.q), advance(a.k), advance(a.v), advance(a.g), advance(a.beta), advance(a.o);
  return a;
}

}  // namespace

template <Rule kRule>
void recurrent_pool(const FloatPoolArguments& p) {
  std::copy_n(p.state_pool.data, p.slots * p.state_pool.stride_b, p.final_pool.data);
  for (int b = 0; b < p.tokens.B; ++b) {
    FloatArguments a = entry_of(p.tokens, b);
    const int slot = p.indices[b];
    if (slot < 0) {
      for (int h = 0; h < a.H; ++h) {
        for (int t = 0; t < a.L; ++t) std::fill_n(a.o.row(0, h, t), a.Dv, 0.0f);
      }
      continue;
    }
    a.initial_state = p.state_pool;
    a.final_state = p.final_pool;
    a.initial_state.data += slot * a.initial_state.stride_b;
    a.final_state.data += slot * a.final_state.stride_b;
    recurrent<kRule>(a);
  }
}

TUTORIAL_DECODE_WITH_POOL_RULES(void, recurrent_pool, FloatPoolArguments);

}  // namespace tutorial::decode
