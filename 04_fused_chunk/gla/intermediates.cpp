#include "04_fused_chunk/gla/intermediates.hpp"

#include "common/device/workspace.hpp"

namespace tutorial::fused_gla {

Intermediates intermediates(const Bf16Arguments& a, bool with_scores, bool with_partials) {
  const auto of_keys = [&](auto* data) { return packed(data, a.H, a.L, a.Dk); };
  const auto count = std::size_t(a.B) * std::size_t(a.H) * std::size_t(a.L) * std::size_t(a.Dk);
  Intermediates x{of_keys(workspace<float>("fused_gla: sums", count)),
                  of_keys(workspace<__nv_bfloat16>("fused_gla: q_g", count)),
                  of_keys(workspace<__nv_bfloat16>("fused_gla: k_g", count)), nullptr, nullptr};
  if (with_scores) x.scores = workspace<__nv_bfloat16>("fused_gla: scores", std::size_t(score_bytes(a)) / 2);
  if (with_partials) x.partials = workspace<float>("fused_gla: partials", std::size_t(partial_bytes(a)) / 4);
  return x;
}

std::int64_t prepared_bytes(const Bf16Arguments& a) {
  return (4 + 2 + 2) * std::int64_t(a.B) * a.H * a.L * a.Dk;
}

std::int64_t score_bytes(const Bf16Arguments& a) {
  return 2 * std::int64_t(a.B) * a.H * sub_chunks(a.L) * kSubChunk * kSubChunk * slices(a.Dk);
}

std::int64_t partial_bytes(const Bf16Arguments& a) {
  return 4 * std::int64_t(a.B) * a.H * a.L * a.Dv * slices(a.Dk);
}

std::int64_t five_steps_memory(const Bf16Arguments& a) {
  return combine_fused_memory(a) + partial_bytes(a);
}

std::int64_t combine_fused_memory(const Bf16Arguments& a) {
  return intra_fused_memory(a) + score_bytes(a);
}

std::int64_t intra_fused_memory(const Bf16Arguments& a) {
  return prepared_bytes(a);
}

}  // namespace tutorial::fused_gla
