#include "common/chapter/foreign_tensors.hpp"

#include <algorithm>
#include <array>
#include <vector>

namespace tutorial {
namespace {

struct Kind {
  std::vector<std::string_view> names;
  const char* reason;
};

// As flash-linear-attention, FlashInfer, FlashAttention, Mamba and Transformers call them.
const std::array<Kind, 5>& kinds() {
  static const std::array<Kind, 5> list{{
      {{"cu_seqlens", "cu_seqlens_q", "cu_seqlens_k", "cu_seq_lens", "seq_idx", "seqlens", "seq_lens", "chunk_indices",
        "chunk_offsets"},
       "the sequences that it tells apart would run as one"},
      {{"attention_mask", "attn_mask", "key_padding_mask", "padding_mask", "mask"},
       "the positions that it masks would count"},
      {{"gk", "gv", "g_gamma", "A_log", "dt_bias", "dt", "log_alpha", "alpha", "decay"},
       "the state would not decay by it; the logarithm of a gate is g here, in a scan log_decay"},
      {{"state_indices", "ssm_state_indices", "cache_indices", "cache_seqlens", "block_table", "block_tables"},
       "states would not be those that it chooses of a pool"},
      {{"h0", "initial_states", "recurrent_state", "dht"},
       "it would be ignored; the state before the first position is initial_state here, the gradient of the last one "
       "dfinal_state"},
  }};
  return list;
}

}  // namespace

std::string why_foreign(std::string_view name) {
  for (const auto& [names, reason] : kinds()) {
    if (std::find(names.begin(), names.end(), name) != names.end()) return reason;
  }
  return "";
}

}  // namespace tutorial
