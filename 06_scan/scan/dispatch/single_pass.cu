/// @file
/// The scan behind dispatch: all tiles at once, any layout, width and alignment, forwards and from the end. It combines
/// what `single_pass`, `warp_look_back`, `wide_tiles` and `channel_lanes` show one by one, and supports the cases that
/// they leave out.
///
/// D = 1, time is contiguous. A tile is 8192 steps of a block of 512 threads, or a half or a quarter of both if a
/// sequence has no more steps than that. Of sequences of up to 512 steps, a block has four. A warp has 512 steps, and
/// its lanes take them in 4 turns of 4 steps each. The tile waits in shared memory, which leaves room for 192 KB of
/// steps per multiprocessor (in registers there is room for 128 KB, and one long sequence, whose tiles wait longest, is
/// slower). If rows are not aligned to 16 bytes or are read from their end, neighbouring lanes copy neighbouring
/// numbers of 4 bytes each, and each lane then reads its own four from shared memory.
///
/// D > 1, channels are contiguous. A block has 32 channels and 256 steps; a lane has 4 neighbouring channels and 8
/// steps in registers. So 8 lanes have a row of 128 bytes, and 4 x 8 such groups of lanes follow each other in time.
/// The scan over the 4 groups of a warp is by shuffles. Lane d of the first warp scans the warps' totals of channel d,
/// and looks back. For D <= 4 a lane has all channels, and there are 256 groups: 2048 steps. If rows are not aligned to
/// 16 bytes, four loads of 4 bytes replace each load of 16.
///
/// Each step of a channel takes one exponential, which is kept, and two multiply-adds, for the map and for y. In
/// addition, a thread composes 28 times for its 16 steps (D = 1), or 3 times for each channel's 8 steps.

#include <cuda_runtime.h>

#include <climits>

#include "06_scan/affine.hpp"
#include "06_scan/scan/dispatch/look_back_search.cuh"
#include "06_scan/scan/dispatch/single_pass.hpp"
#include "06_scan/scan/look_back.cuh"
#include "06_scan/scan/warp_scan.cuh"
#include "common/device/cp_async.cuh"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"

namespace tutorial::scan {
namespace {

/// Four neighbouring numbers, in registers or, read and written at once, in shared memory.
struct alignas(16) Four {
  float of[4];
};

/// Elements p[0], p[stride], ...; zeros from `count` on.
/// @tparam kVector either all four exist or none, and they lie side by side, aligned to 16 bytes
template <bool kVector>
__device__ __forceinline__ Four load_four(const float* p, std::int64_t stride, int count) {
  Four four{};
  if constexpr (kVector) {
    if (count > 0) {
      const float4 v = load_global(reinterpret_cast<const float4*>(p));
      four = {{v.x, v.y, v.z, v.w}};
    }
  } else {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (e < count) four.of[e] = load_global(p + e * stride);
    }
  }
  return four;
}

template <bool kVector>
__device__ __forceinline__ void store_four(float* p, std::int64_t stride, int count, const Four& four) {
  if constexpr (kVector) {
    if (count > 0) {
      store_global(reinterpret_cast<float4*>(p), make_float4(four.of[0], four.of[1], four.of[2], four.of[3]));
    }
  } else {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (e < count) store_global(p + e * stride, four.of[e]);
    }
  }
}

/// What comes before the tile, and what is published about it. The thread that has the channel's totals calls it.
__device__ __forceinline__ float initial_value(const Arguments& a, int b, int h, int d) {
  return a.initial_state.data ? load_global(&a.initial_state.row(b, h, 0)[d]) : 0.0f;
}

__device__ __forceinline__ void store_end(const Arguments& a, int b, int h, int d, const Affine<float>& whole) {
  if (a.final_state.data) store_global(&a.final_state.row(b, h, 0)[d], whole.value);
  if (a.final_log_decay.data && d < a.Dg) store_global(&a.final_log_decay.row(b, h, 0)[d], whole.log_decay);
}

// D = 1: a chain is a sequence.

/// Starts the copy of a warp's turn, 128 elements p[0], p[stride], ..., to shared memory; zeros where they are not in
/// [begin, end). With kVector, lane l copies its own elements, 4 l to 4 l + 3: either all four exist or none, and they
/// lie side by side, aligned to 16 bytes. Otherwise it copies elements l, 32 + l, ..., so that neighbouring lanes copy
/// neighbouring numbers for any direction and alignment. A lane then has its own elements only after __syncwarp().
template <bool kVector>
__device__ __forceinline__ void fetch_turn(Four* to, const float* p, std::int64_t stride, int begin, int end) {
  const int lane = int(lane_index());
  if constexpr (kVector) {
    cp_async<16>(to + lane, p + 4 * lane, 4 * lane < end);
  } else {
    p += lane * stride;
#pragma unroll
    for (int i = lane; i < 128; i += 32, p += 32 * stride) {
      cp_async<4>(reinterpret_cast<float*>(to) + i, p, begin <= i && i < end);
    }
  }
}

/// Stores a warp's turn in the same way, of which this lane has `own`; `through` is the place of the turn in shared
/// memory.
template <bool kVector>
__device__ __forceinline__ void store_turn(float* p, std::int64_t stride, int end, const Four& own, Four* through) {
  const int lane = int(lane_index());
  if constexpr (kVector) {
    store_four<true>(p + 4 * lane, 1, end - 4 * lane, own);
  } else {
    through[lane] = own;
    __syncwarp();
    p += lane * stride;
#pragma unroll
    for (int i = lane; i < 128; i += 32, p += 32 * stride) {
      if (i < end) store_global(p, reinterpret_cast<const float*>(through)[i]);
    }
  }
}

/// Threads of a block whose tiles have so many warps.
__host__ __device__ constexpr int threads_of(int warps) {
  return sequences_per_block(warps) * warps * 32;
}

/// Blocks on a multiprocessor at once: 48 warps have 192 KB of steps.
constexpr int blocks_of(int warps) {
  return 48 * 32 / threads_of(warps);
}

/// @tparam kWarps warps of a tile: the fewest of 1, 4, 8 and 16 whose tile has the whole sequence, or 16
template <int kWarps, bool kVector>
__global__ void __launch_bounds__(threads_of(kWarps), blocks_of(kWarps)) time_kernel(Arguments a, LookBack back) {
  constexpr int kSequences = sequences_per_block(kWarps), kThreads = threads_of(kWarps), kTile = kWarps * kWarpSteps;
  constexpr bool kLooksBack = kWarps == kMostWarps;
  __shared__ Affine<float> totals[kSequences * kWarps];
  [[maybe_unused]] __shared__ FoundByWarps<kWarps> by_warps;
  [[maybe_unused]] __shared__ std::uint64_t early_word;
  __shared__ int taken_tile;
  const int thread = int(threadIdx.x), block_warp = thread / 32, warp = block_warp % kWarps, lane = thread % 32;
  // The tile waits in shared memory, turn after turn. This warp's numbers of turn i begin at i kThreads, four per lane.
  Four *const x_of = dynamic_shared<Four>() + 32 * block_warp, *const gate_of = x_of + kTurns * kThreads;
  if (thread == 0) taken_tile = back.take_tile();
  __syncthreads();
  // If a tile has a whole sequence, there is no tile 1, and the last block may have more warps than there are sequences
  // left.
  const int number = taken_tile * kSequences + block_warp / kWarps;
  const int tile = number / back.chains, chain = number % back.chains, h = chain % a.H, b = chain / a.H;
  const int first = tile * kTile + warp * kWarpSteps;  // the warp's first step
  // Turns after the end of a short sequence would take as long as those before it: 7 compositions per lane for nothing.
  const auto is_empty = [&](int t) { return !kLooksBack && t >= a.L; };
  // Elements from one turn to the next. The compiler knows this number if time is contiguous.
  const auto turn = [](const auto& view) { return 128 * (kVector ? 1 : view.stride_l); };
  const float* const x_at = a.x.row(b, h, first);
  const float* const g_at = a.log_decay.row(b, h, first);
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    const int t = first + i * 128, gates_begin = t > 0 || a.has_first_gate ? 0 : 1;
    if (is_empty(t)) break;
    fetch_turn<kVector>(x_of + i * kThreads, x_at + i * turn(a.x), a.x.stride_l, 0, a.L - t);
    fetch_turn<kVector>(gate_of + i * kThreads, g_at + i * turn(a.log_decay), a.log_decay.stride_l, gates_begin,
                        a.L - t);
  }
  cp_async_commit();
  const std::uint64_t early = kLooksBack && thread == 0 ? load_early(back, tile, chain, 0) : kNotPublished;
  cp_async_wait<0>();
  if constexpr (!kVector) __syncwarp();  // what other lanes have copied

  Affine<float> before[kTurns], whole;  // this lane's steps of a turn, within the warp; all steps of the warp
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    if (is_empty(first + i * 128)) break;
    const Four x = x_of[i * kThreads + lane];
    Four gate = gate_of[i * kThreads + lane];
    Affine<float> own;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      own.log_decay += gate.of[e];
      gate.of[e] = decay(gate.of[e]);
      own.value = gate.of[e] * own.value + x.of[e];
    }
    gate_of[i * kThreads + lane] = gate;  // exp of it from now on
    const Affine<float> lanes = warp_scan(own);
    before[i] = compose(whole, map_below(lanes, 1));
    whole = compose(whole, map_of_lane(lanes, 31));
  }
  if (lane == 31) totals[block_warp] = whole;
  if (kLooksBack && thread == 0) early_word = early;
  __syncthreads();
  // Every warp scans the totals for itself, which saves a barrier.
  const Affine<float> warps = warp_scan<1, kWarps>(lane < kWarps ? totals[block_warp - warp + lane] : Affine<float>{});
  const Affine<float> below = map_of_lane(map_below(warps, 1), warp), own = map_of_lane(warps, kWarps - 1);
  const bool is_last = (tile + 1) * std::int64_t(kTile) >= a.L;
  Affine<float> start;
  if (tile == 0) {
    start.value = initial_value(a, b, h, 0);
  } else if constexpr (kLooksBack) {
    if (early_word != kNotPublished) {
      start = to_map(early_word);
    } else {
      if (thread == 0 && !is_last) store_relaxed(&back.at(tile, chain, 0).own, to_word(own));
      start = look_back_by_block(back, tile, chain, by_warps);
    }
  }
  if (warp == 0 && lane == 0 && (kLooksBack || tile == 0)) {
    const Affine<float> end = compose(start, own);
    if (is_last) {
      store_end(a, b, h, 0, end);
    } else {
      store_relaxed(&back.at(tile, chain, 0).up_to_end, to_word(end));
    }
  }
  const float y_before = apply(below, start.value);
  float* const y_at = a.y.row(b, h, first);
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    const int t = first + i * 128;
    if (is_empty(t)) break;
    Four x = x_of[i * kThreads + lane];
    const Four gate = gate_of[i * kThreads + lane];
    float y = apply(before[i], y_before);
#pragma unroll
    for (int e = 0; e < 4; ++e) x.of[e] = y = gate.of[e] * y + x.of[e];
    store_turn<kVector>(y_at + i * turn(a.y), a.y.stride_l, a.L - t, x, x_of + i * kThreads);
  }
}

// D > 1: a chain is kChannels channels of a sequence.

constexpr int kThreads = kChannelThreads, kWarps = kThreads / 32, kSteps = kChannelSteps;

/// @tparam kChannels 32 or 4
/// @tparam kGates of a lane's 4 channels: 4, or 1 if all share it
template <int kChannels, int kGates, bool kVector>
__global__ void __launch_bounds__(kThreads, 2) channels_kernel(Arguments a, LookBack back) {
  constexpr int kLanes = kChannels / 4, kTile = kThreads / kLanes * kSteps;
  __shared__ Affine<float> totals[kWarps][kChannels];
  __shared__ float y_before[kWarps][kChannels];
  __shared__ int taken_tile;
  const int thread = int(threadIdx.x), warp = thread / 32, lane = thread % 32;
  if (thread == 0) taken_tile = back.take_tile();
  __syncthreads();
  const int tile = taken_tile / back.chains, chain = taken_tile % back.chains;
  const int groups = (a.D - 1) / kChannels + 1, head = chain / groups, h = head % a.H, b = head / a.H;
  const int channel = chain % groups * kChannels, c0 = lane % kLanes * 4, d = channel + c0;
  const int first = tile * kTile + thread / kLanes * kSteps;
  const bool looks_back = thread < kChannels && channel + thread < a.D;
  const std::uint64_t early = looks_back ? load_early(back, tile, chain, thread) : kNotPublished;

  Four x[kSteps];
  float gate[kSteps][kGates];
  const float* x_at = a.x.row(b, h, first) + d;
  const float* g_at = a.log_decay.row(b, h, first) + (kGates == 1 ? 0 : d);
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    const int count = first + i < a.L ? a.D - d : 0;
    x[i] = load_four<kVector>(x_at, 1, count);
    const int gates = i > 0 || first > 0 || a.has_first_gate ? count : 0;
    if constexpr (kGates == 1) {
      gate[i][0] = gates > 0 ? load_global(g_at) : 0.0f;
    } else {
      const Four g = load_four<kVector>(g_at, 1, gates);
#pragma unroll
      for (int c = 0; c < 4; ++c) gate[i][c] = g.of[c];
    }
    x_at += a.x.stride_l;
    g_at += a.log_decay.stride_l;
  }
  Affine<float> before[4], own[4];
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
#pragma unroll
    for (int c = 0; c < kGates; ++c) {
      own[c].log_decay += gate[i][c];
      gate[i][c] = decay(gate[i][c]);
    }
#pragma unroll
    for (int c = 0; c < 4; ++c) own[c].value = gate[i][c % kGates] * own[c].value + x[i].of[c];
  }
#pragma unroll
  for (int c = kGates; c < 4; ++c) own[c].log_decay = own[0].log_decay;
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    own[c] = warp_scan<kLanes>(own[c]);
    before[c] = map_below(own[c], kLanes);
    if (lane >= 32 - kLanes) totals[warp][c0 + c] = own[c];
  }
  __syncthreads();
  if (looks_back) {
    Affine<float> whole;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) whole = compose(whole, totals[w][thread]);
    Affine<float> start;
    const bool is_last = (tile + 1) * std::int64_t(kTile) >= a.L;
    if (tile > 0) {
      if (!is_last) store_relaxed(&back.at(tile, chain, thread).own, to_word(whole));
      start = look_back_by_thread(back, tile, chain, thread, early);
    } else {
      start.value = initial_value(a, b, h, channel + thread);
    }
    const Affine<float> end = compose(start, whole);
    if (!is_last) store_relaxed(&back.at(tile, chain, thread).up_to_end, to_word(end));
    if (is_last) store_end(a, b, h, channel + thread, end);
    float y = start.value;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      y_before[w][thread] = y;
      y = apply(totals[w][thread], y);
    }
  }
  __syncthreads();
  float y[4], *y_at = a.y.row(b, h, first) + d;
#pragma unroll
  for (int c = 0; c < 4; ++c) y[c] = d + c < a.D ? apply(before[c], y_before[warp][c0 + c]) : 0.0f;
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
#pragma unroll
    for (int c = 0; c < 4; ++c) x[i].of[c] = y[c] = gate[i][c % kGates] * y[c] + x[i].of[c];
    store_four<kVector>(y_at, 1, first + i < a.L ? a.D - d : 0, x[i]);
    y_at += a.y.stride_l;
  }
}

/// Whether every four numbers that a thread reads or writes at once are aligned to 16 bytes.
bool is_vector(const Arguments& a) {
  if (!a.has_first_gate && a.D == 1) return false;
  if (a.D == 1 ? a.L % 4 != 0 : a.D % 4 != 0) return false;
  const auto aligned = [&](const auto& view) {
    const bool steps = a.D == 1 ? view.stride_l == 1 : view.stride_l % 4 == 0;
    return steps && reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0 && view.stride_b % 4 == 0 &&
           view.stride_h % 4 == 0;
  };
  return aligned(a.x) && aligned(a.y) && (a.Dg < a.D || aligned(a.log_decay));
}

template <int kChannels, bool kVector>
auto channels_kernel_for(const Arguments& a) {
  return a.Dg == 1 ? channels_kernel<kChannels, 1, kVector> : channels_kernel<kChannels, 4, kVector>;
}

template <bool kVector>
auto time_kernel_for(int warps) {
  return warps == 1   ? time_kernel<1, kVector>
         : warps == 4 ? time_kernel<4, kVector>
         : warps == 8 ? time_kernel<8, kVector>
                      : time_kernel<kMostWarps, kVector>;
}

template <bool kVector>
auto kernel_for(const Arguments& a) {
  if (a.D == 1) return time_kernel_for<kVector>(TilePlan(a).tile_threads / 32);
  return a.D <= 4 ? channels_kernel_for<4, kVector>(a) : channels_kernel_for<32, kVector>(a);
}

}  // namespace

void planned_single_pass(const Arguments& a) {
  const TilePlan plan(a);
  const LookBack back = make_look_back("scan: look-back", plan.chains, plan.width, plan.words());
  const auto blocks = unsigned((plan.chains * plan.tiles - 1) / plan.block_tiles + 1);
  const std::size_t shared = a.D == 1 ? 2 * sizeof(float) * plan.block_tiles * plan.tile : 0;
  launch(is_vector(a) ? kernel_for<true>(a) : kernel_for<false>(a),
         {blocks, unsigned(plan.block_tiles * plan.tile_threads), shared}, a, back);
}

std::string planned_single_pass_unsupported(const Arguments& a) {
  const TilePlan plan(a);
  if (plan.chains * plan.tiles > INT_MAX - plan.block_tiles) return "more than 2^31 - 5 tiles: they are counted in int";
  return a.L > INT_MAX - plan.tile ? "L > 2^31 - 1 less a tile: positions are counted in int" : "";
}

std::int64_t planned_single_pass_memory(const Arguments& a) {
  return look_back_memory(TilePlan(a).words());
}

std::int64_t planned_single_pass_bytes_moved(const Arguments& a) {
  const std::int64_t heads = std::int64_t(a.B) * a.H, lanes = a.D == 1 ? 1 : (a.D - 1) / 4 + 1;
  // A gate that channels share is read by each lane that has four of them. y_0 is read by all threads of the first tile
  // where D = 1, else by those that look back.
  const std::int64_t gates = a.Dg == a.D ? a.D : lanes;
  const std::int64_t starts = !a.initial_state.data ? 0 : a.D == 1 ? TilePlan(a).tile_threads : a.D;
  const std::int64_t ends = (a.final_state.data ? a.D : 0) + (a.final_log_decay.data ? a.Dg : 0);
  return 4 * heads * (a.L * (2 * std::int64_t(a.D) + gates) + starts + ends);
}

std::string planned_single_pass_note(const Arguments& a) {
  return "single pass, tiles of " + std::to_string(TilePlan(a).tile) + " steps";
}

}  // namespace tutorial::scan
