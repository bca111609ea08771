#include "04_fused_chunk/gla/intermediates.hpp"

#include "common/device/workspace.hpp"

namespace tutorial::fused_gla {

Intermediates intermediates(const Bf16Arguments& a, bool with_outputs) {
  const auto of_keys = [&](auto* data) { return packed(data, a.H, a.L, a.Dk); };
  const auto count = std::size_t(a.B) * std::size_t(a.H) * std::size_t(a.L) * std::size_t(a.Dk);
  Intermediates x{of_keys(workspace<float>("fused_gla: sums", count)),
                  of_keys(workspace<__nv_bfloat16>("fused_gla: q_g", count)),
                  of_keys(workspace<__nv_bfloat16>("fused_gla: k_g", count)), nullptr, nullptr};
  if (!with_outputs) return x;
  x.scores = workspace<__nv_bfloat16>("fused_gla: scores", std::size_t(score_bytes(a)) / 2);
  x.partials = workspace<float>("fused_gla: partials", std::size_t(partial_bytes(a)) / 4);
  return x;
}

}  // namespace tutorial::fused_gla
