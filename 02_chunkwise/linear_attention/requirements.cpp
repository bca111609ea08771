/// @file
/// What the stages require: why one cannot run a problem, and the bytes that it needs beside its inputs and outputs.

#include <algorithm>
#include <climits>
#include <cstdint>

#include "01_linear_attention/causal_dot_product.hpp"
#include "02_chunkwise/linear_attention.hpp"
#include "02_chunkwise/linear_attention/requirements.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/parallel.hpp"
#include "common/tile/bulk_requirements.hpp"
#include "common/tile/launch_plan.hpp"
#include "common/tile/requirements.hpp"

namespace tutorial::linear_attention {
namespace {

constexpr int kChunkLength = 64;  // of the GPU stages

}  // namespace

std::string recurrent_unsupported(const FloatArguments& a) {
  return causal_dot_product::dispatch_unsupported({a.B, a.H, a.L, a.Dk, a.Dv, {}, {}, {}, {}});
}

std::string parallel_unsupported(const FloatArguments& a) {
  return a.L > 8192 ? "L > 8192: the scores would take over 268 MB a thread and O(L^2) time" : "";
}

std::string materialized_unsupported(const FloatArguments& a) {
  if (std::int64_t(a.B) * a.H * ceil_div(a.L, kChunkLength) > INT_MAX) {
    return "B H > 2^31 - 1 chunks of 64: the grid's first dimension";
  }
  if (std::int64_t(ceil_div(a.Dk, 64)) * ceil_div(a.Dv, 64) > 4095) {
    return "a state of more than 4095 tiles of 64 x 64: the grid's second dimension";
  }
  return "";
}

std::string fused_unsupported(const FloatArguments& a) {
  if (a.Dk > 384) return "Dk > 384: the state's columns would not fit into a block's shared memory";
  if (std::int64_t(a.B) * a.H * ceil_div(a.Dv, 32) > INT_MAX) {
    return "B H > 2^31 - 1 tiles of 32 columns: the grid";
  }
  if (a.L > INT_MAX - kChunkLength) return "L > 2^31 - 65: positions are counted in int";
  return "";
}

std::string mma_products_unsupported(const Bf16Arguments& a) {
  const std::string reason = register_state_unsupported(a);
  return reason.empty() && a.Dk > 64 ? shared_memory_missing(106 * 1024) : reason;
}

std::string register_state_unsupported(const Bf16Arguments& a) {
  if (a.Dk > 128) return "Dk > 128: padded tiles and a state of more rows would take too much shared memory";
  return tile::one_set_unsupported(a);
}

std::string tensor_core_unsupported(const Bf16Arguments& a) {
  return tile::tensor_core_unsupported(a);
}

std::string bulk_copies_unsupported(const Bf16Arguments& a) {
  const std::string reason = tile::tensor_core_unsupported(a);
  return reason.empty() ? tile::bulk_copies_unsupported(a) : reason;
}

std::string warpgroup_mma_unsupported(const Bf16Arguments& a) {
  if (const std::string reason = warpgroup_products_missing(); !reason.empty()) return reason;
  if (a.Dk > 128) return "Dk > 128: the state and its copy would not fit into a warpgroup's registers";
  return bulk_copies_unsupported(a);
}

std::int64_t recurrent_memory(const FloatArguments& a) {
  return 4 * std::int64_t(a.B) * a.H * a.L * a.Dk;
}

std::int64_t parallel_memory(const FloatArguments& a) {
  return 4 * std::int64_t(a.L) * a.L * processor_count();  // each thread of the team has its own scores
}

std::int64_t chunkwise_memory(const FloatArguments& a) {
  const std::int64_t C = std::min(a.C, a.L);
  return 4 * (std::int64_t(a.Dk) * a.Dv + C * C) * processor_count();
}

std::int64_t materialized_memory(const FloatArguments& a) {
  return 4 * std::int64_t(a.B) * a.H * ceil_div(a.L, kChunkLength) * a.Dk * a.Dv;
}

std::int64_t segments_memory(const Bf16Arguments& a) {
  return tile::launch_plan_memory(tile::extents_of(a), tile::one_wave(tile::extents_of(a)));
}

}  // namespace tutorial::linear_attention
