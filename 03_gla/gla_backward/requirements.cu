/// @file
/// What the stages and variants require of a problem, and the memory that they take and reserve. (`materialized` and
/// `subchunk_walks` say some of it themselves.)

#include <algorithm>
#include <utility>

#include "03_gla/gla_backward.hpp"
#include "03_gla/gla_backward/between.hpp"
#include "03_gla/gla_backward/gradient_maps.cuh"
#include "03_gla/gla_backward/requirements.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/device/workspace.hpp"
#include "common/parallel.hpp"
#include "common/tile/requirements.hpp"

namespace tutorial::gla {
namespace {

/// Elements of S at all borders of chunks.
std::size_t state_elements(const Bf16BackwardArguments& a) {
  return std::size_t(a.B) * std::size_t(a.H) * std::size_t(ceil_div(a.L, kChunk) + 1) * std::size_t(a.Dk * a.Dv);
}

}  // namespace

Between reserve_between(const Bf16BackwardArguments& a) {
  auto* states = workspace<__nv_bfloat16>("gla --backward: states of chunks", 2 * state_elements(a));
  return {reserve_prepared(forward_of(a)), states, states + state_elements(a)};
}

std::int64_t between_memory(const Bf16BackwardArguments& a) {
  return prepared_memory(forward_of(a)) + std::int64_t(2 * state_elements(a) * sizeof(__nv_bfloat16));
}

std::int64_t recurrent_backward_memory(const FloatBackwardArguments& a) {
  return 8 * (std::int64_t(a.L) + 2) * a.Dk * a.Dv * std::min<std::int64_t>(processor_count(), std::int64_t(a.B) * a.H);
}

std::int64_t closed_form_backward_memory(const FloatBackwardArguments& a) {
  return 4 * (2 * std::int64_t(a.Dk) * a.Dv + a.Dk + a.Dv) * processor_count();
}

std::int64_t chunkwise_backward_memory(const FloatBackwardArguments& a) {
  const std::int64_t C = std::min(a.C, a.L);
  return 4 * (std::int64_t(a.Dk) * a.Dv + 2 * C * C + 8 * C * a.Dk) * processor_count();
}

std::string subchunk_walks_backward_unsupported(const Bf16BackwardArguments& a) {
  for (const auto& [keys, values] : {std::pair{a.Dk, a.Dv}, std::pair{a.Dv, a.Dk}}) {
    if (const std::string reason = unsupported_extents({a.B, a.H, a.L, keys, values}); !reason.empty()) return reason;
  }
  const bool are_aligned = has_aligned_rows(a.q) && has_aligned_rows(a.k) && has_aligned_rows(a.v) &&
                           has_aligned_rows(a.g) && has_aligned_rows(a.d_o) && has_aligned_rows(a.dq) &&
                           has_aligned_rows(a.dk) && has_aligned_rows(a.dv) && has_aligned_rows(a.dg);
  return are_aligned ? "" : "rows are not aligned to 16 bytes";
}

/// Why bulk copies and products of warpgroups cannot compute it; empty if they can. q and k are read by ordinary loads.
std::string one_anchor_backward_unsupported(const Bf16BackwardArguments& a) {
  if (const std::string reason = materialized_backward_unsupported(a); !reason.empty()) return reason;
  if (const std::string reason = warpgroup_products_missing(); !reason.empty()) return reason;
  const TensorSizes keys = tensor_sizes(a, a.Dk), values = tensor_sizes(a, a.Dv), floats = tensor_sizes(a, 2 * a.Dk);
  for (const std::string& reason :
       {why_not_mapped(a.v, sizes_of_values(a), kChunk), why_not_mapped(a.v, values, kChunk),
        why_not_mapped(a.d_o, values, kChunk), why_not_mapped(read_only(a.dq), keys, kSubChunk),
        why_not_mapped(read_only(a.dk), keys, kSubChunk), why_not_mapped(read_only(a.dv), values, kSubChunk),
        why_not_mapped(read_only(as_bf16_pairs(a.dg)), floats, kSubChunk)}) {
    if (!reason.empty()) return reason;
  }
  return "";
}

}  // namespace tutorial::gla
