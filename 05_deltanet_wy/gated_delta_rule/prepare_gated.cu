#include "05_deltanet_wy/gated_delta_rule/prepare_gated.hpp"

#include "05_deltanet_wy/gated_delta_rule/store_fragments.cuh"

namespace tutorial::gated_delta_rule {

Prepared prepare(const Bf16Arguments& a, const ForGradients& also) {
  const int N = ceil_div(a.L, kChunk);
  const std::int64_t units = std::int64_t(a.B) * a.H * N * kBlockUnits;
  auto* blocks = workspace<uint4>("gated_delta_rule: T and P", std::size_t(3 * units));
  return filled(a, Prepared{N, blocks, blocks + 2 * units, reserve_decays(a)}, also);
}

std::int64_t prepared_memory(const Bf16Arguments& a) {
  return std::int64_t(a.B) * a.H * ceil_div(a.L, kChunk) * (3 * kBlockUnits * sizeof(uint4) + kDecays * sizeof(float));
}

}  // namespace tutorial::gated_delta_rule
