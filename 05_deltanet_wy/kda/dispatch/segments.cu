/// @file
/// `segments`: the walk of `two_products` over segments at once. Some need no past; the past of the others is computed.
///
/// Idea: where few heads leave multiprocessors idle, a sequence is cut into segments, and each is walked by blocks of
/// its own. The gates of KDA often are such that little is left of a state after one to three chunks, so a segment's walk
/// starts that much earlier from zeros (chunk/zero_starts.cuh). The kernel of `one_anchor` says how much each chunk
/// leaves of a state, and all blocks find out from that what they have to do.
///
/// Where some channel forgets too little for that, a segment needs the state that the one before leaves. A chunk turns S
/// into E S + J^T (V - K+ S), where E = diag(exp(b_end)). So a segment turns S into G S + Psi S + H, where G is the product
/// of its E, one number for each row of the state, and H is what it makes of zeros. Take no values and S = G + Psi, with the
/// G of the chunks before. Then
///
///     E (G + Psi) - J^T K+ (G + Psi)  =  E G  +  [E Psi + J^T (-K+ G - K+ Psi)]
///
/// The bracket is the walk of Psi, from zeros, with the values -K+ G: column d of -K+ times G_d. Only Psi is rounded.
///
///     segment       0                1                   2                 3
///     kernel 2   S_0, V -> H_0    V -> H_1            V -> H_2                       at once: reads K+, V, J, decays
///                                 -K+ G -> Psi_1, G_1 -K+ G -> Psi_2, G_2
///     kernel 3                H_0 ------> + Psi_1 H_0 + H_1 ----> + Psi_2 . + H_2    a chain of products
///                               times G_1                times G_2
///     kernel 4    walk           walk                walk              walk -> S_L   at once
///
/// A segment that starts from zeros cuts that chain. What leads to it is not computed, and its own H starts where its walk
/// does. If all segments start so, kernels 2 and 3 have nothing to do.
///
/// Improves on: `one_anchor` has one block for 64 columns of a head, so a long sequence with few heads takes as long as
/// one block takes for it.
/// Unchanged: both kernels of `one_anchor`, but for the bounds, and for the chunks without outputs before a segment;
/// kernel 3 (chunk/segment_maps.cuh).
///
/// Equation: that of `two_products`. A state of which at most 2^-24 would be left is taken for 0.
/// Shapes: those of `one_anchor`, and bounds [B, H, N, 4], and G of segments in fp32.
/// Thread mapping: that of `two_products`, for each segment; kernel 2 as that of delta_rule's `segments`. There a row of
/// K^+ G has its G in a register: its columns are the rows of the transposed products, two per thread.
/// Synchronization: as there. Kernels 2 to 4 start early, and wait for the one before.
/// Resources: those of `one_anchor`; kernel 2 has four chunks of K+, J, decays and the columns, 194 KB at Dk = 128.
/// Work, bytes: those of `one_anchor`, and of the walk over the chunks before segments, or of kernels 2 and 3, which
/// depend on the gates. Kernel 2 reads V, and K+, J and decays once per 128 columns of [V | -K+].
/// Bound by: the memory's bandwidth while it prepares, then the chains of kernels 2 to 4.
/// Requires: what `one_anchor` requires.
/// Weakness: where gates are weak, twice the operations. The rows go through memory.
/// Sources: those of `one_anchor`, of chunk/zero_starts.cuh and of delta_rule's `segments`.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "05_deltanet_wy/chunk/decay_columns.cuh"
#include "05_deltanet_wy/chunk/segment_maps.cuh"
#include "05_deltanet_wy/chunk/warpgroup_products.cuh"
#include "05_deltanet_wy/chunk/zero_starts.cuh"
#include "05_deltanet_wy/kda/chunk_decays.cuh"
#include "05_deltanet_wy/kda/dispatch/segments.hpp"
#include "05_deltanet_wy/kda/update_tiles.cuh"
#include "common/ceil_div.hpp"
#include "common/device/cp_async.cuh"
#include "common/device/device.hpp"
#include "common/device/early_start.cuh"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/walked_heads.cuh"
#include "common/device/workspace.hpp"
#include "common/parts.hpp"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/store_tile.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::kda {
namespace {

using namespace tile;
using namespace delta_rule;  // products of a chunk, and segments

constexpr int kPipelineDepth = 3;               // chunks in shared memory
constexpr int kBlockThreads = 2 * kWarpgroup;   // of a block
constexpr int kStoreThreads = kWarpgroup - 32;  // of them

constexpr int kMostSegments = 1024;  // of a head

template <class Shape>
constexpr std::size_t kSharedBytes =
    kPipelineDepth*(UpdateTiles<Shape>::kBytes + Shape::kDk * sizeof(float)) + ValuePanel::kPanelBytes;

/// How many chunks before a segment its walk may start from zeros; 0: it starts with the segment, from S_0 if that is the
/// first one, or it needs the state that the segment before leaves.
/// @param begin its first chunk
__device__ __forceinline__ int warm_up_of(const PreparedUpdates& x, int head, int begin) {
  const auto* bounds = reinterpret_cast<const float4*>(x.bounds) + std::int64_t(head) * x.N;
  return delta_rule::warm_up_of(begin, [&](int n) {
    const float4 parts = load_for_update(bounds + n);
    return parts.x + parts.y + parts.z + parts.w;
  });
}

/// What a segment leaves of a state beside Psi: a decay of each row, G.
/// @tparam kDk as in SegmentMaps
template <int kDk>
class DecaysOfSegment {
 public:
  /// @param G [B, H, count, kDk]
  /// @param length chunks of a segment
  DecaysOfSegment(float* G, int count, const PreparedUpdates& updates, int length)
      : G_(G), count_(count), length_(length), updates_(updates) {}

  /// G of a segment of this head.
  __device__ __forceinline__ float* of(int head, int segment) const {
    return G_ + (std::int64_t(head) * count_ + segment) * kDk;
  }

  __device__ __forceinline__ bool begin(int head) {
    G_ = of(head, 0);
    unsigned any = 0;
    for (int i = 0; i * 32 <= count_; ++i) {
      const int segment = i * 32 + int(lane_index());
      const bool is_needy = segment <= count_ && segment > 0 && warm_up_of(updates_, head, segment * length_) == 0;
      const unsigned word = __ballot_sync(kAllLanes, is_needy);
      if (lane_index() == 0) needy()[i] = word;
      any |= word;
    }
    __syncwarp();
    return any != 0;
  }
  __device__ __forceinline__ bool needs_past(int segment) const { return needy()[segment / 32] >> segment % 32 & 1; }
  /// G comes to shared memory, for each warp by itself: there are no registers for it.
  __device__ __forceinline__ void load(int segment) {
    segment_ = segment;
    const int row = int(lane_index()) * 4;
    if (row < kDk && needs_past(segment)) cp_async<16>(row_of_warp() + row, G_ + segment * kDk + row);
    cp_async_commit();
  }
  __device__ __forceinline__ void add(tile::WarpgroupState<kDk>& S, const tile::WarpgroupState<kDk>& H) const {
    cp_async_wait<0>();
    __syncwarp();
    decay_columns(S, row_of_warp());
#pragma unroll
    for (int i = 0; i < kDk / 2; ++i) S[i] += H[i];
  }

 private:
  /// One bit for each segment of the head: whether it needs its past.
  static __device__ __forceinline__ unsigned* needy() {
    __shared__ unsigned of_warps[kCarryThreads / 32][kMostSegments / 32];
    return of_warps[threadIdx.x / 32];
  }

  /// G of the segment, and in turn that of the next one: no lane reads the one before any more when it is replaced.
  __device__ __forceinline__ float* row_of_warp() const {
    alignas(16) __shared__ float rows[2][kCarryThreads / 32][kDk];
    return rows[segment_ % 2][threadIdx.x / 32];
  }

  float* G_;
  int count_, length_, segment_ = 0;
  PreparedUpdates updates_;
};

/// A chunk in shared memory for kernel 2: K+, 128 columns of V or K+, and -J.
template <int kDk>
struct UpdateMapTiles : StateTiles<PanelShape<kDk, 128>> {
  using Base = StateTiles<PanelShape<kDk, 128>>;  ///< K+ and the columns
  PanelTile<kDk> J;

  static constexpr int kBytes = Base::kBytes + int(sizeof(__nv_bfloat16)) * kChunk * kDk;
  static constexpr int kDepth = MapTiles<kDk>::kDepth;
  static_assert(kBytes <= MapTiles<kDk>::kBytes, "SegmentMaps::config()");

  /// @param memory kBytes in shared memory, aligned to 1024 bytes
  __device__ __forceinline__ explicit UpdateMapTiles(unsigned char* memory)
      : Base(memory), J{reinterpret_cast<__nv_bfloat16*>(memory + Base::kBytes)} {}

  /// The columns of warpgroup 0 or 1.
  __device__ __forceinline__ ValuePanel columns(int group) const {
    return {this->V.data + group * this->V.kPanelElements};
  }
};

/// Kernel 2: what segments leave that are followed by one that needs it. Grid (tiles of 128 columns of [V | -K+] of all
/// segments but the last, H, B).
/// @param of_states what SegmentMaps knows of the problem
template <class Shape>
__global__ void __launch_bounds__(kMapThreads, 1)
    segment_maps_kernel(delta_rule::Bf16Arguments of_states, const __grid_constant__ UpdateTileMaps maps,
                        PreparedUpdates updates, LaunchPlan plan, SegmentMaps<Shape::kDk> out,
                        DecaysOfSegment<Shape::kDk> of_segment) {
  constexpr int kDk = Shape::kDk, kDepth = UpdateMapTiles<kDk>::kDepth;
  const int b = int(blockIdx.z), h = int(blockIdx.y), head = b * of_states.H + h, length = plan.length / kChunk;
  const int key_tile = (out.tiles + 1) / 2, segment = int(blockIdx.x) / (key_tile + 1);
  const int tile = int(blockIdx.x) % (key_tile + 1), group = int(threadIdx.x) / kWarpgroup;
  const bool is_key = tile == key_tile;
  let_next_kernel_start();
  if (has_been_walked(updates.heads, head)) return;
  const int warm_up_of_next = warm_up_of(updates, head, (segment + 1) * length);
  const int warm_up = warm_up_of(updates, head, segment * length);
  const bool is_known = segment == 0 || warm_up > 0;  // what it starts from
  if (warm_up_of_next > 0 || (is_key && is_known)) return;
  const int first = segment * length - warm_up, chunks = length + warm_up;
  __shared__ Barrier full[kDepth], empty[kDepth];
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int stage) { return UpdateMapTiles<kDk>(memory + stage * UpdateMapTiles<kDk>::kBytes); };
  const auto decays_of = [&](int stage) {
    return reinterpret_cast<float*>(memory + kDepth * UpdateMapTiles<kDk>::kBytes) + stage * kDk;
  };
  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(2);  // one for the bytes, one for the decays
    for (Barrier& barrier : empty) barrier.init(2 * 4);
    fence_barrier_init();
  }
  __syncthreads();

  if (group == 2) {
    const bool is_first = threadIdx.x == 2 * kWarpgroup;
    ChunkDecays<kDk> decays(updates.decays + (std::int64_t(head) * updates.N + first) * of_states.Dk, chunks,
                            of_states.Dk);
    auto ring = Ring<kDepth>::producer();
    for (int n = first; n < first + chunks; ++n) {
      const UpdateMapTiles<kDk> tiles = tiles_of(ring.stage());
      Barrier& barrier = full[ring.stage()];
      ring.wait(empty);
      if (is_first) {
        const TileOrigin origin{.position = n * kChunk, .head = h, .batch = b};
        fence_async_proxy();  // V has been read by ldmatrix
        barrier.arrive_expect(UpdateMapTiles<kDk>::kBytes);
        load_panels(tiles.K, maps.K, barrier, origin);
        load_panels(tiles.V, is_key ? maps.K : maps.v, barrier,
                    {.column = is_key ? 0 : tile * 128, .position = n * kChunk, .head = h, .batch = b});
        load_panels(tiles.J, maps.J, barrier, origin);
      }
      decays.store(decays_of(ring.stage()));
      __syncwarp();
      if (is_first) barrier.arrive();
      ring.advance();
    }
    return;
  }
  const Columns columns{b, h, segment, is_key ? group : 2 * tile + group};
  WarpgroupState<Shape::kDk> S = {};
  if (segment == 0) out.load_initial(S, of_states, columns);
  RoundedState<Shape::kDk> s;
  WarpgroupColumns residual;
  WarpgroupFragments factor;
  const int unit = first_unit_of_columns();
  // G of the chunks before, of the thread's two rows of the state. With Dk <= 64 those of group 1 do not exist.
  const int rows[2] = {group * kWarpgroupColumns + wgmma_row(0), group * kWarpgroupColumns + wgmma_row(2)};
  float G[2] = {1, 1};
  auto ring = Ring<kDepth>::consumer();
  for (int n = 0; n < chunks; ++n) {
    const UpdateMapTiles<kDk> tiles = tiles_of(ring.stage());
    const float* decays = decays_of(ring.stage());
    round_state<kDk>(s, S);
    ring.wait(full);
    load_signed_values(residual, tiles.columns(group), unit, is_key ? kPlus : kMinus);
#pragma unroll
    for (int i = 0; i < kChunk / 2; ++i) residual[i] *= G[i / 2 % 2];
    wgmma_fence(residual, s);
    start_residual<kDk>(residual, s, tiles.K);
    wgmma_commit();
    decay_columns(S, decays);
    if (is_key && rows[0] < kDk) G[0] *= decays[rows[0]], G[1] *= decays[rows[1]];
    wgmma_wait<0>(residual);
    round_columns(factor, residual);
    wgmma_fence(S, factor);
    start_state_update<kDk>(S, factor, tiles.J);
    wgmma_commit();
    wgmma_wait<0>(S);
    __syncwarp();  // all lanes have read their part of V and the decays
    if (lane_index() == 0) empty[ring.stage()].arrive();
    ring.advance();
  }
  is_key ? out.store_transition(of_states, columns, S) : out.store_state(of_states, columns, S);
  if (is_key && rows[0] < kDk && lane_index() % 4 == 0) {
    for (int i = 0; i < 2; ++i) store_global(of_segment.of(head, segment) + rows[i], G[i]);
  }
}

/// Kernel 4. Grid (tiles of 64 columns of Dv of all segments, H, B).
template <class Shape>
__global__ void __launch_bounds__(kBlockThreads, 1)
    segments_kernel(Bf16Arguments a, const __grid_constant__ UpdateTileMaps maps, PreparedUpdates updates,
                    LaunchPlan plan, delta_rule::Bf16Arguments of_states, SegmentMaps<Shape::kDk> starts) {
  const BlockPart<Shape> part(extents_of(a), plan.length, int(blockIdx.x));
  const int b = part.b, h = part.h, first_column = part.first_column, columns = part.columns;
  __shared__ Barrier full[kPipelineDepth], empty[kPipelineDepth], output_full, output_empty;
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int stage) { return UpdateTiles<Shape>(memory + stage * UpdateTiles<Shape>::kBytes); };
  const ValuePanel output{reinterpret_cast<__nv_bfloat16*>(memory + kPipelineDepth * UpdateTiles<Shape>::kBytes)};
  const auto decays_of = [&](int stage) {
    return reinterpret_cast<float*>(output.data + ValuePanel::kPanelElements) + stage * Shape::kDk;
  };

  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(2);  // one for the bytes, one for the decays
    for (Barrier& barrier : empty) barrier.init(4);
    output_full.init(4);
    output_empty.init(3);
    fence_barrier_init();
  }
  if (has_been_walked(updates.heads, part.head)) return;
  const int warm_up = warm_up_of(updates, part.head, part.begin / kChunk);
  const int begin = part.begin, end = part.end, first = begin - warm_up * kChunk;
  __syncthreads();

  const int group = int(threadIdx.x) / kWarpgroup;
  if (group == 0) {
    const int thread = int(threadIdx.x) % kWarpgroup;
    if (thread < 32) {
      auto ring = Ring<kPipelineDepth>::producer();
      ChunkDecays<Shape::kDk> decays(updates.decays + (std::int64_t(part.head) * updates.N + first / kChunk) * a.Dk,
                                     (end - first + kChunk - 1) / kChunk, a.Dk);
      for (int t = first; t < end; t += kChunk) {
        ring.wait(empty);
        if (thread == 0) {
          fence_async_proxy();  // V has been read by ldmatrix
          tiles_of(ring.stage()).load(maps, full[ring.stage()], b, h, t, first_column);
        }
        decays.store(decays_of(ring.stage()));
        __syncwarp();
        if (thread == 0) full[ring.stage()].arrive();
        ring.advance();
      }
    } else {
      auto ring = Ring<1>::consumer();
      const auto pass_on = [&] {
        __syncwarp();
        if (lane_index() == 0) output_empty.arrive();
      };
      for (int t = first; t < end; t += kChunk) {
        ring.wait(&output_full);
        if (t < begin) {
          pass_on();
        } else {
          store_tile_by<kStoreThreads>(thread - 32, a.o.row(b, h, t) + first_column, a.o.stride_l, a.L - t, columns,
                                       output, pass_on);
        }
        ring.advance();
      }
    }
  } else {
    WarpgroupState<Shape::kDk> S = {};
    const Columns own{b, h, part.segment, first_column / Shape::kDv};
    if (warm_up == 0) {
      part.segment == 0 ? starts.load_initial(S, of_states, own) : starts.load_start(S, of_states, own);
    }
    auto ring = Ring<kPipelineDepth>::consumer();
    auto next_ring = Ring<kPipelineDepth>::consumer();  // one chunk ahead of `ring`
    auto output_ring = Ring<1>::producer();

    RoundedState<Shape::kDk> s;
    WarpgroupColumns residual, O;
    WarpgroupFragments factor;
    const int unit = first_unit_of_columns();
    // residual = -V of the next chunk.
    const auto load_values = [&] {
      next_ring.wait(full);
      load_signed_values(residual, tiles_of(next_ring.stage()).V, unit, kMinus);
    };
    // residual += K+ S of that chunk, and S decays as that chunk says.
    const auto add_state_product = [&] {
      round_state<Shape::kDk>(s, S);
      wgmma_fence(residual, s);
      start_residual<Shape::kDk>(residual, s, tiles_of(next_ring.stage()).K);
      wgmma_commit();
      decay_columns(S, decays_of(next_ring.stage()));
    };
    // O = Q+ S of that chunk.
    const auto start_output = [&] {
      wgmma_fence(O, s);
      start_output_from_state<Shape::kDk>(O, s, tiles_of(next_ring.stage()).Q);
      wgmma_commit();
      wgmma_wait<1>(residual);
      next_ring.advance();
    };
    // Starts from the residual of a chunk: updates S, computes its outputs and the residual of the next chunk.
    const auto walk = [&]<class HasNext>(HasNext) {
      const auto tiles = tiles_of(ring.stage());
      round_columns(factor, residual);
      wgmma_fence(S, factor);
      start_state_update<Shape::kDk>(S, factor, tiles.J);
      wgmma_commit();
      start_output_from_values(O, factor, tiles.R);
      wgmma_commit();
      if constexpr (HasNext::value) {
        load_values();
        wgmma_wait<1>(S);
        add_state_product();
        wgmma_wait<1>(O);
      } else {
        wgmma_wait<0>(S, O);
      }
      __syncwarp();  // all lanes have read V and the decays
      if (lane_index() == 0) empty[ring.stage()].arrive();
      ring.advance();
      output_ring.wait(&output_empty);
      put_output(output, O, a.scale);
      __syncwarp();
      if (lane_index() == 0) output_full.arrive();
      output_ring.advance();
      if constexpr (HasNext::value) start_output();
    };

    load_values();
    add_state_product();
    start_output();
    for (int t = first; t + kChunk < end; t += kChunk) walk(std::true_type());
    walk(std::false_type());
    if (end == a.L && a.final_state.data) {
      store_group_state<Shape::kDk>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk,
                                    columns);
    }
  }
}

}  // namespace

void segments(const Bf16Arguments& a, const LaunchPlan& plan, const WalkedHeads& heads) {
  const PreparedUpdates updates =
      prepare_with_one_anchor(a, plan.segments > 1 ? plan.length / kChunk : 0, heads);  // one segment needs no bounds
  end_part("prepare");
  const delta_rule::Bf16Arguments of_states = without_gates(a);
  const UpdateTileMaps maps = update_maps(updates, a);
  const auto start = [&]<class Shape>(Shape) {
    SegmentMaps<Shape::kDk> segment_maps(of_states, plan.segments - 1);
    segment_maps.heads = heads;
    if (segment_maps.count > 0) {
      const DecaysOfSegment<Shape::kDk> of_segment(
          workspace<float>("kda: decays of segments",
                           std::size_t(std::int64_t(a.B) * a.H * segment_maps.count * Shape::kDk)),
          segment_maps.count, updates, plan.length / kChunk);
      LaunchConfig config = segment_maps.template config<Shape>(of_states);
      config.shared_bytes += MapTiles<Shape::kDk>::kDepth * Shape::kDk * sizeof(float);
      config.starts_early = true;
      launch(segment_maps_kernel<Shape>, config, of_states, maps, updates, plan, segment_maps, of_segment);
      carry_segments<Shape>(of_states, segment_maps, true, of_segment);
      end_part("segments");
    }
    LaunchConfig config(grid_of<Shape>(extents_of(a), plan.segments), kBlockThreads, kSharedBytes<Shape>);
    config.starts_early = true;
    launch(segments_kernel<Shape>, config, a, maps, updates, plan, of_states, segment_maps);
  };
  a.Dk <= 64 ? start(PanelShape<64, 64>()) : start(PanelShape<128, 64>());
  end_part("walk");
}

void segments(const Bf16Arguments& a) {
  segments(a, shortest_segments(a));
}

std::int64_t chunks_in_line(const Bf16Arguments& a, const LaunchPlan& plan) {
  constexpr std::int64_t kWarmUp = 2, kSearch = 1;  // what it takes to find the start, in chunks
  const std::int64_t blocks = std::int64_t(a.B) * a.H * ceil_div(a.Dv, kWarpgroupColumns) * plan.segments;
  return ceil_div(blocks, multiprocessor_count()) *
         (plan.length / kChunk + (plan.segments > 1 ? kWarmUp + kSearch : 0));
}

LaunchPlan shortest_segments(const Bf16Arguments& a) {
  LaunchPlan best = make_launch_plan(a.L, kWarpgroupColumns, 1);
  const std::int64_t most = std::min({ceil_div(a.L, kChunk), 2 * multiprocessor_count(), kMostSegments});
  for (int segments = 2; segments <= most; ++segments) {
    const LaunchPlan plan = make_launch_plan(a.L, kWarpgroupColumns, segments);
    if (chunks_in_line(a, plan) < chunks_in_line(a, best)) best = plan;
  }
  return best;
}

}  // namespace tutorial::kda
