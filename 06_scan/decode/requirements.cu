#include "06_scan/decode/requirements.hpp"

#include <climits>

#include "06_scan/decode/chapters.hpp"
#include "06_scan/decode/kept_updates.hpp"
#include "06_scan/decode/prompt_then_tokens.cuh"
#include "common/ceil_div.hpp"
#include "common/device/convert.cuh"
#include "common/tile/requirements.hpp"

namespace tutorial::decode {
namespace {

/// Blocks of a token with so many columns of a state each.
std::int64_t block_count(const Bf16Arguments& a, int columns) {
  return std::int64_t(a.B) * a.H * ceil_div(a.Dv, columns);
}

}  // namespace

// --- prefill ---

template <Rule kRule>
std::string prefill_unsupported(const Bf16Arguments& a) {
  if constexpr (kRule == Rule::normalized) {
    const std::string unsupported = convert_unsupported(a.B, a.H, a.L);  // the feature map has the same grid
    return unsupported.empty() ? dispatch_normalized_unsupported(as_chapter<kRule>(a)) : unsupported;
  } else {
    return dispatch_unsupported(as_chapter<kRule>(a));
  }
}

template <Rule kRule>
std::string prefill_note(const Bf16Arguments& a) {
  if constexpr (kRule == Rule::normalized) {
    return dispatch_normalized_note(as_chapter<kRule>(a));
  } else {
    return dispatch_note(as_chapter<kRule>(a));
  }
}

template <Rule kRule>
std::int64_t prefill_memory(const Bf16Arguments& a) {
  if constexpr (kRule == Rule::normalized) {
    const std::int64_t features = std::int64_t(a.B) * a.H * a.L * a.Dk;
    return 2 * std::int64_t(sizeof(__nv_bfloat16)) * features + dispatch_normalized_memory(as_chapter<kRule>(a));
  } else {
    return dispatch_memory(as_chapter<kRule>(a));
  }
}

template <Rule kRule>
std::int64_t prefill_bytes_moved(const Bf16Arguments& a) {
  if constexpr (kRule == Rule::normalized) {
    return -1;
  } else {
    return dispatch_bytes_moved(as_chapter<kRule>(a));
  }
}

// --- prompt and tokens ---

template <Rule kRule>
std::string prompt_unsupported(const Bf16Arguments& a) {
  return a.P > 0 ? prefill_unsupported<kRule>(prompt_of(a)) : "";
}

template <Rule kRule>
std::string step_unsupported(const Bf16Arguments& a) {
  if (a.Dk > 256) return "Dk > 256: rows of q and k are longer than the block has room for";
  if (block_count(a, 128) > INT_MAX) return "B H > 2^31 - 1 tiles of 128 columns: the grid";
  return prompt_unsupported<kRule>(a);
}

template <Rule kRule>
std::string step_in_registers_unsupported(const Bf16Arguments& a) {
  if (a.Dk > 256) return "Dk > 256: the state's columns would not fit into the registers of 16 threads";
  if (a.Dv % 4 != 0 || !tile::has_aligned_rows(a.initial_state) || !tile::has_aligned_rows(a.final_state)) {
    return "rows of a state that are not aligned to 16 bytes: a thread copies as many at once";
  }
  if (block_count(a, 32) > INT_MAX) return "B H > 2^31 - 1 tiles of 32 columns: the grid";
  return prompt_unsupported<kRule>(a);
}

template <Rule kRule>
std::string step_note(const Bf16Arguments& a) {
  return a.P > 0 ? "prompt: " + prefill_note<kRule>(prompt_of(a)) : "no prompt";
}

template <Rule kRule>
std::int64_t step_memory(const Bf16Arguments& a) {
  const std::int64_t second_z = needs_second_z<kRule>(a) ? std::int64_t(sizeof(float)) * z_count(a) : 0;
  return second_z + (a.P > 0 ? prefill_memory<kRule>(prompt_of(a)) : 0);
}

template <Rule kRule>
std::int64_t replay_memory(const Bf16Arguments& a) {
  return step_memory<kRule>(a) + std::int64_t(sizeof(float)) * kept_count(kRule, a);
}

template <Rule kRule>
std::int64_t prompt_then_tokens_bytes_moved(const Bf16Arguments& a, int columns, int threads, int state_reads) {
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

template <Rule kRule>
std::int64_t step_bytes_moved(const Bf16Arguments& a) {
  return prompt_then_tokens_bytes_moved<kRule>(a, 128, 128, replaces_answer(kRule) ? 2 : 1);
}

std::int64_t token_bytes(Rule rule, std::int64_t heads, std::int64_t Dk, std::int64_t Dv) {
  std::int64_t own = 4 * (has_scalar_gate(rule) + replaces_answer(rule));  // the gate and beta
  if (has_row_gates(rule)) own += 4 * Dk;                                  // the rows' gates
  if (rule == Rule::normalized) own = 8 * Dk;                              // z
  return heads * (8 * Dk * Dv + 4 * Dk + 4 * Dv + own);
}

#define INSTANTIATE(RULE)                                                         \
  template std::string prefill_unsupported<RULE>(const Bf16Arguments&);           \
  template std::string prefill_note<RULE>(const Bf16Arguments&);                  \
  template std::int64_t prefill_memory<RULE>(const Bf16Arguments&);               \
  template std::int64_t prefill_bytes_moved<RULE>(const Bf16Arguments&);          \
  template std::string prompt_unsupported<RULE>(const Bf16Arguments&);            \
  template std::string step_unsupported<RULE>(const Bf16Arguments&);              \
  template std::string step_in_registers_unsupported<RULE>(const Bf16Arguments&); \
  template std::string step_note<RULE>(const Bf16Arguments&);                     \
  template std::int64_t step_memory<RULE>(const Bf16Arguments&);                  \
  template std::int64_t replay_memory<RULE>(const Bf16Arguments&);                \
  template std::int64_t step_bytes_moved<RULE>(const Bf16Arguments&);             \
  template std::int64_t prompt_then_tokens_bytes_moved<RULE>(const Bf16Arguments&, int, int, int)
INSTANTIATE(Rule::simple_gla);
INSTANTIATE(Rule::gla);
INSTANTIATE(Rule::delta_rule);
INSTANTIATE(Rule::normalized);
INSTANTIATE(Rule::gated_delta_rule);
INSTANTIATE(Rule::kda);
#undef INSTANTIATE

}  // namespace tutorial::decode
