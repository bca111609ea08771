/// @file
/// `dispatch`: what a user calls.
///
/// Idea: the chapter's `dispatch` computes the prompt, then there is one kernel per token. The width of its tiles
/// follows from the number of states. If tiles of 32 columns give every multiprocessor at least 4 blocks, `dispatch`
/// uses them. Otherwise it uses tiles of 8 columns, which spread few states over four times as many blocks.
/// Improves on: `step_in_registers` leaves multiprocessors idle if there are few states, and supports only widths and
/// strides that are multiples of 4, and Dk up to 256.
/// Unchanged: the operator, the prompt, and what a thread does with its part of the state.
/// Equation: that of `step`.
/// Shapes: as in decode.hpp.
/// Resources: 4 Dk / 16 registers per thread for the state in the wide tile, which is for Dk up to 256, and 4 Dk / 64 in
/// the narrow one; up to 2.7 KB of shared memory for Dk = 128.
/// Work: 5 Dk Dv operations per head and token, 7 Dk Dv in the delta rules.
/// Bytes: the state is read once and written once, 8 Dk Dv; v and o once; q, k and the gates once per tile.
/// Bound by: memory, if there are enough states.
/// Requires: Dk <= 1024, and of the prompt what the chapter's `dispatch` does.
/// Weakness: one launch per token. With few states its latency takes longer than its bytes. A CUDA graph would help, or
/// a kernel that computes all layers.
/// Sources: those of `recurrent`.

#include <climits>
#include <string>

#include "06_scan/decode.hpp"
#include "06_scan/decode/dispatch/step.hpp"
#include "06_scan/decode/requirements.hpp"

namespace tutorial::decode {

template <Rule kRule>
void dispatch(const Bf16Arguments& a) {
  planned_step<kRule>(a, select_tile(a));
}

template <Rule kRule>
std::string dispatch_unsupported(const Bf16Arguments& a) {
  if (a.Dk > kMaxKeyDim) return "Dk > 1024: the state's columns would not fit into the registers of 64 threads";
  if (block_count(a, Tile::narrow) > INT_MAX) return "B H > 2^31 - 1 tiles of 8 columns: the grid";
  return prompt_unsupported<kRule>(a);
}

template <Rule kRule>
std::string dispatch_note(const Bf16Arguments& a) {
  const std::string prompt = step_note<kRule>(a);
  if (a.P == a.L) return prompt;
  return prompt + "; then " + std::to_string(int(select_tile(a))) + " columns per block";
}

template <Rule kRule>
std::int64_t dispatch_bytes_moved(const Bf16Arguments& a) {
  return prompt_then_tokens_bytes_moved<kRule>(a, int(select_tile(a)), 1, 1);
}

#define INSTANTIATE(RULE)                                                \
  template void dispatch<RULE>(const Bf16Arguments&);                    \
  template std::string dispatch_unsupported<RULE>(const Bf16Arguments&); \
  template std::string dispatch_note<RULE>(const Bf16Arguments&);        \
  template std::int64_t dispatch_bytes_moved<RULE>(const Bf16Arguments&)
INSTANTIATE(Rule::simple_gla);
INSTANTIATE(Rule::gla);
INSTANTIATE(Rule::delta_rule);
INSTANTIATE(Rule::normalized);
INSTANTIATE(Rule::gated_delta_rule);
INSTANTIATE(Rule::kda);
#undef INSTANTIATE

}  // namespace tutorial::decode
