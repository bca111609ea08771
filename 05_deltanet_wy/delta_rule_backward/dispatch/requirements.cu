/// @file
/// What the stages and variants of `--backward` need: whether they can run a problem, memory beside its inputs and
/// outputs, and the bytes that their kernels read from device memory or write to it, even if a cache serves them. A test
/// compares these with the bytes that the emulator counts.

#include <cuda_runtime.h>

#include <algorithm>

#include "05_deltanet_wy/chunk/blocks.hpp"
#include "05_deltanet_wy/chunk/prepare.hpp"
#include "05_deltanet_wy/delta_rule_backward.hpp"
#include "05_deltanet_wy/delta_rule_backward/dispatch/requirements.hpp"
#include "05_deltanet_wy/delta_rule_backward/dispatch/segments.hpp"
#include "05_deltanet_wy/delta_rule_backward/forward_arguments.hpp"
#include "05_deltanet_wy/delta_rule_backward/workspace_bytes.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/parallel.hpp"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/requirements.hpp"

namespace tutorial::delta_rule {
namespace {

constexpr int kChunk = 64;                                       // positions
constexpr int kColumns = 64;                                     // of a block
constexpr int kBlockBytes = kLowerBlocks * kBlock * kBlock * 2;  // P of a chunk, or T in one bf16

std::int64_t heads_of(const Bf16BackwardArguments& g) {
  return std::int64_t(g.B) * g.H;
}

/// The states that are there, in fp32.
std::int64_t state_bytes(const Bf16BackwardArguments& g) {
  const int count =
      (g.initial_state.data != nullptr) + (g.dfinal_state.data != nullptr) + (g.dinitial_state.data != nullptr);
  return count * 4 * heads_of(g) * g.Dk * g.Dv;
}

/// A width as kernels with tiles of 64, 128 or 256 columns round it up.
int rounded_width(int width) {
  return width <= 64 ? 64 : width <= 128 ? 128 : 256;
}

/// Shared memory of a walk from the end on fragments: T in two bf16, P, K, Q and dO of each chunk, and rows of dV.
std::size_t walk_bytes(const Bf16BackwardArguments& g, int chunks) {
  return std::size_t(chunks * (3 * kBlockBytes + 2 * kChunk * (2 * rounded_width(g.Dk) + kColumns)) +
                     2 * kChunk * kColumns);
}

/// The same of the last kernel of `tensor_core`: dO, dV and v_new, and 64 columns of Q, K, Y and Z.
std::size_t gradient_bytes(const Bf16BackwardArguments& g) {
  return std::size_t(2 * kChunk * (3 * rounded_width(g.Dv) + 4 * kColumns));
}

/// Why kernels on fragments do not support a problem; empty if they do.
std::string fragments_unsupported(const Bf16BackwardArguments& g, std::size_t shared_bytes) {
  if (g.normalize_keys) return "keys are not normalised: on tensor cores only dispatch does that";
  if (g.Dv > 256) return "Dv > 256: a block holds all columns of three tiles";
  if (const std::string reason = tile::unsupported_extents({g.B, g.H, g.L, g.Dk, g.Dv}); !reason.empty()) return reason;
  const auto aligned = [](const auto&... views) { return (tile::has_aligned_rows(views) && ...); };
  if (!aligned(g.q, g.k, g.v, g.d_o, g.dq, g.dk, g.dv)) return "rows are not aligned to 16 bytes";
  return shared_memory_missing(shared_bytes);
}

}  // namespace

// Whether a kernel can run.

std::string walks_backward_unsupported(const Bf16BackwardArguments& g) {
  return fragments_unsupported(g, walk_bytes(g, 2));
}

std::string tensor_core_backward_unsupported(const Bf16BackwardArguments& g) {
  return fragments_unsupported(g, std::max(walk_bytes(g, 2), gradient_bytes(g)));
}

std::string both_ends_backward_unsupported(const Bf16BackwardArguments& g) {
  return fragments_unsupported(g, std::max(walk_bytes(g, 1), gradient_bytes(g)));
}

std::string warpgroups_backward_unsupported(const Bf16BackwardArguments& g) {
  if (const std::string reason = tensor_core_backward_unsupported(g); !reason.empty()) return reason;
  if (g.Dk > 128 || g.Dv > 128) return "Dk or Dv > 128: a chunk of the last kernel would not fit into shared memory";
  if (const std::string reason = warpgroup_products_missing(); !reason.empty()) return reason;
  const auto why_not = [&](const auto& view, int width) {
    return why_not_mapped(read_only(view), tile::tensor_sizes(g, width), kChunk);
  };
  for (const std::string& reason : {why_not(g.q, g.Dk), why_not(g.k, g.Dk), why_not(g.dq, g.Dk), why_not(g.dk, g.Dk),
                                    why_not(g.v, g.Dv), why_not(g.d_o, g.Dv), why_not(g.dv, g.Dv)}) {
    if (!reason.empty()) return reason;
  }
  return "";
}

// Memory.

std::int64_t recurrent_backward_memory(const FloatBackwardArguments& a) {
  return 8 * (std::int64_t(a.L) * (5 * a.Dk + 4 * a.Dv + 4) + 2 * std::int64_t(a.Dk) * a.Dv) * processor_count();
}

std::int64_t chunkwise_backward_memory(const FloatBackwardArguments& a) {
  const std::int64_t C = std::min(a.C, a.L), Dk = a.Dk, Dv = a.Dv;
  const std::int64_t chunk = C * (5 * Dk + 7 * Dv + 3) + 5 * C * C;
  return 8 * ((ceil_div(a.L, a.C) + 1) * Dk * Dv + chunk) * processor_count();
}

std::int64_t tensor_core_backward_memory(const Bf16BackwardArguments& g) {
  const std::int64_t states = ceil_div(g.L, kChunk) * std::int64_t(g.Dk) * g.Dv, v_new = std::int64_t(g.L) * g.Dv;
  return prepared_memory(forward_of(g)) + heads_of(g) * 2 * (2 * states + v_new);
}

std::int64_t both_ends_backward_memory(const Bf16BackwardArguments& g) {
  return tensor_core_backward_memory(g) + heads_of(g) * 2 * std::int64_t(g.L) * g.Dv;  // errors of v_new
}

std::int64_t warpgroups_backward_memory(const Bf16BackwardArguments& g) {
  return prepared_tiles_memory(forward_of(g)) + WorkspaceBytes(g, 1).all();
}

std::int64_t longer_chunks_backward_memory(const Bf16BackwardArguments& g) {
  return prepared_tiles_memory(forward_of(g)) + WorkspaceBytes(g, 2).all();
}

std::int64_t segments_backward_memory(const Bf16BackwardArguments& g) {
  return longer_chunks_backward_memory(g) + backward_segments_memory(g, BackwardSegments::one_wave(g), 0);
}

// Bytes that move.

namespace {

/// prepare() and both walks on fragments.
std::int64_t walks_moved(const Bf16BackwardArguments& g) {
  const std::int64_t positions = heads_of(g) * g.L, keys = positions * g.Dk * 2, values = positions * g.Dv * 2;
  const std::int64_t chunks = heads_of(g) * ceil_div(g.L, kChunk), P = chunks * kBlockBytes;
  const std::int64_t states = chunks * g.Dk * g.Dv * 2, value_tiles = ceil_div(g.Dv, kColumns);
  std::int64_t count = 2 * keys + 4 * positions + prepared_memory(forward_of(g));  // q, k, beta; T, P, f
  count += value_tiles * (keys + 2 * P) + 2 * values + states;                     // k, T, v; v_new, S
  count += value_tiles * (2 * keys + 3 * P) + 2 * values + states;                 // k, q, T, P, do; dv, dS
  return count + state_bytes(g);
}

/// All kernels on warpgroups. @param every chunks from one state to the next
std::int64_t warpgroups_moved(const Bf16BackwardArguments& g, int every) {
  const WorkspaceBytes bytes(g, every);
  const std::int64_t positions = heads_of(g) * g.L, keys = positions * g.Dk * 2, values = bytes.v_new;
  const std::int64_t tiles = ceil_div(g.Dv, kColumns), prepared = prepared_tiles_memory(forward_of(g));
  std::int64_t count = 2 * keys + 4 * positions + prepared;                      // q, k, beta; -T, P
  count += tiles * (keys + prepared / 3 * 2) + 2 * values + bytes.states;        // k, -T, v; v_new, S
  count += tiles * (2 * keys + prepared) + 2 * values + bytes.states;            // k, q, -T, P, do; dv, dS
  count += 3 * values + 2 * bytes.states + 2 * keys + 2 * keys + 8 * positions;  // do, v_new, dv, S, dS, q, k, beta
  count += 4 * heads_of(g) * ceil_div(g.L, kChunk);                              // of T a mark
  return count + state_bytes(g);
}

}  // namespace

std::int64_t walks_backward_bytes_moved(const Bf16BackwardArguments& g) {
  const std::int64_t heads = heads_of(g), positions = heads * g.L, last = g.L % kChunk, full = g.L / kChunk;
  const std::int64_t pairs = heads * (full * kChunk * kChunk + last * last);  // of positions in a chunk
  const std::int64_t lower = (pairs + positions) / 2;                         // on and below the diagonal
  std::int64_t count = 3 * 2 * lower * g.Dv + 2 * 4 * positions;              // v_new, do, dv; beta, dbeta
  count += 5 * 2 * positions * g.Dk * g.Dv + 2 * 2 * pairs * g.Dk;            // S, do, v_new, dS, dv; k, q
  return walks_moved(g) + count + 2 * 2 * positions * g.Dk;                   // dq, dk
}

std::int64_t tensor_core_backward_bytes_moved(const Bf16BackwardArguments& g) {
  const std::int64_t positions = heads_of(g) * g.L, keys = positions * g.Dk * 2, values = positions * g.Dv * 2;
  const std::int64_t states = heads_of(g) * ceil_div(g.L, kChunk) * g.Dk * g.Dv * 2;
  // do, v_new, dv, S twice, dS; q, k, dq, dk; beta, dbeta
  return walks_moved(g) + 3 * ceil_div(g.Dk, kColumns) * values + 3 * states + 4 * keys + 2 * 4 * positions;
}

std::int64_t both_ends_backward_bytes_moved(const Bf16BackwardArguments& g) {
  const std::int64_t blocks = heads_of(g) * ceil_div(g.L, kChunk) * ceil_div(g.Dk, kColumns);
  return tensor_core_backward_bytes_moved(g) + 128 * 4 * blocks;  // of T a mark, in each thread
}

std::int64_t warpgroups_backward_bytes_moved(const Bf16BackwardArguments& g) {
  return warpgroups_moved(g, 1);
}

std::int64_t longer_chunks_backward_bytes_moved(const Bf16BackwardArguments& g) {
  return warpgroups_moved(g, 2);
}

}  // namespace tutorial::delta_rule
