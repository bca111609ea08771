/// @file
/// Stage 6, `scan_fused`: the same scan, which never writes a step's state.
///
/// Idea: what scan's single_pass does with a number, a block does with 32 columns of a state in its registers: add up
/// its tile of 64 steps, learn what came before from the tiles before, walk the tile once more with the outputs. Only
/// the states of tiles go through memory, one in 64.
/// Mends: stage 5 has four passes over Dk Dv floats a step. Same: the maps, their order, and how tiles hand them on.
///
///   tile:   its own sum  sum_t exp(g_{t+1} + ... + g_C) k_t^T v_t, its decay exp(g_1 + ... + g_C)       published
///   before: S at the end of the tile before: own sums of tiles n - 1, n - 2, ... back to the first that knows S
///   tile:   S at its end = decay S + own sum                                                            published
///   step:   S = exp(g_t) S + k_t^T v_t,  o_t = scale q_t S
///
/// The own sum needs no walk: the exponents are sums of the gates behind a step, and one multiply-add is enough for an
/// element. The last tile of a sequence has nobody to tell and leaves it out. Nothing is ever divided by a gate, and no
/// sum of gates is subtracted from another.
///
/// Shapes: q, k [B, H, L, Dk]; v, o [B, H, L, Dv]; g [B, H, L]; S_0 and final_state [B, H, Dk, Dv]; fp32 in device
/// memory. In shared memory: 64 steps of q, k and of 32 columns of v.
/// Who does what: block (tile, 32 columns, head), in the order of look_back.cuh, has 128 threads; 16 lanes share four
/// columns (state_tile.cuh). What a thread publishes, the thread of its number in a later block reads: states lie in
/// the order of threads, 16 bytes each, and a warp waits for a warp. A word of look_back.cuh, one a warp, has the sum
/// of the tile's gates and says that the warp's part of the state is there: it is released after that is written and
/// acquired before it is read (who sees the word then sees the state, too). For Dk > 128 a tile has 32 steps, and a
/// multiprocessor two blocks: S and the own sum take twice the registers.
/// Resources at Dk = 128: 2 x 32 registers a thread for S and the own sum, 72 KB of shared memory: three blocks a
/// multiprocessor. Two exponentials a step and block.
/// Work, a step: a multiply-add each of Dk Dv elements for the own sum, then a product and two multiply-adds: 8 Dk Dv
/// operations where the loop has 6 Dk Dv, and no tensor core can help. Bytes: v and o once, q and k once for each 32
/// columns, from the second-level cache after the first; of states of tiles two written and one or more read, 12 Dk Dv
/// for 64 steps: 3 KB a step at Dk = Dv = 128, where q, k, v and o are 2 KB. Memory: 8 Dk Dv bytes a tile.
/// Limit: the fp32 units. Needs: Dk <= 256.
/// Weakness: a step is a step: 8 Dk Dv operations of the fp32 units. Chapter 04's chunks take 4 Dk Dv and those of the
/// scores, on tensor cores, which have ten times the rate.
/// Source: Merrill and Garland, NVR-2016-002, section 4, for the look-back.

#include <cuda_runtime.h>

#include <climits>

#include "06_scan/affine.hpp"
#include "06_scan/memory_limits.hpp"
#include "06_scan/scan/look_back.cuh"
#include "06_scan/simple_gla.hpp"
#include "06_scan/state_tile.cuh"
#include "common/device/cp_async.cuh"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/warp.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::scan {
namespace {

using simple_gla::FloatArguments;

constexpr int kStateWarps = kStateThreads / 32;
constexpr const char* kTag = "simple_gla: states of tiles";

/// Dk rounded up to what there are kernels for.
constexpr int rounded_up(int Dk) {
  return Dk <= 64 ? 64 : Dk <= 128 ? 128 : 256;
}

TUTORIAL_HOST_DEVICE constexpr int steps_of_tile(int Dk) {
  return Dk <= 128 ? 64 : 32;
}

/// The words of tiles, and in their order the states.
struct Published {
  LookBack back;
  float4 *own, *up_to_end;

  /// This thread's part of a tile's state: every kStateThreads-th float4 from here.
  template <int kDk>
  __device__ __forceinline__ std::int64_t first(int tile, int chain) const {
    return back.place(tile, chain, 0) / kStateWarps * StateTile<kDk>::kRows * kStateThreads + threadIdx.x;
  }
};

/// Tells the warp of the same number in later blocks this warp's part of a state. Called by whole warps.
template <int kDk>
__device__ __forceinline__ void publish(const StateTile<kDk>& S, float log_decay, float4* to, std::uint64_t* word) {
#pragma unroll
  for (int r = 0; r < StateTile<kDk>::kRows; ++r) {
    store_global(&to[r * kStateThreads], make_float4(S.of[r][0], S.of[r][1], S.of[r][2], S.of[r][3]));
  }
  __syncwarp();
  if (lane_index() == 0) store_release(word, to_word({log_decay, 0.0f}));
}

/// S at the start of a tile > 0: every thread its part of it.
template <int kDk>
__device__ __forceinline__ void look_back(StateTile<kDk>& S, const Published& states, int tile, int chain) {
  const LookBack& back = states.back;
  S.clear();
  float log_decay = 0;  // from the end of tile n to the start of this one
  for (int n = tile - 1;; --n) {
    const Words& words = back.at(n, chain, int(threadIdx.x) / 32);
    std::uint64_t own = kNotThere;
    bool is_whole = false;
    for (;; backoff()) {
      is_whole = load_acquire(&words.up_to_end) != kNotThere;
      if (is_whole || (own = load_acquire(&words.own)) != kNotThere) break;
    }
    // Written by another block while this kernel runs: an ordinary read, no load_global().
    const float4* from = (is_whole ? states.up_to_end : states.own) + states.template first<kDk>(n, chain);
    const float factor = decay(log_decay);
#pragma unroll
    for (int r = 0; r < StateTile<kDk>::kRows; ++r) {
      const float4 row = from[r * kStateThreads];
      S.of[r][0] += factor * row.x, S.of[r][1] += factor * row.y;
      S.of[r][2] += factor * row.z, S.of[r][3] += factor * row.w;
    }
    if (is_whole) return;  // the first tile publishes the state at its end alone
    log_decay += to_map(own).log_decay;
  }
}

/// On a multiprocessor at once.
template <int kDk>
inline constexpr int kBlocks = kDk <= 128 ? 3 : 2;

template <int kDk, bool kVector>
__global__ void __launch_bounds__(kStateThreads, kBlocks<kDk>) tiles_kernel(FloatArguments a, Published states) {
  const LookBack& back = states.back;
  constexpr int kSteps = steps_of_tile(kDk), kOwn = kSteps / 32;
  __shared__ float gate[kSteps], decay_to_end[kSteps], log_decay_of_tile;
  __shared__ int taken;
  float* const k = dynamic_shared<float>();
  float *const q = k + kSteps * kDk, *const v = q + kSteps * kDk;
  const int thread = int(threadIdx.x), warp = thread / 32, lane = thread % 32;
  if (thread == 0) taken = back.take();
  __syncthreads();
  const int tile = taken / back.chains, chain = taken % back.chains;
  const int column_tiles = (a.Dv - 1) / kStateColumns + 1, head = chain / column_tiles, h = head % a.H, b = head / a.H;
  const int first = tile * kSteps, rows = min(kSteps, a.L - first);
  const int j = chain % column_tiles * kStateColumns, columns = a.Dv - j;
  const bool is_last = rows == a.L - first;

  load_rows_async<kVector, kSteps, kDk>(k, a.k.row(b, h, first), a.k.stride_l, rows, a.Dk);
  load_rows_async<kVector, kSteps, kStateColumns>(v, a.v.row(b, h, first) + j, a.v.stride_l, rows, columns);
  load_rows_async<kVector, kSteps, kDk>(q, a.q.row(b, h, first), a.q.stride_l, rows, a.Dk);
  cp_async_commit();
  // A lane has kOwn steps, lane 0 the last ones: a prefix sum over the lanes is one of what comes after.
  if (warp == 0) {
    float behind[kOwn], own = 0;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int step = kSteps - 1 - (lane * kOwn + i);
      const float g = step < rows ? load_global(a.g.row(b, h, first + step)) : 0.0f;
      gate[step] = decay(g);
      behind[i] = own;
      own += g;
    }
    const float sum = warp_prefix_sum(own), lanes_behind = shuffle_up(sum, 1);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      decay_to_end[kSteps - 1 - (lane * kOwn + i)] = decay(lane == 0 ? behind[i] : lanes_behind + behind[i]);
    }
    if (lane == 31) log_decay_of_tile = sum;
  }
  cp_async_wait<0>();
  __syncthreads();

  const auto values = [&](int step, float factor, float(&of)[4]) {
    const float4 four_v = four(v, step * kStateColumns + first_column());
    of[0] = factor * four_v.x, of[1] = factor * four_v.y, of[2] = factor * four_v.z, of[3] = factor * four_v.w;
  };
  const auto words = [&]() -> Words& { return back.at(tile, chain, warp); };
  StateTile<kDk> S, own;
  if (!is_last) {
    own.clear();
#pragma unroll 2
    for (int step = 0; step < kSteps; ++step) {
      float of[4];
      values(step, decay_to_end[step], of);
      own.add(k + step * kDk, of);
    }
    if (tile > 0) {
      publish(own, log_decay_of_tile, states.own + states.template first<kDk>(tile, chain), &words().own);
    }
  }
  if (tile > 0) {
    look_back(S, states, tile, chain);
  } else {
    S.clear();
    if (a.initial_state.data) {
      S.each(a.Dk, columns,
             [&](int d, int c, float& element) { element = load_global(&a.initial_state.row(b, h, d)[j + c]); });
    }
  }
  if (!is_last) {
    const float factor = decay(log_decay_of_tile);
#pragma unroll
    for (int r = 0; r < StateTile<kDk>::kRows; ++r) {
#pragma unroll
      for (int c = 0; c < 4; ++c) own.of[r][c] += factor * S.of[r][c];
    }
    publish(own, 0.0f, states.up_to_end + states.template first<kDk>(tile, chain), &words().up_to_end);
  }
#pragma unroll 2
  for (int step = 0; step < rows; ++step) {
    float of[4], o[4];
    values(step, 1, of);
    S.decay_and_add(gate[step], k + step * kDk, of);
    S.read(q + step * kDk, o);
    store_output(a.o.row(b, h, first + step) + j, o, a.scale, columns);
  }
  if (is_last && a.final_state.data) {
    S.each(a.Dk, columns,
           [&](int d, int c, float& element) { store_global(&a.final_state.row(b, h, d)[j + c], element); });
  }
}

/// How a problem is cut.
struct Cut {
  int Dk, steps;  // rounded up; of a tile
  std::int64_t chains, tiles;

  explicit Cut(const FloatArguments& a) : Dk(rounded_up(a.Dk)), steps(steps_of_tile(a.Dk)) {
    chains = std::int64_t(a.B) * a.H * ((a.Dv - 1) / kStateColumns + 1);
    tiles = (a.L - 1) / steps + 1;
  }
  std::int64_t words() const { return tiles > 1 ? tiles * chains * kStateWarps : 0; }
  /// Floats of the states of one kind.
  std::int64_t floats() const { return tiles > 1 ? tiles * chains * Dk * kStateColumns : 0; }
  std::size_t shared_bytes() const { return std::size_t(steps) * (2 * Dk + kStateColumns) * sizeof(float); }
};

template <bool kVector>
auto kernel_for(int Dk) {
  return Dk == 64 ? tiles_kernel<64, kVector> : Dk == 128 ? tiles_kernel<128, kVector> : tiles_kernel<256, kVector>;
}

bool is_vector(const FloatArguments& a) {
  return has_vector_rows(a.q, a.Dk) && has_vector_rows(a.k, a.Dk) && has_vector_rows(a.v, a.Dv);
}

}  // namespace

void scan_fused(const FloatArguments& a) {
  const Cut cut(a);
  Published states{};
  states.back = make_look_back("simple_gla: look-back", cut.chains, kStateWarps, cut.words());
  if (cut.tiles > 1) {
    states.own = reinterpret_cast<float4*>(workspace<float>(kTag, std::size_t(2 * cut.floats())));
    states.up_to_end = states.own + cut.floats() / 4;
  }
  launch(is_vector(a) ? kernel_for<true>(cut.Dk) : kernel_for<false>(cut.Dk),
         {unsigned(cut.chains * cut.tiles), kStateThreads, cut.shared_bytes()}, a, states);
}

std::string scan_fused_limits(const FloatArguments& a) {
  const Cut cut(a);
  if (a.Dk > kMaxKeyDim) return "Dk > 256: the state's columns would not fit into the registers of 16 threads";
  if (cut.chains * cut.tiles > INT_MAX) return "more than 2^31 - 1 tiles: the grid";
  if (a.L > INT_MAX - cut.steps) return "L > 2^31 - 1 less a tile: positions are counted in int";
  return memory_limits(kTag, scan_fused_memory(a));
}

std::int64_t scan_fused_memory(const FloatArguments& a) {
  const Cut cut(a);
  return look_back_memory(cut.words()) + 2 * std::int64_t(sizeof(float)) * cut.floats();
}

std::int64_t scan_fused_moved(const FloatArguments& a) {
  const Cut cut(a);
  const std::int64_t heads = std::int64_t(a.B) * a.H, state = std::int64_t(a.Dk) * a.Dv;
  const std::int64_t column_tiles = cut.chains / heads, tile_state = cut.Dk * kStateColumns;
  std::int64_t count = heads * a.L * (column_tiles * (2 * std::int64_t(a.Dk) + 1) + 2 * a.Dv);
  if (cut.tiles > 1) count += cut.chains * tile_state * (2 * cut.tiles - 3);  // all but the last; the first has one
  if (a.initial_state.data) count += heads * state;
  if (a.final_state.data) count += heads * state;
  return std::int64_t(sizeof(float)) * count;
}

}  // namespace tutorial::scan
