/// @file
/// `segments`: the sequence is cut into segments, which are walked at once by the kernel of `score_levels`.
///
/// Idea: a segment needs one state of the positions before it. As in chapter 03's `segments`, a first kernel
/// computes the state H_m that segment m ends with if it starts from zeros, and its decay D_m; a second one carries the
/// states from segment to segment; then all segments are walked at once. But here nothing is prepared in memory: the
/// first kernel reads k, v and g, 8 of the 12 bytes that the walk reads and writes per element, and decays k in shared
/// memory beside products of warpgroups.
///
///     loads (1 thread)           V -----------------------> walking warpgroup (one per 64 columns of Dv)
///     decaying warps, themselves k, g -> slot of a chunk ---> S = diag(D) S + k~^T V
///
/// Grows out of: 5_score_levels.cu
/// Improves on: `score_levels` has only one block per head and tile of Dv. With 32 heads it leaves half of the
/// multiprocessors idle.
/// Unchanged: the walk.
/// Equation: as chapter 03's `segments`.
/// Shapes: H_m [B, H, segments - 1, Dk, Dv] and D_m [B, H, segments - 1, 4, Dk], four factors, fp32, in device memory.
/// Thread mapping: block (tile and segment, h, b). For each 64 columns of Dk, four warps decay the keys of one
/// sub-chunk of a chunk each, from its last position to its first. They first multiply their gates and tell each other
/// the products, so that they can decay to the end of the chunk: then the walk has one product and one decay per chunk,
/// not per sub-chunk. A warpgroup walks for each 64 columns of Dv. One thread loads V.
/// Synchronization: a decaying warp waits for its copies (`raw_full`), for the three other warps with its columns (a
/// named barrier) and for a free slot (`slot_empty`). The walk waits for V (`full`) and for a slot (`slot_full`), the
/// loads for a free tile of V (`empty`). With short segments the second and the third kernel start early and wait for
/// the one before (common/device/early_start.cuh).
/// Resources: at Dk = 128 and 128 columns 96 registers; two slots of k~ and decays, two stages of k and g for each
/// decaying warp and three V: 180 KB of shared memory.
/// Work: per chunk 450 instructions of a decaying warp and 160 of each walking warp.
/// Bytes: those of `score_levels`; k, v and g a second time, except those of the last segment; H_m is written,
/// read and written by the second kernel, and read again.
/// Bound by: the memory's bandwidth.
/// Requires: as `score_levels`.
/// Weakness: the second read of k, v and g, and two more launches.
/// Sources: chapter 03's `segments`.

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
#include "common/device/registers.cuh"
#include "common/device/workspace.hpp"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/carry.cuh"
#include "common/tile/warpgroup_sub_chunk.cuh"

namespace tutorial::fused_gla {
namespace {

using namespace tile;

/// Threads: warpgroups that load and store, multiply, and prepare, and one that walks for each 64 columns of Dv.
template <class Shape>
constexpr int kBlock = (3 + kWalkers<Shape>)*kWarpgroup;

/// The tensors that bulk copies read or write.
struct Maps {
  TensorMap q, k, v, g, o;
};

/// Registers per thread of a warp that prepares, and of one that walks. With 24 of a warp that loads and stores and 56
/// of one that multiplies they are what the launch allocates: 512 for four warpgroups, 480 for five.
template <class Shape>
constexpr int kPreparingRegisters = kWalkers<Shape> == 1 ? 208 : 128;
template <class Shape>
constexpr int kWalkingRegisters = kWalkers<Shape> == 1 ? 224 : 136;

/// Grid (tiles of Dv of all segments, H, B).
template <class Shape>
__global__ void __launch_bounds__(kBlock<Shape>, 1)
    walk_kernel(Bf16Arguments a, const __grid_constant__ Maps maps, LaunchPlan plan) {
  constexpr int kWalkers = fused_gla::kWalkers<Shape>;
  const LevelMemory<Shape> memory{dynamic_shared<unsigned char, kTileAlignment>()};
  auto& [raw_full, levels_full, levels_empty, prepared_full, prepared_empty, full, empty, output_full, output_empty] =
      *reinterpret_cast<LevelBarriers<Shape>*>(memory.memory + LevelMemory<Shape>::kBytes);

  if (threadIdx.x == 0) {
    for (Barrier& barrier : raw_full) barrier.init(1);
    for (int r = 0; r < kSubChunks; ++r) {
      levels_full[r].init(1), levels_empty[r].init(1);
      for (Barrier& barrier : prepared_full[r]) barrier.init(2);  // P, and the rest
      for (Barrier& barrier : prepared_empty[r]) barrier.init(4 * kWalkers);
    }
    for (Barrier& barrier : full) barrier.init(1);
    for (Barrier& barrier : empty) barrier.init(4 * kWalkers);
    for (Barrier& barrier : output_full) barrier.init(4);
    for (Barrier& barrier : output_empty) barrier.init(1);
    fence_barrier_init();
  }
  __syncthreads();

  const int group = int(threadIdx.x) / kWarpgroup;
  if (group == 0) {
    decrease_registers<24>();
    const BlockPart<Shape> part(extents_of(a), plan.length);
    const int b = part.b, h = part.h, begin = part.begin, end = part.end, first_column = part.first_column;
    const int thread = int(threadIdx.x);
    if (thread == 0) {
      auto ring = Ring<kPipelineDepth>::producer();
      for (int t = begin; t < end; t += kChunk) {
        ring.wait(empty);
        full[ring.stage()].arrive_expect(kWalkers * PanelTile<64>::kPanelBytes);
        load_panels(memory.values(ring.stage()), maps.v, full[ring.stage()],
                    {.column = first_column, .position = t, .head = h, .batch = b});
        ring.advance();
      }
    } else if (thread == 32) {
      auto ring = Ring<1>::consumer();
      for (int t = begin; t < end; t += kChunk) {
#pragma unroll 1
        for (int walker = 0; walker < kWalkers; ++walker) {
          const int column = first_column + walker * kWarpgroupColumns;
          ring.wait(output_full + walker);
          store_tile(maps.o, memory.output(walker).data, {.column = column, .position = t, .head = h, .batch = b});
          commit_stores();
          wait_stores_read<0>();
          output_empty[walker].arrive();
        }
        ring.advance();
      }
    }
  } else if (group == 1) {
    decrease_registers<56>();
    const BlockPart<Shape> part(extents_of(a), plan.length);
    const int begin = part.begin, end = part.end;
    // The warp multiplies one sub-chunk of each chunk.
    const int warp = uniform(warp_in_group()), lane = int(lane_index());
    const auto levels = memory.levels(warp);
    Barrier* const raw_barriers = raw_full + warp * 2;
    // The last chunk is whole: positions that do not exist are loaded as zeros.
    const int last = begin + (end - begin + kChunk - 1) / kChunk * kChunk;
    const auto load = [&](int t, int half) {
      if (t >= last || !elect_one()) return;
      fence_async_proxy();  // q, k and g have been read by ordinary loads and ldmatrix
      raw_barriers[half].arrive_expect(levels.kLoadedBytes);
      load_half(levels, half, maps, raw_barriers[half],
                {.position = t + half * kHalf, .head = part.h, .batch = part.b});
    };
    for (int half = 0; half < 2; ++half) load(begin + warp * kSubChunk, half);
    // P above its diagonal stays zero.
    for (int stage = 0; stage < kChunkSlots; ++stage) {
      const PreparedTiles<Shape> tiles = memory.prepared(stage, warp);
      for (int i = lane; i < kSubChunk * kSubChunk / 2; i += 32) {
        const int row = i / 8, column = tiles.first_column + i % 8 * 2;
        store_for_copies(
            reinterpret_cast<std::uint32_t*>(tiles.P.data + tiles.P.unit(row, column / 8 * 8) + column % 8), 0u);
      }
    }
    fence_async_proxy();
    __syncwarp();
    auto levels_ring = Ring<1>::consumer();
    auto ring = Ring<kChunkSlots>::producer();
#pragma unroll 1
    for (int t = begin + warp * kSubChunk; t < last; t += kChunk) {
      LevelScores scores = {};
      const auto multiply = [&]<int kNumber>(std::integral_constant<int, kNumber>) {
        levels_ring.wait(levels_full + warp);
        level_rows::multiply_half<kNumber>(levels, scores);
        __syncwarp();
        if (lane == 0) levels_empty[warp].arrive();
        levels_ring.advance();
        load(t + kChunk, kNumber);
      };
      multiply(std::integral_constant<int, 0>());
      multiply(std::integral_constant<int, 1>());
      // The preparing warp has waited for the slot.
      const PreparedTiles<Shape> tiles = memory.prepared(ring.stage(), warp);
      store_scores(tiles.P, tiles.first_column, scores);
      fence_async_proxy();
      __syncwarp();
      if (lane == 0) prepared_full[warp][ring.stage()].arrive();
      ring.advance();
    }
  } else if (group == 2) {
    increase_registers<kPreparingRegisters<Shape>>();
    const BlockPart<Shape> part(extents_of(a), plan.length);
    // The warp prepares one sub-chunk of each chunk.
    const int warp = uniform(warp_in_group()), lane = int(lane_index());
    const auto levels = memory.levels(warp);
    auto raw_ring = Ring<1>::consumer();
    auto levels_ring = Ring<1>::producer();
    auto ring = Ring<kChunkSlots>::producer();
#pragma unroll 1
    for (int t = part.begin; t < part.end; t += kChunk) {
      const PreparedTiles<Shape> tiles = memory.prepared(ring.stage(), warp);
      const ToSlot<Shape> out{tiles, level_rows::lane_byte<Shape::kDk>()};
      FirstHalf<Shape::kDk> first;
      const auto prepare = [&]<int kNumber>(std::integral_constant<int, kNumber>) {
        raw_ring.wait(raw_full + warp * 2 + kNumber);
        prepare_half<kNumber>(levels, out, first, [&] { levels_ring.wait(levels_empty + warp); });
        __syncwarp();
        if (lane == 0) levels_full[warp].arrive();
        levels_ring.advance();
      };
      ring.wait(prepared_empty[warp]);
      prepare(std::integral_constant<int, 0>());
      prepare(std::integral_constant<int, 1>());
      raw_ring.advance();
      fence_async_proxy();
      __syncwarp();
      if (lane == 0) prepared_full[warp][ring.stage()].arrive();
      ring.advance();
    }
  } else {
    increase_registers<kWalkingRegisters<Shape>>();
    const int walker = uniform(group - 3), offset = walker * kWarpgroupColumns;  // of its columns in the block's
    WarpgroupState<Shape::kDk> S;
    if (const BlockPart<Shape> part(extents_of(a), plan.length); part.segment > 0) {
      const float* start = part.start(a.initial_state, plan, extents_of(a)).data + offset;
      load_group_state<Shape::kDk>(S, start, a.Dv, a.Dk, part.columns - offset);
    } else {
      const float* start = part.start(a.initial_state, plan, extents_of(a)).data;
      load_group_state<Shape::kDk>(S, start ? start + offset : nullptr, a.initial_state.stride_l, a.Dk,
                                   part.columns - offset);
    }
    // Computed again, because S and its addresses leave no registers to keep it in.
    const BlockPart<Shape> part(extents_of(a), hide_from_compiler(plan.length));
    const int begin = part.begin, end = part.end;
    auto ring = Ring<kPipelineDepth>::consumer();
    auto prepared_ring = Ring<kChunkSlots>::consumer();
    auto output_ring = Ring<1>::producer();
    __nv_bfloat16* const output = sub_chunk_output_place(memory.output(walker));
    for (int t = begin; t < end; t += kChunk) {
      const auto V =
          k_from_row_to_row(PanelTile<64>{memory.values(ring.stage()).data + walker * PanelTile<64>::kPanelElements});
      ring.wait(full);
#pragma unroll 1
      for (int r = 0; r < kSubChunks; ++r) {
        const int row = r * kSubChunk;
        prepared_ring.wait(prepared_full[r]);
        const PreparedTiles<Shape> tiles = memory.prepared(prepared_ring.stage(), r);
        const auto v = V.along_k(row);
        StateDecays<Shape::kDk> decays;
        OrderedDecays<Shape::kDk>{tiles.decays}.load(decays);
        RoundedState<Shape::kDk> s;
        SubChunkOutput O;
        round_state<Shape::kDk>(s, S);
        decay_state<Shape::kDk>(S, decays);
        wgmma_fence(O, s, S);
        start_sub_chunk_output<Shape::kDk>(O, s, k_along_rows(tiles.Q));
        start_sub_chunk_output(O, v, k_along_rows(tiles.P).along_k(row));
        wgmma_commit();
        start_sub_chunk_update<Shape::kDk>(S, v, k_from_row_to_row(tiles.K));
        wgmma_commit();
        wgmma_wait<1>(O, s);
        if (r == 0) output_ring.wait(output_empty + walker);
        put_sub_chunk_output(output + row * 64, O, a.scale);
        wgmma_wait<0>(S);
        __syncwarp();  // all lanes have read the decays
        if (lane_index() == 0) prepared_empty[r][prepared_ring.stage()].arrive();
      }
      prepared_ring.advance();
      fence_async_proxy();  // O
      __syncwarp();
      if (lane_index() == 0) {
        empty[ring.stage()].arrive();
        output_full[walker].arrive();
      }
      ring.advance();
      output_ring.advance();
    }
    if (end == a.L && a.final_state.data) {
      store_group_state<Shape::kDk>(a.final_state.row(part.b, part.h, 0) + part.first_column + offset, S,
                                    a.final_state.stride_l, a.Dk, part.columns - offset);
    }
  }
}

Maps maps_of(const Bf16Arguments& a) {
  const TensorSizes keys = tensor_sizes(a, a.Dk);
  return {tile_map(a.q, keys, kHalf), tile_map(a.k, keys, kHalf), tile_map(a.v, tensor_sizes(a, a.Dv), kChunk),
          float_tile_map(a.g, keys, kHalf), output_map(a)};
}

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

/// H_m and D_m of every segment but the last. All chunks of these segments are whole. Grid (tiles of Dv of these
/// segments, H, B).
/// @param states [B, H, segments - 1, Dk, Dv]
/// @param decays [B, H, segments - 1, 4, Dk]: D_m in four factors, one from each warp that decays
template <class Shape>
__global__ void __launch_bounds__(kStateBlock<Shape>, 1)
    segment_states_kernel(Bf16Arguments a, const __grid_constant__ StateMaps maps, LaunchPlan plan, float* states,
                          float* decays) {
  let_next_kernel_start();
  constexpr int kWalkers = fused_gla::kWalkers<Shape>, kDecayers = fused_gla::kDecayers<Shape>;
  const BlockPart<Shape> part(extents_of(a), plan.length);
  const int b = part.b, h = part.h, begin = part.begin, end = part.end, first_column = part.first_column;
  const std::int64_t segment = std::int64_t(part.head) * (plan.segments - 1) + part.segment;
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
      Columns gates[kSubChunk], product, decay;
      raw_ring.wait(raw_barriers);
      load_gates(gates, product, memory, raw);
      // Two sets take turns: the set of two chunks before has been read when the barrier of the last chunk has opened.
      auto& products_of = products[raw_ring.stage()][part_of_keys];
      products_of[warp][lane] = make_float2(product[0], product[1]);
      wait_at_named_barrier(1 + part_of_keys, kWarpgroup);
      decay[0] = decay[1] = 1;
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
    if (first_column == 0) {
#pragma unroll
      for (int e = 0; e < kKeyColumns / 32; ++e) {
        if (first_d + e < a.Dk) store_global(decays + (segment * kSubChunks + warp) * a.Dk + first_d + e, all[e]);
      }
    }
  } else if (group < kDecayers + kWalkers) {
    const int walker = uniform(group - kDecayers), offset = walker * kWarpgroupColumns;
    WarpgroupState<Shape::kDk> S;
#pragma unroll
    for (float& x : S) x = 0;
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

/// The plan with its `starts`.
template <class Shape>
LaunchPlan with_starts(const Bf16Arguments& a, LaunchPlan plan) {
  const int count = plan.segments - 1;
  const std::int64_t rows = std::int64_t(a.B) * a.H * count * a.Dk;
  float* states = workspace<float>("gla: states of segments", std::size_t(rows * a.Dv));
  float* decays = workspace<float>("gla: decays of segments", std::size_t(rows * kSubChunks));
  const TensorSizes keys = tensor_sizes(a, a.Dk);
  const StateMaps maps{tile_map(a.k, keys, kSubChunk), tile_map(a.v, tensor_sizes(a, a.Dv), kChunk),
                       float_tile_map(a.g, keys, kSubChunk)};
  launch(segment_states_kernel<Shape>,
         {grid_of<Shape>(extents_of(a), count), kStateBlock<Shape>, StateMemory<Shape>::kBytes}, a, maps, plan, states,
         decays);
  carry_states(a.B, a.H, a.Dk, count,
               CarriedStates<RowDecay<kSubChunks>>{a.initial_state, a.Dv, states, {decays, a.Dk}}, {},
               plan.starts_early);
  plan.starts = states;
  return plan;
}

}  // namespace

void walk_segments(const Bf16Arguments& a, LaunchPlan plan) {
  const auto start = [&]<class Shape>(Shape) {
    if (plan.segments > 1) plan = with_starts<Shape>(a, plan);
    launch(walk_kernel<Shape>, launch_by_segments<Shape>(extents_of(a), plan, kBlock<Shape>, kLevelBytes<Shape>), a,
           maps_of(a), plan);
  };
  if (a.Dk <= 64) {
    plan.columns == 128 ? start(PanelShape<64, 128>()) : start(PanelShape<64, 64>());
  } else {
    plan.columns == 128 ? start(PanelShape<128, 128>()) : start(PanelShape<128, 64>());
  }
}

void segments(const Bf16Arguments& a) {
  walk_segments(a, segments_plan(a));
}

}  // namespace tutorial::fused_gla
