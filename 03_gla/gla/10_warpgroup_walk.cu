/// @file
/// `warpgroup_walk`: the walk on products of warpgroups, whose sums are multiplied by decays between two products.
///
/// Idea: a sub-chunk needs three products, O_r = q~_r S + P_rr V_r and S += k~_r^T V_r. With `wgmma` a warpgroup does
/// them in ten instructions, of factors that bulk copies have brought (chapter 02, "Hopper in one sitting"). The state
/// is in the sums of the last product for the whole sequence, and before each sub-chunk all of it must be multiplied by
/// D_r. Sums belong to the tensor core from the start of a product to the wait for it. So the warpgroup waits for S,
/// rounds it for the outputs, multiplies it, says so with wgmma_fence(), and starts the next product that adds to it.
/// Products run in the order in which they are started: the outputs are queued behind that product, and run while
/// the next S is rounded and multiplied.
///
///     tensor core | S of r + 1 | O of r ......... | S of r + 2 | O of r + 1 ....... |
///     threads                  | s, S D of r + 1  |  put O of r
///
/// Grows out of: 8_subchunk_walk.cu
/// Improves on: `subchunk_walk` issues thousands of ldmatrix and mma for a chunk, with two warps on a scheduler.
/// Unchanged: prepare(), equation and precision; 64 positions are copied at a time. Segments as in `sequence_parallel`.
/// Shapes: as in `subchunk_walk`; tiles are panels of 64 columns of bf16 or 32 of fp32 (common/tile/panel_tile.cuh and
/// float_panels.cuh).
/// Thread mapping: block (tile and segment, h, b) takes 64 columns of Dv. Of warpgroup 0 one thread loads and three
/// warps store outputs; warpgroup 1 has the state.
/// Who waits for whom: the state for tiles (`full`) and for a free tile of outputs (`output_empty`), the loads for the
/// state (`empty`), the stores for outputs (`output_full`).
/// Registers: the outputs of r read s of r, while s of r + 1 is made. So there are two of them, and the four sub-chunks
/// of a chunk are written out.
/// Resources: four times q~, k~, V, scores and decays, two O: 224 KB of shared memory at Dk = 128, one block on a
/// multiprocessor.
/// Work: as `subchunk_walk`; a chunk takes 4 x 10 instructions of a warpgroup at Dk = 128.
/// Bytes: as `sequence_parallel`; q~, k~, decays and scores are read for each 64 columns of Dv, the second time from the
/// second-level cache.
/// Bound by: the memory's bandwidth from about 64 heads of Dv = 128 on; with fewer, the time of a block for a chunk.
/// Requires: compute capability 9.0, Dk <= 128, what `subchunk_walk` requires, and a v that bulk copies can bring.
/// Weakness: prepare() writes q~ and k~ to memory, as before; it takes longer than this walk.
/// Sources: PTX ISA, "wgmma"; chapter 02's `queued_products`.

#include <cuda_runtime.h>

#include "03_gla/gla/launch_plan.hpp"
#include "03_gla/gla/prepared.hpp"
#include "common/device/device.hpp"
#include "common/device/launch.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/float_panels.cuh"
#include "common/tile/store_tile.cuh"
#include "common/tile/warpgroup_sub_chunk.cuh"

namespace tutorial::gla {
namespace {

using namespace tile;

constexpr int kPipelineDepth = 4;               // chunks in shared memory
constexpr int kDepth = 2;                       // O in shared memory
constexpr int kBlock = 2 * kWarpgroup;          // threads
constexpr int kStoreThreads = kWarpgroup - 32;  // of them

/// What prepare() has left, and V.
struct Maps {
  TensorMap q, k, v, scores, decays;
};

template <class Shape>
using DecayPanels = FloatPanels<kSubChunks, Shape::kDk>;

/// The tiles of one chunk.
template <class Shape>
struct Tiles {
  PanelTile<Shape::kDk> Q, K;
  PanelTile<64> V, P;  ///< P: of key i in row i, 16 columns t
  DecayPanels<Shape> decays;

  static constexpr unsigned kLoadedBytes = 2 * (2 * Shape::kDk + 64 + 64) * kChunk + DecayPanels<Shape>::kLoadedBytes;
  static constexpr int kBytes = 2 * (2 * Shape::kDk + 64 + 64) * kChunk + DecayPanels<Shape>::kBytes;

  __device__ __forceinline__ explicit Tiles(__nv_bfloat16* memory)
      : Q{memory},
        K{Q.data + kChunk * Shape::kDk},
        V{K.data + kChunk * Shape::kDk},
        P{V.data + V.kPanelElements},
        decays{reinterpret_cast<float*>(P.data + P.kPanelElements)} {}

  /// The decays of sub-chunk r for the calling thread's rows of the state.
  __device__ __forceinline__ void load_decays(StateDecays<Shape::kDk>& two, int r) const {
    const int first = decays.place(r, int(lane_index()) % 4 * 2);
#pragma unroll
    for (int d = 0; d < Shape::kDk; d += 8) {
      two[d / 8] = *reinterpret_cast<const float2*>(decays.data + decays.advance(first, d));
    }
  }

  __device__ __forceinline__ void load(const Maps& maps, Barrier& barrier, int b, int h, int t, int column) const {
    barrier.arrive_expect(kLoadedBytes);
    load_panels(K, maps.k, barrier, {.position = t, .head = h, .batch = b});
    load_panels(V, maps.v, barrier, {.column = column, .position = t, .head = h, .batch = b});
    load_panels(decays, maps.decays, barrier, {.position = t / kSubChunk, .head = h, .batch = b});
    load_panels(Q, maps.q, barrier, {.position = t, .head = h, .batch = b});
    load_panels(P, maps.scores, barrier, {.position = t, .head = h, .batch = b});
  }
};

template <class Shape>
constexpr std::size_t kSharedBytes = kPipelineDepth* Tiles<Shape>::kBytes + kDepth* PanelTile<64>::kPanelBytes;

/// Grid (tiles of 64 columns of Dv of all segments, H, B).
template <class Shape>
__global__ void __launch_bounds__(kBlock, 1)
    warpgroup_kernel(Bf16Arguments a, const __grid_constant__ Maps maps, LaunchPlan plan) {
  const BlockPart<Shape> part(extents_of(a), plan.length);
  const int b = part.b, h = part.h, begin = part.begin, end = part.end;
  const int first_column = part.first_column, columns = part.columns;
  __shared__ Barrier full[kPipelineDepth], empty[kPipelineDepth], output_full[kDepth], output_empty[kDepth];
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int stage) {
    return Tiles<Shape>(reinterpret_cast<__nv_bfloat16*>(memory + stage * Tiles<Shape>::kBytes));
  };
  const auto output_of = [&](int stage) {
    return PanelTile<64>{reinterpret_cast<__nv_bfloat16*>(memory + kPipelineDepth * Tiles<Shape>::kBytes +
                                                          stage * int(PanelTile<64>::kPanelBytes))};
  };

  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(1);
    for (Barrier& barrier : empty) barrier.init(4);
    for (Barrier& barrier : output_full) barrier.init(4);
    for (Barrier& barrier : output_empty) barrier.init(3);
    fence_barrier_init();
  }
  __syncthreads();

  if (threadIdx.x == 0) {
    auto ring = Ring<kPipelineDepth>::producer();
    for (int t = begin; t < end; t += kChunk) {
      ring.wait(empty);
      tiles_of(ring.stage()).load(maps, full[ring.stage()], b, h, t, first_column);
      ring.advance();
    }
  } else if (threadIdx.x >= 32 && threadIdx.x < kWarpgroup) {
    auto output_ring = Ring<kDepth>::consumer();
    for (int t = begin; t < end; t += kChunk) {
      output_ring.wait(output_full);
      store_tile_by<kStoreThreads>(int(threadIdx.x) - 32, a.o.row(b, h, t) + first_column, a.o.stride_l, end - t,
                                   columns, output_of(output_ring.stage()), [&] {
                                     __syncwarp();
                                     if (lane_index() == 0) output_empty[output_ring.stage()].arrive();
                                   });
      output_ring.advance();
    }
  } else if (threadIdx.x >= kWarpgroup) {
    WarpgroupState<Shape::kDk> S;
    const ConstRows start = part.start(a.initial_state, plan, extents_of(a));
    load_group_state<Shape::kDk>(S, start.data, start.stride, a.Dk, columns);
    auto ring = Ring<kPipelineDepth>::consumer();
    auto output_ring = Ring<kDepth>::producer();
    for (int t = begin; t < end; t += kChunk) {
      const Tiles<Shape> tiles = tiles_of(ring.stage());
      const PanelTile<64> output = output_of(output_ring.stage());
      RoundedState<Shape::kDk> s[2];
      SubChunkOutput O;
      output_ring.wait(output_empty);
      ring.wait(full);
      StateDecays<Shape::kDk> decays;
      tiles.load_decays(decays, 0);
#pragma unroll
      for (int r = 0; r < kSubChunks; ++r) {
        const int row = r * kSubChunk;
        const auto v = k_from_row_to_row(tiles.V).along_k(row);
        round_state<Shape::kDk>(s[r % 2], S);
        decay_state<Shape::kDk>(S, decays);
        wgmma_fence(S, s[r % 2]);
        start_sub_chunk_update<Shape::kDk>(S, v, k_from_row_to_row(tiles.K).along_k(row));
        wgmma_commit();
        if (r > 0) {
          wgmma_wait<1>(O, s[(r + 1) % 2]);
          put_sub_chunk_output(output, O, row - kSubChunk, a.scale);
        }
        wgmma_fence(O);
        start_sub_chunk_output<Shape::kDk>(O, s[r % 2], k_along_rows(tiles.Q).along_mn(row), v,
                                           k_from_row_to_row(tiles.P).along_k(row));
        wgmma_commit();
        if (r + 1 < kSubChunks) tiles.load_decays(decays, r + 1);
        wgmma_wait<1>(S);
      }
      wgmma_wait<0>(O, s[1]);
      if (lane_index() == 0) empty[ring.stage()].arrive();
      ring.advance();
      put_sub_chunk_output(output, O, kChunk - kSubChunk, a.scale);
      __syncwarp();
      if (lane_index() == 0) output_full[output_ring.stage()].arrive();
      output_ring.advance();
    }
    if (end == a.L && a.final_state.data) {
      store_group_state<Shape::kDk>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk,
                                    columns);
    }
  }
}

Maps maps_of(const Bf16Arguments& a, const Prepared& x) {
  const TensorSizes rows{a.B, a.H, std::int64_t(kChunk) * x.N, a.Dk}, scores{a.B, a.H, rows.L, kSubChunk},
      decays{a.B, a.H, std::int64_t(kSubChunks) * x.N, a.Dk};
  const auto map = [](const auto* data, const TensorSizes& sizes) {
    return tile_map(packed(data, sizes.H, sizes.L, sizes.D), sizes, kChunk);
  };
  return {map(x.q, rows), map(x.k, rows), tile_map(a.v, tensor_sizes(a, a.Dv), kChunk), map(x.scores, scores),
          float_tile_map(packed<const float>(x.decays, a.H, decays.L, a.Dk), decays, kSubChunks)};
}

}  // namespace

void walk_on_warpgroups(const Bf16Arguments& a, const LaunchPlan& plan) {
  const Prepared prepared = prepare(a);
  const LaunchPlan started = with_starts(a, prepared, plan);
  const auto start = [&]<class Shape>(Shape) {
    launch(warpgroup_kernel<Shape>, {grid_of<Shape>(extents_of(a), plan.segments), kBlock, kSharedBytes<Shape>}, a,
           maps_of(a, prepared), started);
  };
  a.Dk <= 64 ? start(PanelShape<64, 64>()) : start(PanelShape<128, 64>());
}

void warpgroup_walk(const Bf16Arguments& a) {
  walk_on_warpgroups(a, make_launch_plan(a.L, 64, 1));
}

std::string warpgroup_walk_unsupported(const Bf16Arguments& a) {
  if (const std::string reason = subchunk_walk_unsupported(a); !reason.empty()) return reason;
  if (a.Dk > 128) return "Dk > 128: the state and its copies would not fit into a warpgroup's registers";
  if (compute_capability() < 90) return "needs a GPU of compute capability 9.0, for bulk copies";
  return why_not_mapped(a.v, tensor_sizes(a, a.Dv), kChunk);
}

}  // namespace tutorial::gla
