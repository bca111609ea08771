/// @file
/// `warpgroups`: the walks and the gradients of chunks by products of warpgroups, with one anchor for a chunk.
///
/// Idea: `tensor_core` goes from sub-chunk to sub-chunk with its sums, because exp(b_t - b_i) must not be divided. But
/// the rows that the walks read anyway have the decays from the start of the chunk and to its end, and with D =
/// exp(b_end)
///
///     exp(b_t - b_i) = exp(b_t) (1 / D) exp(b_end - b_i)
///
/// If the walks leave D . S and D . dS, everything in a sum of dq and dk has the same factor too many or too few, which
/// depends on the column and the position of the result alone ("." is a product of elements):
///
///     A = scale dO (D . S)^T + Y K-       dq = exp(b - b_end) . A + y K        Y = scale tril(dO v_new^T, -1)
///     C = -dV (D . S)^T + Z K-            dk = exp(b - b_end) . C              Z = -tril(dV v_new^T, -1)
///     B = v_new (D . dS)^T + Y^T Q+ + Z^T K+      + exp(-b) . B + y Q          y_t = scale (dO v_new^T)_tt
///
/// So a chunk is computed like one without gates: Y and Z are products of which a mask keeps one half, and exponentials
/// multiply results. dg takes sums down the columns of products of elements that are there, with W the part of B that
/// contains dS and B' the rest:
///
///     dg_p = (1 / D) . (rows of (D . S) (D . dS) + sum_{t >= p} (Q+ . A + K+ . C - K- . B')_t + sum_{i < p} (K- . W)_i)
///
/// Sums over pairs of positions on the same side of p cancel, and both have the same rounded factors. All else contains
/// the gate of p. Each factor contains decays, and two such numbers multiplied may be too small for fp32. So 1 / D is
/// shared out between them before: Q+ . A / D is q . exp(b - b_end) . A, which dq consists of anyway.
///
/// 1 / D does no harm while D is at least 2^-100 in each column (prepare_chunks.hpp): 64 gates of exp(-1.08). The
/// gradients of a chunk that forgets more are computed as in `tensor_core`, by a kernel of their own, and the walks leave
/// S and dS as they are. The sign of what prepare_chunks() leaves for D says which chunk is which. That kernel comes
/// first: it takes little time where all chunks have an anchor, and the next one starts while its last blocks run.
/// Improves on: in `tensor_core` the last kernel takes more than half of the time, with products of 16 x 16 that wait for
/// each other and pairs in fp32; the walks read all tiles as fragments.
/// Unchanged: what crosses memory, but for the layout of states; what is two bf16; beta of at least 2^-32.
/// Equation: the lines above; the walks are in warpgroup_walks.cuh.
/// Shapes: those of `tensor_core`; of each state the transpose [Dv, Dk], as rows.
/// Thread mapping: the walks as in `warpgroups` of `delta_rule`. In gradients_kernel block (chunk and tile of 64 columns
/// of Dk, h, b) is a warpgroup.
/// Synchronization: that of the walks without gates; seven barriers per chunk in gradients_kernel, and one for each of
/// three groups of bulk copies.
/// Resources: 220 KB of shared memory in the walks, 107 KB in gradients_kernel.
/// Work: that of prepare_chunks(), and per position 12 Dk Dv + 64 (10 Dk + 6 Dv + 4 Dv ceil(Dk / 64)) operations on
/// tensor cores with the masked halves; three exponentials per position and column.
/// Bytes: per position at Dk = Dv = 128, 2 188 in prepare_chunks(), 1 800 and 2 184 in the walks, if the tiles of Dv
/// share what they read, and 3 856 in gradients_kernel, if those of Dk do: 10.0 KB.
/// Bound by: the memory's bandwidth; with few heads the chain of the walks.
/// Requires: compute capability 9.0, what one_anchor_unsupported() requires, Dk and Dv up to 128; tensors that a tensor
/// map can describe.
/// Weakness: one column that forgets too much makes its whole chunk go through sub-chunks. The decayed rows, the states
/// of all chunks and v_new cross memory.
/// Sources: those of `tensor_core`; gla_backward's `one_anchor` for the anchor and dg.

#include <cuda_runtime.h>

#include <string>

#include "05_deltanet_wy/delta_rule_backward/dispatch/copies.hpp"
#include "05_deltanet_wy/delta_rule_backward/dispatch/segments.hpp"
#include "05_deltanet_wy/delta_rule_backward/dispatch/walk_segments.cuh"
#include "05_deltanet_wy/kda_backward.hpp"
#include "05_deltanet_wy/kda_backward/dispatch/chunk_gradients.cuh"
#include "05_deltanet_wy/kda_backward/dispatch/forward_arguments.hpp"
#include "05_deltanet_wy/kda_backward/dispatch/prepare_chunks.hpp"
#include "05_deltanet_wy/kda_backward/dispatch/sub_chunk_gradients.hpp"
#include "05_deltanet_wy/kda_backward/dispatch/warpgroup_walks.cuh"
#include "common/ceil_div.hpp"
#include "common/device/early_start.cuh"
#include "common/device/launch.cuh"
#include "common/device/workspace.hpp"
#include "common/parts.hpp"

namespace tutorial::kda {
namespace {

/// Tiles of 64 columns.
__host__ __device__ constexpr int tiles_of(int width) {
  return (width + kColumns - 1) / kColumns;
}

/// Grid (chunks and tiles of Dk, H, B). Starts early. Returns where the chunk has no anchor.
template <int kDv>
__global__ void __launch_bounds__(kWarpgroup, 2)
    gradients_kernel(Bf16BackwardArguments g, const __grid_constant__ ChunkGradientMaps maps, PreparedChunks prepared) {
  __shared__ ChunkSums sums;
  const ChunkGradientTiles<kDv> tiles(dynamic_shared<__nv_bfloat16, kTileAlignment>());
  const ChunkOfBlock at(g, prepared.N, tiles_of(g.Dk));
  const std::int64_t chunk = (std::int64_t(at.b) * g.H + at.h) * prepared.N + at.n;
  const float* decays = prepared.decays + chunk * g.Dk;
  if (threadIdx.x == 0) {
    sums.values_full.init(1), sums.keys_full.init(1), sums.gates_full.init(1), sums.errors_full.init(1);
    fence_barrier_init();
  }
  // The decays of the lane's two columns, now: if they were loaded where they are needed, that would be another trip to
  // memory.
  const auto early = [&](int d) {
    return __uint_as_float(load_early(reinterpret_cast<const std::uint32_t*>(decays + min(d, g.Dk - 1))));
  };
  const int d = at.first + int(lane_index()) * 2;
  const float2 minus_D{early(d), early(d + 1)};
  const std::uint32_t mark =
      load_early(reinterpret_cast<const std::uint32_t*>(prepared.matrices + chunk * kMatrixRows * kChunk + 14));
  if (!load_for_update(prepared.anchors + chunk)) return;
  wait_for_previous_kernel();
  __syncthreads();
  if (threadIdx.x == 0 || threadIdx.x == 32) start_loads(tiles, sums, maps, at, state_rows(g.Dv));
  gradients_with_anchor(g, tiles, sums, maps, at, minus_D, is_marked(mark));
}

/// All kernels.
void run(const Bf16BackwardArguments& g, const delta_rule::BackwardSegments& cut) {
  const std::size_t chunks = std::size_t(std::int64_t(g.B) * g.H * ceil_div(g.L, kChunk));
  auto* bounds = cut.count > 1 ? workspace<float>("kda --backward: bounds", chunks) : nullptr;
  const PreparedChunks prepared = prepare_chunks(forward_of(g), bounds);
  end_part("prepare");
  const Workspace x = workspace_of(g, "kda --backward: warpgroups", 1);
  const auto walk = [&]<class Shape>(Shape) {
    constexpr int kDk = Shape::kDk;
    const DecayedMaps maps = walk_maps(g, prepared, x);
    WalkSegments<kDk> segments = walk_segments<kDk>(g, cut, bounds);
    LaunchConfig config = walk_launch(g, WalkMemory<kDk>::kBytes);
    start_maps<Shape, KeptWithRowGates<kDk>>(g, segments, kDk, config, [&](const LaunchConfig& of_maps) {
      launch(walks_kernel<kDk, true>, of_maps, g, maps, x, segments);
    });
    if (cut.count > 1) config.starts_early = true;
    config.grid.x *= unsigned(cut.count);
    launch(walks_kernel<kDk, false>, config, g, maps, x, segments);
  };
  g.Dk <= 64 ? walk(PanelShape<64, kColumns>()) : walk(PanelShape<128, kColumns>());
  end_part("walks");
  gradients_by_sub_chunks(g, prepared, {x.v_new, x.S.data, x.dS.data, x.v_errors});
  const auto start = [&]<int kDv>() {
    const dim3 chunks(unsigned(prepared.N * tiles_of(g.Dk)), unsigned(g.H), unsigned(g.B));
    LaunchConfig config(chunks, unsigned(kWarpgroup), ChunkGradientTiles<kDv>::kBytes);
    config.starts_early = true;
    launch(gradients_kernel<kDv>, config, g, ChunkGradientMaps(g, prepared, x, kDv), prepared);
  };
  g.Dv <= 64 ? start.template operator()<64>() : start.template operator()<128>();
  if (g.normalize_keys) normalize_rows_backward({g.B, g.H, g.L}, g.k, read_only(g.dk), g.dk, g.Dk);
  end_part("gradients");
}

}  // namespace

void warpgroups_backward(const Bf16BackwardArguments& g) {
  run(g, {1, ceil_div(g.L, kChunk)});
}

void segments_backward(const Bf16BackwardArguments& g) {
  run(g, delta_rule::BackwardSegments::one_wave(g));
}

std::string warpgroups_backward_unsupported(const Bf16BackwardArguments& g) {
  if (const std::string reason = tensor_core_backward_unsupported(g); !reason.empty()) return reason;
  if (const std::string reason = warpgroup_products_missing(); !reason.empty()) return reason;
  const auto why_not = [&](const auto& view, int width) {
    return why_not_mapped(read_only(view), tensor_sizes(g, width), kChunk);
  };
  const auto why_no_floats = [&](const auto& view) {
    return why_floats_are_not_mapped(read_only(view), tensor_sizes(g, g.Dk), kChunk);
  };
  for (const std::string& reason :
       {why_not(g.q, g.Dk), why_not(g.k, g.Dk), why_not(g.dq, g.Dk), why_not(g.dk, g.Dk), why_not(g.v, g.Dv),
        why_not(g.d_o, g.Dv), why_not(g.dv, g.Dv), why_no_floats(g.g), why_no_floats(g.dg)}) {
    if (!reason.empty()) return reason;
  }
  return "";
}

std::int64_t warpgroups_backward_memory(const Bf16BackwardArguments& g) {
  return prepared_chunks_memory(forward_of(g)) + WorkspaceBytes(g, 1).all();
}

std::int64_t segments_backward_memory(const Bf16BackwardArguments& g) {
  return warpgroups_backward_memory(g) +
         backward_segments_memory(g, BackwardSegments::one_wave(g), g.Dk <= 64 ? 64 : 128);
}

}  // namespace tutorial::kda
