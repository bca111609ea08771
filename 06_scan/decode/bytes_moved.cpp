#include <cstdint>

#include "06_scan/decode.hpp"
#include "06_scan/decode/chapters.hpp"
#include "06_scan/decode/dispatch/step.hpp"
#include "common/ceil_div.hpp"

namespace tutorial::decode {
namespace {

/// What prompt and tokens move.
/// @param columns of the state per block of 128 threads
/// @param threads of a block that read a token's gate, or beta
/// @param state_reads how often a token reads the state
template <Rule kRule>
std::int64_t bytes_moved(const Bf16Arguments& a, int columns, int threads, int state_reads) {
  const std::int64_t prompt = a.P > 0 ? prefill_bytes_moved<kRule>(prompt_of(a)) : 0;
  if (prompt < 0) return -1;
  const std::int64_t heads = std::int64_t(a.B) * a.H, tokens = a.L - a.P, tiles = ceil_div(a.Dv, columns);
  // A block's q and k, and its gates or beta.
  std::int64_t of_tile = 4 * std::int64_t(a.Dk);
  if (has_row_gates(kRule)) of_tile += 4 * std::int64_t(a.Dk);
  of_tile += 4 * threads * (has_scalar_gate(kRule) + replaces_answer(kRule));
  if (kRule == Rule::normalized && a.key_lengths) of_tile += 4 * 128;
  const std::int64_t state = 4 * std::int64_t(a.Dk) * a.Dv, z = kRule == Rule::normalized ? 4 * std::int64_t(a.Dk) : 0;
  std::int64_t bytes = tokens * (tiles * (of_tile + z) + z + 4 * std::int64_t(a.Dv) + (1 + state_reads) * state);
  if (tokens > 0 && a.P == 0 && !a.initial_state.data) bytes -= state_reads * state;  // zeros are not read
  if (tokens > 0 && a.P == 0 && !a.initial_z) bytes -= tiles * z;
  return prompt + heads * bytes;
}

}  // namespace

template <Rule kRule>
std::int64_t step_bytes_moved(const Bf16Arguments& a) {
  return bytes_moved<kRule>(a, 128, 128, replaces_answer(kRule) ? 2 : 1);
}

template <Rule kRule>
std::int64_t dispatch_bytes_moved(const Bf16Arguments& a) {
  return bytes_moved<kRule>(a, int(select_tile(a)), 1, 1);
}

std::int64_t token_bytes(Rule rule, std::int64_t heads, std::int64_t Dk, std::int64_t Dv) {
  std::int64_t own = 4 * (has_scalar_gate(rule) + replaces_answer(rule));  // the gate and beta
  if (has_row_gates(rule)) own += 4 * Dk;                                  // the rows' gates
  if (rule == Rule::normalized) own = 8 * Dk;                              // z
  return heads * (8 * Dk * Dv + 4 * Dk + 4 * Dv + own);
}

#define INSTANTIATE(RULE)                                             \
  template std::int64_t step_bytes_moved<RULE>(const Bf16Arguments&); \
  template std::int64_t dispatch_bytes_moved<RULE>(const Bf16Arguments&)
INSTANTIATE(Rule::simple_gla);
INSTANTIATE(Rule::gla);
INSTANTIATE(Rule::delta_rule);
INSTANTIATE(Rule::normalized);
INSTANTIATE(Rule::gated_delta_rule);
INSTANTIATE(Rule::kda);
#undef INSTANTIATE

}  // namespace tutorial::decode
