#pragma once
/// @file
/// The kernels before the walk of `segments`: the state and the decay of each segment, and what is carried from segment to
/// segment.
///
///     loads (1 thread)           V -----------------------> walking warpgroup (one per 64 columns of Dv)
///     decaying warps, themselves k, g -> slot of a chunk ---> S = diag(D) S + k~^T V

#include <cuda_runtime.h>

#include <type_traits>

#include "04_fused_chunk/fused_gla.hpp"
#include "04_fused_chunk/gla/launch_plan.hpp"
#include "04_fused_chunk/gla/level_slots.cuh"
#include "04_fused_chunk/gla/score_levels.cuh"
#include "common/device/early_start.cuh"
#include "common/device/elect.cuh"
#include "common/device/launch.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/workspace.hpp"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/carry.cuh"
#include "common/tile/warpgroup_sub_chunk.cuh"

namespace tutorial::fused_gla {
namespace {

using namespace tile;

constexpr int kKeyDepth = 2;     // k and g of sub-chunks in shared memory, of each warp that decays
constexpr int kValueDepth = 3;   // V of chunks
constexpr int kKeyColumns = 64;  // of Dk, that a warp decays
constexpr int kKeySlots = 2;     // k~ of chunks

/// Warpgroups whose warps decay.
template <class Shape>
constexpr int kDecayers = Shape::kDk / kKeyColumns;
/// Threads of the kernel for the states: those warpgroups, one for each 64 columns of Dv, and a warp that loads V.
template <class Shape>
constexpr int kStateBlock = (kDecayers<Shape> + kWalkers<Shape>)*kWarpgroup + 32;

/// The tensors that bulk copies read.
struct StateMaps {
  TensorMap k, v, g;
};

/// Shared memory of the kernel for the states.
template <class Shape>
struct StateMemory {
  using Keys = typename Shape::KeyTile;      // of a chunk
  using KeyPart = SixteenRows<kKeyColumns>;  // of a decaying warp
  using Gates = FloatPanels<kSubChunk, kKeyColumns>;
  static constexpr int kKeyBytes = int(Keys::kPanelBytes) * (Shape::kDk / 64);
  static constexpr int kRawBytes = int(KeyPart::kPanelBytes) + Gates::kBytes;
  static constexpr int kValueBytes = int(PanelTile<Shape::kDv>::kPanelBytes) * (Shape::kDv / 64);
  static constexpr int kRaw = kKeySlots * kKeyBytes;  // offsets in bytes
  static constexpr int kValues = kRaw + kDecayers<Shape> * kSubChunks * kKeyDepth * kRawBytes;
  static constexpr int kDecays = kValues + kValueDepth * kValueBytes;
  static constexpr int kBytes = kDecays + kKeySlots * OrderedDecays<Shape::kDk>::kBytes;

  unsigned char* memory;

  /// k~ of a chunk, 0 to kKeySlots - 1.
  __device__ __forceinline__ Keys keys(int slot) const { return tile_at<Keys>(memory + slot * kKeyBytes); }
  /// 64 columns of sub-chunk r of it, part 0 to kDecayers - 1.
  __device__ __forceinline__ KeyPart keys(int slot, int part, int r) const {
    return tile_at<KeyPart>(memory + slot * kKeyBytes + part * int(Keys::kPanelBytes) + r * int(KeyPart::kPanelBytes));
  }
  /// The decays of that chunk.
  __device__ __forceinline__ OrderedDecays<Shape::kDk> decays(int slot) const {
    return {reinterpret_cast<float*>(memory + kDecays + slot * OrderedDecays<Shape::kDk>::kBytes)};
  }
  /// 64 columns of k of a sub-chunk as loaded, 0 to kDecayers kSubChunks kKeyDepth - 1.
  __device__ __forceinline__ KeyPart raw_keys(int number) const {
    return tile_at<KeyPart>(memory + kRaw + number * kRawBytes);
  }
  /// Their gates.
  __device__ __forceinline__ Gates gates(int number) const {
    return {reinterpret_cast<const float*>(memory + kRaw + number * kRawBytes + KeyPart::kPanelBytes)};
  }
  /// V of a chunk, 0 to kValueDepth - 1.
  __device__ __forceinline__ PanelTile<Shape::kDv> values(int stage) const {
    return tile_at<PanelTile<Shape::kDv>>(memory + kValues + stage * kValueBytes);
  }
};

using Columns = float[kKeyColumns / 32];  // a lane's

/// Loads the gates of 64 columns of a sub-chunk.
/// @param product set to that of all its gates
template <class Shape>
__device__ __forceinline__ void load_gates(Columns (&gates)[kSubChunk], Columns& product,
                                           const StateMemory<Shape>& memory, int raw) {
  using namespace level_rows;
  const int byte = first_gate_byte<kKeyColumns, kSubChunk>();
  product[0] = product[1] = 1;
#pragma unroll
  for (int i = 0; i < kSubChunk; ++i) {
    convert(gates[i], *gates_in_row<kKeyColumns>(memory.gates(raw), byte, i));
#pragma unroll
    for (float& x : gates[i]) x = gate(x);
    multiply(product, gates[i]);
  }
}

/// Decays 64 columns of the keys of a sub-chunk.
/// @param to the rows of k~
/// @param decay of the positions after the sub-chunk; it is multiplied by those of the sub-chunk
template <class Shape>
__device__ __forceinline__ void decay_keys(const SixteenRows<kKeyColumns>& to, Columns& decay,
                                           const Columns (&gates)[kSubChunk], const StateMemory<Shape>& memory,
                                           int raw) {
  using namespace level_rows;
  const int byte = lane_byte<kKeyColumns>();
#pragma unroll
  for (int i = kSubChunk - 1; i >= 0; --i) {
    Columns k;
    convert(k, *in_row<kKeyColumns>(memory.raw_keys(raw), byte, i));
    multiply(k, decay);
    store_for_copies(in_row<kKeyColumns>(to, byte, i), packed_row(k));
    multiply(decay, gates[i]);
  }
}

/// H_m and D_m of a segment. All of its chunks are whole.
/// @param begin the first position that counts, a chunk's. If it is not the segment's first, D_m is 0
/// @param segment its number among those of `states` [.., Dk, Dv] and `decays` [.., 4, Dk], D_m in four factors, one from
/// each warp that decays
template <class Shape, class Part>
__device__ __forceinline__ void compute_segment_state(const Bf16Arguments& a, const StateMaps& maps, const Part& part,
                                                      int begin, std::int64_t segment, float* states, float* decays) {
  constexpr int kWalkers = fused_gla::kWalkers<Shape>, kDecayers = fused_gla::kDecayers<Shape>;
  const int b = part.b, h = part.h, end = part.end, first_column = part.first_column;
  __shared__ Barrier raw_full[kDecayers * kSubChunks * kKeyDepth], slot_full[kKeySlots], slot_empty[kKeySlots];
  __shared__ Barrier full[kValueDepth], empty[kValueDepth];
  __shared__ float2 products[2][kDecayers][kSubChunks][32];  // of a sub-chunk's gates
  const StateMemory<Shape> memory{dynamic_shared<unsigned char, kTileAlignment>()};

  if (threadIdx.x == 0) {
    for (Barrier& barrier : raw_full) barrier.init(1);
    for (Barrier& barrier : slot_full) barrier.init(4 * kDecayers);
    for (Barrier& barrier : slot_empty) barrier.init(4 * kWalkers);
    for (Barrier& barrier : full) barrier.init(1);
    for (Barrier& barrier : empty) barrier.init(4 * kWalkers);
    fence_barrier_init();
  }
  __syncthreads();

  const int group = int(threadIdx.x) / kWarpgroup, lane = int(lane_index());
  if (group < kDecayers) {
    // The warp decays 64 columns of one sub-chunk of each chunk.
    const int warp = uniform(warp_in_group()), part_of_keys = uniform(group);
    const int first_raw = (part_of_keys * kSubChunks + warp) * kKeyDepth,
              first_d = part_of_keys * kKeyColumns + lane * 2;
    Barrier* const raw_barriers = raw_full + first_raw;
    const auto load = [&](int t, int stage) {
      if (t >= end || !elect_one()) return;
      const TileOrigin origin{.column = part_of_keys * kKeyColumns, .position = t, .head = h, .batch = b};
      raw_barriers[stage].arrive_expect(memory.kRawBytes);
      load_panels(memory.gates(first_raw + stage), maps.g, raw_barriers[stage], origin);
      load_panels(memory.raw_keys(first_raw + stage), maps.k, raw_barriers[stage], origin);
    };
    for (int i = 0; i < kKeyDepth; ++i) load(begin + warp * kSubChunk + i * kChunk, i);
    auto raw_ring = Ring<kKeyDepth>::consumer();
    auto ring = Ring<kKeySlots>::producer();
    Columns all = {1, 1};
#pragma unroll 1
    for (int t = begin + warp * kSubChunk; t < end; t += kChunk) {
      const int raw = first_raw + raw_ring.stage();
      Columns gates[kSubChunk], product, decay = {1, 1};
      raw_ring.wait(raw_barriers);
      load_gates(gates, product, memory, raw);
      // Two sets take turns: the set of two chunks before has been read when the barrier of the last chunk has opened.
      auto& products_of = products[raw_ring.stage()][part_of_keys];
      products_of[warp][lane] = make_float2(product[0], product[1]);
      wait_at_named_barrier(1 + part_of_keys, kWarpgroup);
      for (int r = warp + 1; r < kSubChunks; ++r)
        decay[0] *= products_of[r][lane].x, decay[1] *= products_of[r][lane].y;
      ring.wait(slot_empty);
      decay_keys(memory.keys(ring.stage(), part_of_keys, warp), decay, gates, memory, raw);
      if (warp == 0) memory.decays(ring.stage()).put(unsigned(first_d), make_float2(decay[0], decay[1]));
      level_rows::multiply(all, product);
      fence_async_proxy();
      __syncwarp();
      if (lane == 0) slot_full[ring.stage()].arrive();
      load(t + kKeyDepth * kChunk, raw_ring.stage());
      raw_ring.advance();
      ring.advance();
    }
    for (int e = 0; first_column == 0 && e < kKeyColumns / 32 && first_d + e < a.Dk; ++e) {
      store_global(decays + (segment * kSubChunks + warp) * a.Dk + first_d + e, begin > part.begin ? 0 : all[e]);
    }
  } else if (group < kDecayers + kWalkers) {
    const int walker = uniform(group - kDecayers), offset = walker * kWarpgroupColumns;
    WarpgroupState<Shape::kDk> S = {};
    auto ring = Ring<kValueDepth>::consumer();
    auto slot_ring = Ring<kKeySlots>::consumer();
    for (int t = begin; t < end; t += kChunk) {
      const PanelTile<64> V{memory.values(ring.stage()).data + walker * PanelTile<64>::kPanelElements};
      slot_ring.wait(slot_full);  // k~ and decays of a chunk
      StateDecays<Shape::kDk> D;
      memory.decays(slot_ring.stage()).load(D);
      decay_state<Shape::kDk>(S, D);
      ring.wait(full);
      wgmma_fence(S);
      start_state_update<Shape::kDk>(S, V, memory.keys(slot_ring.stage()));
      wgmma_commit();
      wgmma_wait<0>(S);
      __syncwarp();  // all lanes have read the decays
      if (lane == 0) slot_empty[slot_ring.stage()].arrive(), empty[ring.stage()].arrive();
      slot_ring.advance();
      ring.advance();
    }
    store_group_state<Shape::kDk>(states + segment * a.Dk * a.Dv + first_column + offset, S, a.Dv, a.Dk,
                                  part.columns - offset);
  } else if (lane == 0) {
    auto ring = Ring<kValueDepth>::producer();
    for (int t = begin; t < end; t += kChunk) {
      ring.wait(empty);
      full[ring.stage()].arrive_expect(memory.kValueBytes);
      load_panels(memory.values(ring.stage()), maps.v, full[ring.stage()],
                  {.column = first_column, .position = t, .head = h, .batch = b});
      ring.advance();
    }
  }
}

/// H_m and D_m of every segment but the last. Grid (tiles of Dv of these segments, H, B).
/// @tparam Begin Begin::of(a, part, length) is the first position of the segment that counts; void: all positions do
/// @param states [B, H, segments - 1, Dk, Dv] @param decays [B, H, segments - 1, 4, Dk]
template <class Shape, class Begin>
__global__ void __launch_bounds__(kStateBlock<Shape>, 1)
    segment_states_kernel(Bf16Arguments a, const __grid_constant__ StateMaps maps, LaunchPlan plan, float* states,
                          float* decays) {
  let_next_kernel_start();
  const BlockPart<Shape> part(extents_of(a), plan.length);
  int begin = part.begin;
  if constexpr (!std::is_void_v<Begin>) begin = Begin::of(a, part, plan.length);
  const std::int64_t segment = std::int64_t(part.head) * (plan.segments - 1) + part.segment;
  compute_segment_state<Shape>(a, maps, part, begin, segment, states, decays);
}

/// The states that all segments but the first start from.
/// @tparam Decay of the segments, one for each row
template <class Shape, class Begin = void, class Decay = RowDecay<kSubChunks>>
const float* segment_starts(const Bf16Arguments& a, const LaunchPlan& plan) {
  const int count = plan.segments - 1;
  const std::int64_t rows = std::int64_t(a.B) * a.H * count * a.Dk;
  float* states = workspace<float>("gla: states of segments", std::size_t(rows * a.Dv));
  float* decays = workspace<float>("gla: decays of segments", std::size_t(rows * kSubChunks));
  const TensorSizes keys = tensor_sizes(a, a.Dk);
  const StateMaps maps{tile_map(a.k, keys, kSubChunk), tile_map(a.v, tensor_sizes(a, a.Dv), kChunk),
                       float_tile_map(a.g, keys, kSubChunk)};
  launch(segment_states_kernel<Shape, Begin>,
         {grid_of<Shape>(extents_of(a), count), kStateBlock<Shape>, StateMemory<Shape>::kBytes}, a, maps, plan, states,
         decays);
  const CarriedStates<Decay> carried{a.initial_state, a.Dv, states, {decays, a.Dk}};
  carry_states(a.B, a.H, a.Dk, count, carried, {}, plan.starts_early);
  return states;
}

}  // namespace
}  // namespace tutorial::fused_gla
