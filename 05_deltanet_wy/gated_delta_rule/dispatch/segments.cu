/// @file
/// `segments`: delta_rule's stage of this name, with the decay of a segment.
///
/// Idea: with gates a chunk turns S into exp(b_e) S + K^T D_e T (V - D K S). So a segment turns S into G S + Psi S + H,
/// where G is the product of its gates. H is what it makes of zeros. Take no values and S = G + Psi, with the G of the
/// chunks before: then
///
///     exp(b_e) (G + Psi) + K^T D_e T (-D K (G + Psi))  =  exp(b_e) G  +  [exp(b_e) Psi + K^T D_e T (-D G K - D K Psi)]
///
/// The bracket is the walk of Psi, from zeros, with the values -D G K. As without gates, only Psi is rounded: G S is
/// computed in fp32.
///
///     segment       0                1                   2                 3
///     kernel 1   S_0, V -> H_0    V -> H_1            V -> H_2                       at once: reads K, V, T, decays
///                                 -K -> Psi_1         -K -> Psi_2
///     kernel 2                H_0 ------> + Psi_1 H_0 + H_1 ----> + Psi_2 . + H_2    a chain of products
///                               times G_1                times G_2
///                   |              |                   |                 |
///     kernel 3    walk           walk                walk              walk -> S_L   at once
///
/// Improves on: where heads are few, clusters leave multiprocessors idle; keys may be normalised here.
/// Unchanged: the three kernels and their blocks; in a chunk, the factors of `three_blocks`.
/// Equation:
///
///   own_m = H_m, where H_0 starts from S_0     start of m + 1 = G_m (start of m) + Psi_m (start of m) + H_m
///
/// Shapes: those of delta_rule's `segments`, and G_m in fp32.
/// Thread mapping: as there. In kernel 1 all lanes of the loading warp fetch decays, one chunk ahead of the bulk
/// copies.
/// Resources: kernel 1 has four chunks of K, T, decays and the columns, 195 KB at Dk = 128; kernel 3 as
/// that of delta_rule.
/// Work: that of delta_rule's `segments`, and 6 Dv + Dk Dv / 32 multiplications per position twice.
/// Bytes: the walk reads q, k, v and 396 bytes of T, P and decays per position once per tile of 64 columns; kernel 1
/// reads V, and K, T and decays once per 128 columns of [V | -K].
/// Bound by: with few heads prepare_tiles() and the chains of the three kernels.
/// Requires: compute capability 9.0, Dk <= 128, Dk and Dv multiples of 16, tensors that a tensor map can describe.
/// Weakness: as there, twice the operations. Where gates are strong, G and Psi vanish, and H alone would do
/// (zero_starts.cu).
/// Sources: those of delta_rule's `segments`.

#include <cuda_runtime.h>

#include <type_traits>

#include "05_deltanet_wy/chunk/decay_columns.cuh"
#include "05_deltanet_wy/chunk/segment_maps.cuh"
#include "05_deltanet_wy/chunk/warpgroup_products.cuh"
#include "05_deltanet_wy/delta_rule/segments.hpp"
#include "05_deltanet_wy/gated_delta_rule/dispatch/chunk_decays.cuh"
#include "05_deltanet_wy/gated_delta_rule/dispatch/segments.hpp"
#include "05_deltanet_wy/gated_delta_rule/prepare_gated.hpp"
#include "05_deltanet_wy/gated_delta_rule/prepare_gated_tiles.hpp"
#include "common/device/early_start.cuh"
#include "common/device/launch.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/walked_heads.cuh"
#include "common/device/workspace.hpp"
#include "common/parts.hpp"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/store_tile.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::gated_delta_rule {
namespace {

using namespace tile;
using namespace delta_rule;  // products of a chunk, and segments

constexpr int kPipelineDepth = 3;               // chunks in shared memory
constexpr int kDepth = 2;                       // O in shared memory
constexpr int kBlockThreads = 2 * kWarpgroup;   // of a block
constexpr int kStoreThreads = kWarpgroup - 32;  // of them

/// A chunk in shared memory.
template <class Shape>
struct Tiles : ChunkTiles<Shape> {
  SquarePanel T_high, T_low, P;

  static constexpr int kBytes = ChunkTiles<Shape>::kBytes + 3 * int(SquarePanel::kPanelBytes);

  __device__ __forceinline__ explicit Tiles(unsigned char* memory)
      : ChunkTiles<Shape>(memory),
        T_high{reinterpret_cast<__nv_bfloat16*>(memory + ChunkTiles<Shape>::kBytes)},
        T_low{T_high.data + SquarePanel::kPanelElements},
        P{T_low.data + SquarePanel::kPanelElements} {}
};

template <class Shape>
constexpr std::size_t kSharedBytes =
    kPipelineDepth*(Tiles<Shape>::kBytes + kDecays * sizeof(float)) + kDepth* ValuePanel::kPanelBytes;

/// A segment's decay, that of all rows of a state.
class DecayOfSegment {
 public:
  /// @param decays [B, H, count]
  DecayOfSegment(float* decays, int count) : decays_(decays), count_(count) {}

  __device__ __forceinline__ bool begin(int head) {
    decays_ += std::int64_t(head) * count_;
    return true;
  }
  __device__ __forceinline__ void store(int segment, float decay) const { store_global(decays_ + segment, decay); }
  __device__ __forceinline__ void load(int segment) { decay_ = load_for_update(decays_ + segment); }
  static constexpr __device__ bool needs_past(int) { return true; }
  template <int kSums>
  __device__ __forceinline__ void add(float (&S)[kSums], const float (&H)[kSums]) const {
#pragma unroll
    for (int i = 0; i < kSums; ++i) S[i] = decay_ * S[i] + H[i];
  }

 private:
  float* decays_;
  int count_;
  float decay_ = 1;
};

/// sums += factor * values
__device__ __forceinline__ void add_values(WarpgroupColumns& sums, const WarpgroupColumns& values, float factor) {
#pragma unroll
  for (int i = 0; i < kChunk / 2; ++i) sums[i] += factor * values[i];
}

/// Kernel 1: walks all segments but the last from a state of zeros, with the values V or -K. The first segment starts
/// from S_0, and its Psi and G are not needed. Grid (tiles of 128 columns of [V | -K] of these segments, H, B).
/// @param inverses those of prepare_tiles(), without P
template <class Shape>
__global__ void __launch_bounds__(kMapThreads, 1)
    segment_maps_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps,
                        const __grid_constant__ TensorMap inverses, const float* all_decays, LaunchPlan plan,
                        SegmentMaps<Shape::kDk> out, DecayOfSegment of_segment) {
  constexpr int kDk = Shape::kDk, kDepth = MapTiles<kDk>::kDepth;
  const int b = int(blockIdx.z), h = int(blockIdx.y), chunks = plan.length / kChunk;
  const int key_tile = (out.tiles + 1) / 2, segment = int(blockIdx.x) / (key_tile + 1);
  const int tile = int(blockIdx.x) % (key_tile + 1), group = int(threadIdx.x) / kWarpgroup;
  const bool is_key = tile == key_tile;
  let_next_kernel_start();
  if (has_been_walked(a.heads, b * a.H + h) || (is_key && segment == 0)) return;
  __shared__ Barrier full[kDepth], empty[kDepth];
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int stage) { return MapTiles<kDk>(memory + stage * MapTiles<kDk>::kBytes); };
  const auto decays_of = [&](int stage) {
    return reinterpret_cast<float*>(memory + kDepth * MapTiles<kDk>::kBytes) + stage * kDecays;
  };
  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(2);  // one for the bytes, one for the decays
    for (Barrier& barrier : empty) barrier.init(2 * 4);
    fence_barrier_init();
  }
  __syncthreads();

  if (group == 2) {
    const bool is_first = threadIdx.x == 2 * kWarpgroup;
    const int N = (a.L - 1) / kChunk + 1;
    ChunkDecays decays(all_decays + (std::int64_t(b) * a.H + h) * N * kDecays, segment * chunks,
                       (segment + 1) * chunks);
    auto ring = Ring<kDepth>::producer();
    for (int n = segment * chunks; n < (segment + 1) * chunks; ++n) {
      const MapTiles<kDk> tiles = tiles_of(ring.stage());
      Barrier& barrier = full[ring.stage()];
      ring.wait(empty);
      if (is_first) {
        fence_async_proxy();  // V has been read by ldmatrix
        barrier.arrive_expect(MapTiles<kDk>::kBytes);
        load_panels(tiles.K, maps.k, barrier, {.position = n * kChunk, .head = h, .batch = b});
        load_panels(tiles.V, is_key ? maps.k : maps.v, barrier,
                    {.column = is_key ? 0 : tile * 128, .position = n * kChunk, .head = h, .batch = b});
        load_tile(inverses, tiles.T_high.data, barrier, {.position = n * kPreparedRows, .head = h, .batch = b});
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
  if (segment == 0) out.load_initial(S, a, columns);
  RoundedState<Shape::kDk> s;
  WarpgroupColumns residual, values, v_new;
  WarpgroupFragments factor;
  const int unit = first_unit_of_columns();
  float decay = 1;  // of the chunks before
  auto ring = Ring<kDepth>::consumer();
  for (int n = 0; n < chunks; ++n) {
    const MapTiles<kDk> tiles = tiles_of(ring.stage());
    const float* decays = decays_of(ring.stage());
    round_state<kDk>(s, S);
    ring.wait(full);
    wgmma_fence(residual, s);
    start_output_from_state<kDk>(residual, s, tiles.K);  // K in place of Q
    wgmma_commit();
    load_signed_values(values, tiles.columns(group), unit, is_key ? kPlus : kMinus);
    wgmma_wait<0>(residual);
    // D (K Psi + G K), or D K S - V
    add_values(residual, values, is_key ? decay : 0.0f);
    decay_columns(residual, decays + kOfKeys * kChunk);
    add_values(residual, values, is_key ? 0.0f : 1.0f);
    round_columns(factor, residual);
    wgmma_fence(v_new, factor);
    start_new_values(v_new, factor, tiles.T_high, tiles.T_low);
    wgmma_commit();
    const float whole = decays[kOfQueries * kChunk + kChunk - 1];
    decay *= whole;
#pragma unroll
    for (float& element : S) element *= whole;
    wgmma_wait<0>(v_new);
    decay_columns(v_new, decays + kToEnd * kChunk);
    round_columns(factor, v_new);
    wgmma_fence(S, factor);
    start_state_update<kDk>(S, factor, tiles.K);
    wgmma_commit();
    wgmma_wait<0>(S);
    __syncwarp();  // all lanes have read their part of V and the decays
    if (lane_index() == 0) empty[ring.stage()].arrive();
    ring.advance();
  }
  is_key ? out.store_transition(a, columns, S) : out.store_state(a, columns, S);
  if (is_key && threadIdx.x == 0) {
    of_segment.begin(b * a.H + h);
    of_segment.store(segment, decay);
  }
}

/// Kernel 3. Grid (tiles of 64 columns of Dv of all segments, H, B).
template <class Shape>
__global__ void __launch_bounds__(kBlockThreads, 1)
    segment_walk_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps,
                        const __grid_constant__ TensorMap prepared, const float* all_decays, LaunchPlan plan,
                        SegmentMaps<Shape::kDk> starts) {
  const BlockPart<Shape> part(extents_of(a), plan.length);
  if (has_been_walked(a.heads, part.head)) return;
  const int b = part.b, h = part.h, first_column = part.first_column, columns = part.columns;
  __shared__ Barrier full[kPipelineDepth], empty[kPipelineDepth], output_full[kDepth], output_empty[kDepth];
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int stage) { return Tiles<Shape>(memory + stage * Tiles<Shape>::kBytes); };
  const auto output = [&](int number) {
    return ValuePanel{reinterpret_cast<__nv_bfloat16*>(memory + kPipelineDepth * Tiles<Shape>::kBytes +
                                                       number * int(ValuePanel::kPanelBytes))};
  };
  const auto decays_of = [&](int stage) { return reinterpret_cast<float*>(output(kDepth).data) + stage * kDecays; };

  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(2);
    for (Barrier& barrier : empty) barrier.init(4);
    for (Barrier& barrier : output_full) barrier.init(4);
    for (Barrier& barrier : output_empty) barrier.init(3);
    fence_barrier_init();
  }
  __syncthreads();

  const int group = int(threadIdx.x) / kWarpgroup;
  if (group == 0) {
    const int thread = int(threadIdx.x) % kWarpgroup;
    if (thread < 32) {
      const int N = (a.L - 1) / kChunk + 1;
      ChunkDecays decays(all_decays + std::int64_t(part.head) * N * kDecays, part.begin / kChunk,
                         (part.end - 1) / kChunk + 1);
      auto ring = Ring<kPipelineDepth>::producer();
      for (int t = part.begin; t < part.end; t += kChunk) {
        const Tiles<Shape> tiles = tiles_of(ring.stage());
        ring.wait(empty);
        if (thread == 0) {
          fence_async_proxy();  // V has been read by ldmatrix
          full[ring.stage()].arrive_expect(Tiles<Shape>::kBytes);
          load_chunk(tiles, maps, full[ring.stage()], b, h, t, first_column);
          load_tile(prepared, tiles.T_high.data, full[ring.stage()],
                    {.position = t / kChunk * kPreparedRows, .head = h, .batch = b});
        }
        decays.store(decays_of(ring.stage()));
        __syncwarp();
        if (thread == 0) full[ring.stage()].arrive();
        ring.advance();
      }
    } else {
      auto output_ring = Ring<kDepth>::consumer();
      for (int t = part.begin; t < part.end; t += kChunk) {
        output_ring.wait(output_full);
        store_tile_by<kStoreThreads>(thread - 32, a.o.row(b, h, t) + first_column, a.o.stride_l, a.L - t, columns,
                                     output(output_ring.stage()), [&] {
                                       __syncwarp();
                                       if (lane_index() == 0) output_empty[output_ring.stage()].arrive();
                                     });
        output_ring.advance();
      }
    }
  } else {
    WarpgroupState<Shape::kDk> S;
    const Columns own{b, h, part.segment, first_column / Shape::kDv};
    part.segment == 0 ? starts.load_initial(S, a, own) : starts.load_start(S, a, own);
    auto ring = Ring<kPipelineDepth>::consumer();  // one chunk ahead of `read`
    auto read = ring;
    auto output_ring = Ring<kDepth>::producer();

    RoundedState<Shape::kDk> s;
    WarpgroupColumns residual, values, v_new, O;
    WarpgroupFragments factor, to_state;
    const int unit = first_unit_of_columns();
    // values = -V of the next chunk. K of that chunk has arrived with it.
    const auto load_values = [&] {
      const ValuePanel V = tiles_of(ring.stage()).V;
      ring.wait(full);
      ring.advance();
      load_signed_values(values, V, unit, kMinus);
    };
    // residual = K S of the chunk `read`.
    const auto start_state_product = [&] {
      round_state<Shape::kDk>(s, S);
      wgmma_fence(residual, s);
      start_output_from_state<Shape::kDk>(residual, s, tiles_of(read.stage()).K);  // K in place of Q
      wgmma_commit();
    };
    // residual = D_k K S - V of the chunk `read`.
    const auto finish_residual = [&] {
      wgmma_wait<0>(residual);
      decay_columns(residual, decays_of(read.stage()) + kOfKeys * kChunk);
#pragma unroll
      for (int i = 0; i < kChunk / 2; ++i) residual[i] += values[i];
    };
    // Starts from the residual of a chunk: computes its v_new, updates S, computes its outputs and the residual of the
    // next chunk.
    const auto walk = [&]<class HasNext>(HasNext) {
      const Tiles<Shape> tiles = tiles_of(read.stage());
      const float *of_queries = decays_of(read.stage()) + kOfQueries * kChunk,
                  *to_end = decays_of(read.stage()) + kToEnd * kChunk;
      round_columns(factor, residual);
      wgmma_fence(v_new, factor);
      start_new_values(v_new, factor, tiles.T_high, tiles.T_low);
      wgmma_commit();
      wgmma_fence(O, s);
      start_output_from_state<Shape::kDk>(O, s, tiles.Q);
      wgmma_commit();
      const float whole = of_queries[kChunk - 1];
#pragma unroll
      for (float& element : S) element *= whole;
      if constexpr (HasNext::value) load_values();
      wgmma_wait<1>(v_new);
      round_columns(factor, v_new);
      decay_columns(v_new, to_end);
      round_columns(to_state, v_new);
      wgmma_fence(S, to_state, values);
      start_state_update<Shape::kDk>(S, to_state, tiles.K);
      wgmma_commit();
      wgmma_wait<1>(O);
      decay_columns(O, of_queries);
      wgmma_fence(O, factor);
      start_output_from_values(O, factor, tiles.P);
      wgmma_commit();
      const int chunk = read.stage();
      read.advance();
      if constexpr (HasNext::value) {
        wgmma_wait<1>(S);
        start_state_product();
        wgmma_wait<1>(O);
      } else {
        wgmma_wait<0>(S, O);
      }
      __syncwarp();  // all lanes have read their part of V
      if (lane_index() == 0) empty[chunk].arrive();
      output_ring.wait(output_empty);
      put_output(output(output_ring.stage()), O, a.scale);
      __syncwarp();
      if (lane_index() == 0) output_full[output_ring.stage()].arrive();
      output_ring.advance();
      if constexpr (HasNext::value) finish_residual();
    };

    load_values();
    start_state_product();
    finish_residual();
    for (int t = part.begin; t + kChunk < part.end; t += kChunk) walk(std::true_type());
    walk(std::false_type());
    if (part.end == a.L && a.final_state.data) {
      store_group_state<Shape::kDk>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk,
                                    columns);
    }
  }
}

}  // namespace

void segments(const Bf16Arguments& a, const LaunchPlan& plan) {
  const PreparedTiles x = prepare_tiles(a);
  end_part("prepare");
  const auto start = [&]<class Shape>(Shape) {
    SegmentMaps<Shape::kDk> segment_maps(a, plan.segments - 1);
    segment_maps.heads = a.heads;
    if (segment_maps.count > 0) {
      const DecayOfSegment of_segment(workspace<float>("gated_delta_rule: decays of segments",
                                                       std::size_t(std::int64_t(a.B) * a.H * segment_maps.count)),
                                      segment_maps.count);
      LaunchConfig config = segment_maps.template config<Shape>(a);
      config.shared_bytes += MapTiles<Shape::kDk>::kDepth * kDecays * sizeof(float);
      config.starts_early = true;
      launch(segment_maps_kernel<Shape>, config, a, chunk_maps(a), map_of(x, a, 2 * kChunk), x.decays, plan,
             segment_maps, of_segment);
      carry_segments<Shape>(a, segment_maps, true, of_segment);
      end_part("segments");
    }
    LaunchConfig config(grid_of<Shape>(extents_of(a), plan.segments), kBlockThreads, kSharedBytes<Shape>);
    config.starts_early = true;
    launch(segment_walk_kernel<Shape>, config, a, chunk_maps(a), map_of(x, a), x.decays, plan, segment_maps);
  };
  a.Dk <= 64 ? start(PanelShape<64, 64>()) : start(PanelShape<128, 64>());
  end_part("walk");
}

void segments(const Bf16Arguments& a) {
  segments(a, one_wave_of_segments(a));
}

}  // namespace tutorial::gated_delta_rule
