/// @file
/// What the stages and variants require of a problem, and the memory that they take and reserve.

#include <climits>

#include "03_gla/gla/dispatch/prepared_chunks.hpp"
#include "03_gla/gla/launch_plan.hpp"
#include "03_gla/gla/prepare.hpp"
#include "03_gla/gla/requirements.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/device/tensor_map.hpp"
#include "common/device/workspace.hpp"
#include "common/parallel.hpp"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/decayed_tiles.cuh"
#include "common/tile/requirements.hpp"

namespace tutorial::gla {
namespace {

constexpr std::int64_t kFloat = sizeof(float), kBf16 = sizeof(__nv_bfloat16);

/// Elements of what prepare() leaves, each tensor a multiple of 256 bytes.
struct PreparedSizes {
  std::int64_t rows, decays, scores;

  PreparedSizes(const Bf16Arguments& a, int chunks) {
    const std::int64_t sub_chunks = std::int64_t(a.B) * a.H * chunks * tile::kSubChunks;
    rows = sub_chunks * tile::kSubChunk * a.Dk;
    decays = sub_chunks * a.Dk;
    scores = sub_chunks * tile::kSubChunk * tile::kSubChunk;
  }
};

}  // namespace

Prepared reserve_prepared(const Bf16Arguments& a) {
  return reserve_prepared(a, ceil_div(a.L, tile::kChunk));
}

Prepared reserve_prepared(const Bf16Arguments& a, int chunks) {
  const PreparedSizes sizes(a, chunks);
  auto* rows = workspace<__nv_bfloat16>("gla: decayed q and k", std::size_t(2 * sizes.rows));
  return {chunks, rows, rows + sizes.rows,
          workspace<float>("gla: decays of sub-chunks", std::size_t(sizes.decays)),
          workspace<__nv_bfloat16>("gla: scores in sub-chunks", std::size_t(sizes.scores))};
}

std::int64_t prepared_memory(const Bf16Arguments& a) {
  return prepared_memory(a, ceil_div(a.L, tile::kChunk));
}

std::int64_t prepared_memory(const Bf16Arguments& a, int chunks) {
  const PreparedSizes sizes(a, chunks);
  return kBf16 * (2 * sizes.rows + sizes.scores) + kFloat * sizes.decays;
}

std::string parallel_log_unsupported(const FloatArguments& a) {
  return a.L > 8192 ? "L > 8192: the scores would take over 268 MB a thread and O(L^2) time" : "";
}

std::int64_t parallel_log_memory(const FloatArguments& a) {
  return kFloat * (std::int64_t(a.L) * a.L + 3 * std::int64_t(a.L) * a.Dk) * processor_count();
}

std::int64_t parallel_unstable_memory(const FloatArguments& a) {
  return parallel_log_memory(a);
}

std::int64_t chunkwise_memory(const FloatArguments& a) {
  const std::int64_t C = std::min(a.C, a.L);
  return kFloat * (std::int64_t(a.Dk) * a.Dv + C * C + 5 * C * a.Dk) * processor_count();
}

std::string chunk_gpu_unsupported(const FloatArguments& a) {
  constexpr int kTile = 64, kThreads = 256;  // of each side of a tile, and of a block
  if (std::int64_t(a.B) * a.H * ceil_div(a.L, kTile) > INT_MAX) {
    return "B H > 2^31 - 1 chunks of 64: the grid's first dimension";
  }
  constexpr int kMostTiles = 65535 / (kTile * kTile / kThreads);
  if (std::int64_t(ceil_div(a.Dk, kTile)) * ceil_div(a.Dv, kTile) > kMostTiles) {
    return "a state of more than 4095 tiles of 64 x 64: the grid's second dimension";
  }
  if (a.L > INT_MAX - kTile) return "L > 2^31 - 65: positions are counted in int";
  return "";
}

std::int64_t chunk_gpu_memory(const FloatArguments& a) {
  const std::int64_t heads = std::int64_t(a.B) * a.H, gates = heads * a.L * a.Dk;
  return kFloat * (heads * ceil_div(a.L, 64) * a.Dk * a.Dv + 2 * gates);
}

std::string recurrent_gpu_unsupported(const FloatArguments& a) {
  if (a.Dk > 256) return "Dk > 256: the state's columns would not fit into the registers of 8 threads";
  if (std::int64_t(a.B) * a.H * ceil_div(a.Dv, 32) > INT_MAX) return "B H > 2^31 - 1 tiles of 32 columns: the grid";
  if (a.L > INT_MAX - 16) return "L > 2^31 - 17: positions are counted in int";
  return "";
}

std::string subchunk_walk_unsupported(const Bf16Arguments& a) {
  if (const std::string reason = tile::tensor_core_unsupported(a); !reason.empty()) return reason;
  return tile::has_aligned_rows(a.g) ? "" : "rows of g are not aligned to 16 bytes";
}

std::string subchunk_tensor_core_unsupported(const Bf16Arguments& a) {
  if (const std::string reason = subchunk_walk_unsupported(a); !reason.empty()) return reason;
  constexpr std::int64_t kScoreBytes = kBf16 * tile::kChunk * tile::kChunk;  // beside two sets of tiles
  return a.Dk > 128 ? shared_memory_missing(2 * tile::DecayedTiles<tile::ChunkShape<256, 64>>::kBytes + kScoreBytes)
                    : "";
}

std::string warpgroup_walk_unsupported(const Bf16Arguments& a) {
  if (const std::string reason = subchunk_walk_unsupported(a); !reason.empty()) return reason;
  if (a.Dk > 128) return "Dk > 128: the state and its copies would not fit into a warpgroup's registers";
  if (const std::string reason = warpgroup_products_missing(); !reason.empty()) return reason;
  return why_not_mapped(a.v, tile::tensor_sizes(a, a.Dv), tile::kChunk);
}

std::int64_t walk_memory(const Bf16Arguments& a, const LaunchPlan& plan) {
  return prepared_memory(a) + tile::launch_plan_memory(tile::extents_of(a), plan) +
         kFloat * a.B * a.H * (plan.segments - 1) * a.Dk;
}

std::int64_t subchunk_walk_memory(const Bf16Arguments& a) {
  return prepared_memory(a);
}

std::int64_t walk_segments_memory(const Bf16Arguments& a) {
  return walk_memory(a, tile::one_wave(tile::extents_of(a)));
}

}  // namespace tutorial::gla
