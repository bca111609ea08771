/// @file
/// What the kernels of the operator need: whether they can run a problem, memory beside its inputs and outputs,
/// and the bytes that they read from device memory or write to it, even if a cache serves them. kda_test.cpp compares
/// these with the bytes that the emulator counts.

#include <cuda_runtime.h>

#include <algorithm>
#include <climits>

#include "05_deltanet_wy/delta_rule/dispatch/requirements.hpp"
#include "05_deltanet_wy/kda.hpp"
#include "05_deltanet_wy/kda/dispatch/middle_anchor.hpp"
#include "05_deltanet_wy/kda/dispatch/segments.hpp"
#include "05_deltanet_wy/kda/dispatch/specialized_warps.hpp"
#include "05_deltanet_wy/kda/dispatch/zero_starts.hpp"
#include "05_deltanet_wy/kda/prepare_decayed.hpp"
#include "05_deltanet_wy/kda/prepare_updates.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/parallel.hpp"
#include "common/tile/bulk_requirements.hpp"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/float_panels.cuh"
#include "common/tile/requirements.hpp"

namespace tutorial::kda {
namespace {

constexpr std::int64_t kBytesOfKeys = 2 + 2 + 4;  // of an element of q, of k and of g

constexpr int kBlockBytes = 10 * 512;  // P of a chunk, or T in one bf16

template <class T>
std::int64_t heads_of(const Arguments<T>& a) {
  return std::int64_t(a.B) * a.H;
}

/// The initial and the final state, in fp32, if there are any.
template <class T>
std::int64_t state_bytes(const Arguments<T>& a) {
  return 4 * heads_of(a) * a.Dk * a.Dv * ((a.initial_state.data != nullptr) + (a.final_state.data != nullptr));
}

/// Both kernels of the stages on tensor cores.
/// @param columns of Dv in a block of the walk
/// @param prepared bytes that prepare() leaves
std::int64_t prepare_and_walk(const Bf16Arguments& a, int columns, std::int64_t prepared) {
  const std::int64_t positions = heads_of(a) * a.L, chunks = heads_of(a) * ceil_div(a.L, 64);
  // prepare(): rows that do not exist are not left out. q, k, g and beta; k once more for its lengths.
  const std::int64_t elements = chunks * 64 * ceil_div(a.Dk, 64) * 64;
  const std::int64_t prepare =
      elements * kBytesOfKeys + positions * 4 + (a.normalize_keys ? chunks * 64 * 2 * a.Dk : 0);
  return prepare + (1 + ceil_div(a.Dv, columns)) * prepared + positions * 2 * 2 * a.Dv + state_bytes(a);
}

}  // namespace

// Whether a kernel can run.

std::string recurrent_gpu_unsupported(const FloatArguments& a) {
  if (a.Dk > 256) return "Dk > 256: the state's columns would not fit into the registers of 8 threads";
  if (heads_of(a) * ceil_div(a.Dv, 32) > INT_MAX) return "B H > 2^31 - 1 tiles of 32 columns: the grid";
  if (a.L > INT_MAX - 16) return "L > 2^31 - 17: positions are counted in int";
  return "";
}

std::string tensor_core_unsupported(const Bf16Arguments& a) {
  if (a.Dk > 128) return "Dk > 128: two chunks do not fit into a block's shared memory";
  if (const std::string reason = tile::tensor_core_unsupported(a); !reason.empty()) return reason;
  if (!tile::has_aligned_rows(a.g)) return "rows of g are not aligned to 16 bytes";
  // Of one chunk T in two bf16, P, K+, K-, Q+, V and decays, and a tile of outputs.
  const int width = a.Dk <= 64 ? 64 : 128;
  return shared_memory_missing(std::size_t(3 * kBlockBytes + 2 * 64 * (3 * width + 64) + 4 * width + 2 * 64 * 64));
}

std::string specialized_warps_unsupported(const Bf16Arguments& a) {
  if (const std::string reason = tensor_core_unsupported(a); !reason.empty()) return reason;
  // The same of two chunks, and what passes from the chain to the outputs, twice for four warps.
  const int width = a.Dk <= 64 ? 64 : 128;
  return shared_memory_missing(
      std::size_t(2 * (3 * kBlockBytes + 2 * 64 * (3 * width + 64) + 4 * width) + 2 * 4 * 512 * (width / 16 + 4)));
}

std::string warpgroups_unsupported(const Bf16Arguments& a) {
  if (const std::string reason = warpgroup_products_missing(); !reason.empty()) return reason;
  if (const std::string reason = tensor_core_unsupported(a); !reason.empty()) return reason;
  return tile::bulk_copies_unsupported(a);
}

std::string one_anchor_unsupported(const Bf16Arguments& a) {
  if (const std::string reason = warpgroups_unsupported(a); !reason.empty()) return reason;
  return tile::why_floats_are_not_mapped(a.g, tile::tensor_sizes(a, a.Dk), 64);
}

// Memory.

std::int64_t chunkwise_memory(const FloatArguments& a) {
  const std::int64_t C = std::min(a.C, a.L), Dk = a.Dk, Dv = a.Dv;
  return 8 * (Dk * Dv + 6 * C * Dk + 3 * C * Dv + 4 * C * C) * processor_count();
}

std::int64_t tensor_core_memory(const Bf16Arguments& a) {
  return prepared_memory(a);
}

std::int64_t two_products_memory(const Bf16Arguments& a) {
  return prepared_updates_memory(a);
}

std::int64_t segments_memory(const Bf16Arguments& a, const tile::LaunchPlan& plan) {
  const std::int64_t bounds = ceil_div(a.L, 64) * 4, decays = (plan.segments - 1) * (a.Dk <= 64 ? 64 : 128);
  return prepared_updates_memory(a) + delta_rule::segment_maps_memory(without_gates(a), plan) +
         heads_of(a) * (bounds + decays) * std::int64_t(sizeof(float));
}

std::int64_t segments_memory(const Bf16Arguments& a) {
  return segments_memory(a, shortest_segments(a));
}

std::int64_t zero_starts_memory(const Bf16Arguments& a) {
  return segments_memory(a) + heads_of(a) * one_wave_of_clusters(a).segments * std::int64_t(sizeof(int));
}

std::int64_t middle_anchor_memory(const Bf16Arguments& a) {
  const std::int64_t segments = one_wave_of_blocks(a).segments;
  return heads_of(a) * segments * std::int64_t(sizeof(int)) + (segments > 1 ? segments_memory(a, plan_of_past(a)) : 0);
}

// Bytes.

std::int64_t recurrent_gpu_bytes_moved(const FloatArguments& a) {
  const std::int64_t tiles = ceil_div(a.Dv, 32);
  return 4 * heads_of(a) * a.L * (tiles * (3 * a.Dk + 1) + 2 * a.Dv) + state_bytes(a);
}

std::int64_t tensor_core_bytes_moved(const Bf16Arguments& a) {
  return prepare_and_walk(a, 64, prepared_memory(a));
}

std::int64_t specialized_warps_bytes_moved(const Bf16Arguments& a) {
  return prepare_and_walk(a, specialized_warps_columns(a), prepared_memory(a));
}

std::int64_t two_products_bytes_moved(const Bf16Arguments& a) {
  return prepare_and_walk(a, 64, prepared_updates_memory(a));
}

std::int64_t one_anchor_bytes_moved(const Bf16Arguments& a) {
  const std::int64_t positions = heads_of(a) * a.L, prepared = prepared_updates_memory(a);
  return positions * (kBytesOfKeys * a.Dk + 4) + (1 + ceil_div(a.Dv, 64)) * prepared + positions * 2 * 2 * a.Dv +
         state_bytes(a);
}

std::int64_t cluster_bytes_moved(const Bf16Arguments& a) {
  const std::int64_t of_keys = kBytesOfKeys * a.Dk + 4, of_values = 2 * 2 * a.Dv;
  return heads_of(a) * a.L * (ceil_div(a.Dv, 128) * of_keys + of_values) + state_bytes(a);
}

}  // namespace tutorial::kda
