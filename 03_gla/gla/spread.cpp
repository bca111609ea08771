/// @file
/// What the tensor-core stages must know of a problem before they start a kernel.

#include "03_gla/gla/spread.hpp"

#include "03_gla/gla/prepared.hpp"

namespace tutorial::gla {

linear_attention::HalfArguments without_gates(const HalfArguments& a) {
  return {a.B, a.H, a.L, a.Dk, a.Dv, a.C, a.scale, a.q, a.k, a.v, a.initial_state, a.o, a.final_state};
}

std::string subchunk_limits(const HalfArguments& a) {
  if (const std::string limits = linear_attention::tensor_core_limits(without_gates(a)); !limits.empty()) return limits;
  const auto is_aligned = [](std::int64_t stride) { return stride % 4 == 0; };
  if (reinterpret_cast<std::uintptr_t>(a.g.data) % 16 != 0 || !is_aligned(a.g.stride_b) || !is_aligned(a.g.stride_h) ||
      !is_aligned(a.g.stride_l)) {
    return "rows of gates are not aligned to 16 bytes";
  }
  return "";
}

std::string subchunk_walk_limits(const HalfArguments& a) {
  return subchunk_limits(a);
}

std::int64_t subchunk_walk_memory(const HalfArguments& a, const Spread& spread) {
  return prepared_memory(a) + linear_attention::spread_memory(without_gates(a), spread) +
         std::int64_t(sizeof(float)) * a.B * a.H * (spread.segments - 1) * a.Dk;
}

}  // namespace tutorial::gla
