/// @file
/// What the kernels of the operator need: whether they can run a problem, memory beside its inputs and outputs, and the
/// bytes that they read from device memory or write to it, even if a cache serves them. A test compares these with the
/// bytes that the emulator counts.

#include <cuda_runtime.h>

#include <algorithm>

#include "05_deltanet_wy/delta_rule/dispatch/requirements.hpp"
#include "05_deltanet_wy/delta_rule/dispatch/segmented_walk.hpp"
#include "05_deltanet_wy/delta_rule/segments.hpp"
#include "05_deltanet_wy/gated_delta_rule/dispatch/segmented_walk.hpp"
#include "05_deltanet_wy/gated_delta_rule/dispatch/segments.hpp"
#include "05_deltanet_wy/gated_delta_rule/dispatch/zero_starts.hpp"
#include "05_deltanet_wy/gated_delta_rule/prepare_gated.hpp"
#include "05_deltanet_wy/gated_delta_rule/prepare_gated_tiles.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/parallel.hpp"
#include "common/tile/bulk_requirements.hpp"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/requirements.hpp"

namespace tutorial::gated_delta_rule {

// Whether a kernel can run.

std::string recurrent_gpu_unsupported(const FloatArguments& a) {
  return delta_rule::recurrent_gpu_unsupported(a);
}

std::string tensor_core_unsupported(const Bf16Arguments& a) {
  if (const std::string reason = tile::tensor_core_unsupported(a); !reason.empty()) return reason;
  // T in two bf16, P, K, Q, V and decays of two chunks, and a tile of outputs.
  const int width = a.Dk <= 64 ? 64 : a.Dk <= 128 ? 128 : 256;
  const int chunk = 3 * 10 * 512 + 2 * 64 * (2 * width + 64) + 4 * kDecays;
  return shared_memory_missing(std::size_t(2 * chunk + 2 * 64 * 64));
}

std::string warpgroups_unsupported(const Bf16Arguments& a) {
  if (const std::string reason = warpgroup_products_missing(); !reason.empty()) return reason;
  if (const std::string reason = tile::tensor_core_unsupported(a); !reason.empty()) return reason;
  if (a.Dk > 128) return "Dk > 128: the state and its copy would not fit into a warpgroup's registers";
  return tile::bulk_copies_unsupported(a);
}

std::string cluster_unsupported(const Bf16Arguments& a) {
  if (a.normalize_keys) return "keys must be normalised already";
  return warpgroups_unsupported(a);
}

// Memory.

std::int64_t chunkwise_memory(const FloatArguments& a) {
  const std::int64_t C = std::min(a.C, a.L);
  return (delta_rule::walk_memory(a) + delta_rule::step_memory(a) + 8 * 3 * C * (C + 1)) * processor_count();
}

std::int64_t tensor_core_memory(const Bf16Arguments& a) {
  return prepared_memory(a);
}

std::int64_t segments_memory(const Bf16Arguments& a, const tile::LaunchPlan& plan) {
  return prepared_tiles_memory(a) + delta_rule::segment_maps_memory(a, plan) +
         std::int64_t(a.B) * a.H * (plan.segments - 1) * std::int64_t(sizeof(float));  // their decays
}

std::int64_t segments_memory(const Bf16Arguments& a) {
  return segments_memory(a, delta_rule::one_wave_of_segments(a));
}

std::int64_t zero_starts_memory(const Bf16Arguments& a) {
  const std::int64_t segments = one_wave_of_clusters(a).segments;
  return segments_memory(a) + std::int64_t(a.B) * a.H * segments * std::int64_t(sizeof(int));
}

// Bytes.

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

std::int64_t segments_bytes_moved(const Bf16Arguments& a, const tile::LaunchPlan& plan) {
  const std::int64_t heads = std::int64_t(a.B) * a.H, count = plan.segments - 1, decays = 4 * kDecays;
  // Decays are written once, and read once per block of a walk; gates are read once.
  std::int64_t added = heads * (4 * std::int64_t(a.L) + (1 + ceil_div(a.Dv, 64)) * decays * ceil_div(a.L, 64));
  if (count > 0) {  // the decays of chunks once per block of kernel 1; those of segments
    const std::int64_t values = ceil_div(a.Dv, 128), chunks = plan.length / 64;
    added += heads * ((count * values + count - 1) * chunks * decays + (count - 1) * 4);
    added += heads * ceil_div(a.Dv, 64) * (count - 1) * 4 * 128;  // each thread loads a segment's decay
  }
  return delta_rule::warpgroup_chain_bytes_moved(a) + delta_rule::segment_maps_bytes_moved(a, plan, 2 * 64) + added;
}

std::int64_t segments_bytes_moved(const Bf16Arguments& a) {
  return segments_bytes_moved(a, delta_rule::one_wave_of_segments(a));
}

std::int64_t cluster_bytes_moved(const Bf16Arguments& a) {
  // Once per 128 columns, in each of the four warps that compute a chunk's T and P.
  const std::int64_t gates = 4 * 4 * std::int64_t(a.B) * a.H * a.L;
  return delta_rule::cluster_bytes_moved(a) + ceil_div(a.Dv, 128) * gates;
}

std::int64_t one_block_bytes_moved(const Bf16Arguments& a) {
  return delta_rule::one_block_bytes_moved(a) + ceil_div(a.Dv, 128) * 4 * std::int64_t(a.B) * a.H * a.L;
}

std::int64_t segmented_walk_bytes_moved(const Bf16Arguments& a, const tile::LaunchPlan& plan) {
  const std::int64_t heads = std::int64_t(a.B) * a.H, gates = 4 * heads * a.L, count = plan.segments - 1;
  // prepare() writes decays in place of the keys' factors.
  std::int64_t added = gates + 4 * (kDecays - 64) * heads * ceil_div(a.L, 64);
  // The decays of segments are written once. Each thread that carries rows loads them.
  if (count > 1) added += heads * (count - 1) * 4 * (1 + std::int64_t(a.Dv) / 16 * 2 * a.Dk);
  return delta_rule::segmented_walk_bytes_moved(a, plan, kDecays) + added;
}

}  // namespace tutorial::gated_delta_rule
