/// @file
/// The bytes that the kernels of each GPU stage read from global memory or write to it. The test compares them with the
/// bytes that the emulator counts.

#include "05_deltanet_wy/gated_delta_rule/prepared.hpp"
#include "common/ceil_div.hpp"

namespace tutorial::gated_delta_rule {

std::int64_t recurrent_gpu_bytes_moved(const FloatArguments& a) {
  const std::int64_t gates = 4 * std::int64_t(a.B) * a.H * a.L * ceil_div(a.Dv, 32);  // once per tile of columns
  return delta_rule::recurrent_gpu_bytes_moved(a) + gates;
}

std::int64_t tensor_core_bytes_moved(const Bf16Arguments& a) {
  const std::int64_t heads = std::int64_t(a.B) * a.H, gates = 4 * heads * a.L;
  const std::int64_t decays = 4 * kDecays * heads * ceil_div(a.L, 64);
  // prepare() writes decays in place of the keys' factors, and the walk reads them once per tile of 64 columns.
  const std::int64_t factors = 4 * 64 * heads * ceil_div(a.L, 64);
  return delta_rule::fused_bytes_moved(a) + gates + decays - factors + ceil_div(a.Dv, 64) * decays;
}

std::int64_t warpgroup_chain_bytes_moved(const Bf16Arguments& a) {
  const std::int64_t heads = std::int64_t(a.B) * a.H, decays = 4 * kDecays * heads * ceil_div(a.L, 64);
  return delta_rule::warpgroup_chain_bytes_moved(a) + 4 * heads * a.L + (1 + ceil_div(a.Dv, 64)) * decays;
}

std::int64_t dispatch_bytes_moved(const Bf16Arguments& a) {
  if (warpgroup_chain_unsupported(a).empty()) return warpgroup_chain_bytes_moved(a);
  return tensor_core_unsupported(a).empty() ? tensor_core_bytes_moved(a) : -1;
}

}  // namespace tutorial::gated_delta_rule
