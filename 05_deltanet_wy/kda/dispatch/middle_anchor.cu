/// @file
/// `middle_anchor`: one kernel, chunks of 32 positions, and one anchor in the middle of each.
///
/// Idea: with b_t the running sum of g and m the sum up to the middle of a chunk, between its positions 15 and 16,
///
///     q'_t = exp(b_t - m) q_t,    k'_t = exp(b_t - m) k_t,    k~_i = exp(m - b_i) k_i
///
/// are all that a chunk needs, because exp(b_t - b_i) = exp(b_t - m) exp(m - b_i). From the middle to either end there are
/// 16 positions, so nothing leaves the range of bf16 even with gates of exp(-4.3) throughout. And a row of the state can
/// have the decay from the chunk's start to m on its way, and the one from m to its end behind it:
///
///     S' = diag(exp(m)) S,    P and A from q', k' and k~,    Res = V - k' S',    v_new = T Res
///     O = scale (q' S' + P v_new),    S_next = diag(exp(b_end - m)) (S' + k~^T v_new)
///
/// So there are no rows with decays to the chunk's start or end. q' lies above k' in one tile of 64 rows: their scores with
/// k~ are one product of a warpgroup, and q' S' and k' S' are one for 64 columns of Dv.
///
///     warpgroup     | chunk n             | chunk n + 1         | chunk n + 2
///     preparing 0   | rows, scores, T     |                     | rows, scores, T
///     preparing 1   |                     | rows, scores, T     |
///     walking 0     | step, columns 0 .. 63 of Dv, with S in its registers
///     walking 1     | step, columns 64 .. 127
///
/// Improves on: `cluster` prepares a chunk of 64 positions in 14 000 clocks, three quarters of which are waits, and the
/// walk waits for it. In chunks of 32, rows are written once, not two or three times, and the inverse is of 2 x 2 blocks.
///
/// **Segments.** A segment starts from zeros a few chunks earlier, if they leave at most 2^-24 of a state
/// (chunk/zero_starts.cuh). How many that takes, a block guesses from the gates of 32 positions. Then the preparing
/// warpgroups compute the bounds of these chunks, and the walk goes on if their product is small enough. With
/// E = diag(exp(b_end)), and K+ = k' diag(exp(m)), K- = k~ diag(exp(b_end - m)), a chunk turns S into
///
///     E S + K-^T T (V - K+ S),   and   |E - K-^T T K+|  <=  max exp(b_end) + sum over i <= t of |K-_t| |T_ti| |K+_i|
///
/// A block that comes to a segment that needs its past, or to a chunk one of whose halves forgets more than 2^-100 in some
/// column, ends there. Its head is left to the kernels behind this one (common/device/walked_heads.hpp): those of
/// `segments`, or `cluster` where there are so many heads that none is cut.
///
/// Equation: that of `tensor_core`. What is rounded: as there, but S' in the place of S, and q', k', k~ in that of rows.
///
/// Shapes: those of `tensor_core`, and one int per segment.
/// Thread mapping: four warpgroups. For the rows a thread has two columns of 16 positions, one half of the chunk. Of the
/// scores warps 0 and 1 have P, and warps 2 and 3 have A, and invert it. The walking warpgroups hold the state, residuals
/// and outputs transposed, as in `two_products`.
/// Synchronization: `raw`: q, k, g and V are there. `full`: the chunk is prepared. `empty`: both walking warpgroups are done
/// with it, and their outputs, which lie where V was, have left. A thread of the first one then loads the slot again, while
/// products run.
/// Resources: five slots of 40 KB, decays, and 3 KB for each inverse: 217 KB of shared memory. 96 registers per thread of
/// the warpgroups that prepare, 160 of those that walk.
/// Work: per position 4 Dk Dv for q' S' and k' S', 2 Dk Dv for the update, 128 Dk for scores, 192 Dv for T and P.
/// Bytes: q, k, g, beta once per 128 columns of Dv; v and o once. Up to ten chunks more per segment.
/// Bound by: the chain of the walk.
/// **Packed sequences.** Their list of segments (common/tile/packed_segments.cuh) takes the place of equal ones. A bulk copy
/// loads whole chunks, so the last one of a sequence may arrive with rows of the next sequence. The preparing warpgroup
/// makes these rows of k, g and V zeros, beta counts as zero there, and outputs are stored row by row.
/// Requires: what `one_anchor` requires.
/// Weakness: one such segment or chunk gives its head to `segments`.
/// Sources: those of `one_anchor`. NVIDIA's cuDNN frontend has one anchor per chunk of 16, and prepares and walks in one
/// kernel.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "05_deltanet_wy/chunk/decay_columns.cuh"
#include "05_deltanet_wy/chunk/packed_heads.cuh"
#include "05_deltanet_wy/chunk/warpgroup_inverse.cuh"
#include "05_deltanet_wy/kda/chunk_slot.cuh"
#include "05_deltanet_wy/kda/dispatch/middle_anchor.hpp"
#include "05_deltanet_wy/kda/dispatch/segments.hpp"
#include "05_deltanet_wy/kda/dispatch/zero_starts.hpp"
#include "common/ceil_div.hpp"
#include "common/device/bulk_copy.cuh"
#include "common/device/device.hpp"
#include "common/device/early_start.cuh"
#include "common/device/launch.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/mbarrier.cuh"
#include "common/device/memory.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/pack.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/registers.cuh"
#include "common/device/stmatrix.cuh"
#include "common/device/walked_heads.cuh"
#include "common/device/warp.cuh"
#include "common/device/wgmma.cuh"
#include "common/device/workspace.hpp"
#include "common/parts.hpp"
#include "common/tile/base2.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/float_panels.cuh"
#include "common/tile/packed_segments.cuh"
#include "common/tile/warm_up.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::kda {
namespace {

using namespace tile;
using namespace delta_rule;  // blocks and their inverse

constexpr int kPositions = 32, kHalf = kPositions / 2;  // of a chunk, and to either side of its anchor
constexpr int kDk = 128, kDv = 128;                     // of a block
constexpr int kSlots = 5;                               // chunks in shared memory
constexpr int kPreparing = 2, kWalking = 2;             // warpgroups
constexpr int kBlockThreads = (kPreparing + kWalking) * kWarpgroup;
constexpr int kInverseBytes = 3 * 2 * SplitBlocks::kHalf * int(sizeof(__nv_bfloat16));  // three blocks
constexpr float kLeast = -100;   // logarithm to base 2 of what a half of a chunk may leave
constexpr int kMostWarmUp = 10;  // chunks before a segment

// Named barriers: of each warpgroup, and of the two warps of each inverse.
constexpr unsigned kOfPreparing = 1, kOfInverse = kOfPreparing + kPreparing, kOfWalking = kOfInverse + kPreparing;

using Panel = PanelTile<64, kPositions>;  // 32 rows of 64 columns

/// A chunk in shared memory.
///
///            loaded                prepared
///     16 KB  q over k              q' over k'
///      8 KB  g, columns  0 .. 63   k~
///      4 KB  g, columns 64 .. 95   -T in two bf16
///      4 KB  g, columns 96 .. 127  P
///      8 KB  V                     V, then O
struct Slot {
  static constexpr int kRows = 2 * kPositions * kDk * 2, kGates = kPositions * kDk * 4, kT = kRows + kGates / 2;
  static constexpr int kP = kT + int(Panel::kPanelBytes), kV = kRows + kGates, kBytes = kV + kPositions * kDv * 2;
  static_assert(kP + int(Panel::kPanelBytes) == kV);

  unsigned char* memory;  ///< kBytes, aligned to 1024

  __device__ __forceinline__ PanelTile<kDk> rows() const { return {at(0)}; }  ///< those of q, then those of k
  __device__ __forceinline__ FloatPanels<kPositions, kDk> g() const {
    return {reinterpret_cast<const float*>(memory + kRows)};
  }
  __device__ __forceinline__ PanelTile<kDk, kPositions> K_end() const { return {at(kRows)}; }  ///< k~
  /// -T, rounded, and 32 columns further its rounding error.
  __device__ __forceinline__ Panel T() const { return {at(kT)}; }
  __device__ __forceinline__ Panel P() const { return {at(kP)}; }  ///< its first 32 columns
  /// Those of a walking warpgroup.
  __device__ __forceinline__ Panel values(int group) const { return {at(kV + group * int(Panel::kPanelBytes))}; }

 private:
  __device__ __forceinline__ __nv_bfloat16* at(int offset) const {
    return reinterpret_cast<__nv_bfloat16*>(memory + offset);
  }
};

/// A block's shared memory.
struct Memory {
  static constexpr int kDecays = kSlots * Slot::kBytes, kInverses = kDecays + kSlots * 2 * kDk * 4;
  static constexpr int kBytes = kInverses + kPreparing * kInverseBytes;
  static_assert(kBytes - kDecays >= (kBlockThreads / 32 + 1) * kDk * 4, "guess_warm_up()");

  unsigned char* memory;  ///< kBytes, aligned to 1024

  __device__ __forceinline__ Slot slot(int i) const { return {memory + i * Slot::kBytes}; }
  /// Of slot i: [kDk], exp(m) (half 0) and exp(b_end - m) (half 1).
  __device__ __forceinline__ float* decays(int i, int half) const {
    return reinterpret_cast<float*>(memory + kDecays) + (2 * i + half) * kDk;
  }
  /// Of a preparing warpgroup.
  __device__ __forceinline__ SplitBlocks blocks(int group) const {
    return {reinterpret_cast<__nv_bfloat16*>(memory + kInverses + group * kInverseBytes)};
  }
};

/// What the warpgroups of a block say to each other.
struct Barriers {
  /// Of chunk n in raw[n % kRaw]. A preparing warpgroup waits for every second chunk: as kRaw is even it has waited for
  /// all phases of its barriers, and the parity of one cannot be taken for that of another.
  static constexpr int kRaw = 2 * kSlots;
  Barrier raw[kRaw], full[kSlots], empty[kSlots];
  /// Of the chunk in a slot, from each warp that has prepared it: infinity if it has no anchor; else the warp's part of
  /// its bound, if it is in front of the segment. The sum counts.
  alignas(16) float bounds[kSlots][4];
  /// Of chunk n: whether it will not be loaded, because the walk has ended.
  bool is_end[kRaw];

  /// Called by one thread of the block.
  __device__ __forceinline__ void init() {
    for (int i = 0; i < kSlots; ++i) full[i].init(4), empty[i].init(kWalking);
    for (int i = 0; i < kRaw; ++i) raw[i].init(1), is_end[i] = false;
    fence_barrier_init();
  }
};

/// What a preparing warpgroup needs beside its slots.
struct PreparingMemory {
  float factors[kPositions];                            // of keys
  float of_K_plus[kPositions], of_K_minus[kPositions];  // lengths of rows
};

/// The tensors that bulk copies move.
struct HalfChunkMaps {
  TensorMap q, k, v, g, o;
};

/// What a block walks.
struct Walk {
  int b, h, first_column;
  int first, begin, end;             ///< positions: of the first chunk, of the first output, behind the last one
  int sequence_begin, sequence_end;  ///< positions of the whole sequence
  int state;                         ///< its entry among the states
  bool is_packed;                    ///< whether another sequence may follow

  __device__ __forceinline__ int chunks() const { return (end - first + kPositions - 1) / kPositions; }
  /// Those in front of a segment that starts from zeros.
  __device__ __forceinline__ int warm_up() const { return first > sequence_begin ? (begin - first) / kPositions : 0; }
  /// Of the rows that a copy loads for chunk n, those that are not another sequence's.
  __device__ __forceinline__ int rows(int n) const {
    return is_packed ? min(sequence_end - first - n * kPositions, kPositions) : kPositions;
  }
};

/// Starts to load chunk n. Called by one thread.
__device__ __forceinline__ void load_chunk(const Memory& memory, Barriers& barriers, const HalfChunkMaps& maps,
                                           const Walk& walk, int n) {
  const Slot slot = memory.slot(n % kSlots);
  Barrier& raw = barriers.raw[n % Barriers::kRaw];
  const TileOrigin origin{.position = walk.first + n * kPositions, .head = walk.h, .batch = walk.b};
  TileOrigin of_panel = origin;
  raw.arrive_expect(unsigned(Slot::kBytes));
  load_panels(slot.g(), maps.g, raw, origin);
#pragma unroll
  for (int panel = 0; panel < kDk / 64; ++panel, of_panel.column += 64) {
    auto* rows = slot.rows().data + panel * PanelTile<kDk>::kPanelElements;
    load_tile(maps.q, rows, raw, of_panel);
    load_tile(maps.k, rows + kPositions * 64, raw, of_panel);
  }
  of_panel.column = walk.first_column;
#pragma unroll
  for (int group = 0; group < kWalking; ++group, of_panel.column += 64) {
    load_tile(maps.v, slot.values(group).data, raw, of_panel);
  }
}

/// Makes rows from number `rows` on of k, g and V zeros. A warpgroup calls it, and waits behind it.
__device__ __forceinline__ void clear_rows(const Slot& slot, int rows) {
  constexpr int kRowBytes = 128, kPanel = kPositions * kRowBytes;
  const auto clear = [&](int offset) {
    auto* units = reinterpret_cast<uint4*>(slot.memory + offset);
    for (int i = rows * 8 + int(threadIdx.x) % kWarpgroup; i < kPositions * 8; i += kWarpgroup) {
      units[i] = make_uint4(0, 0, 0, 0);
    }
  };
  for (int panel = 0; panel < kDk / 64; ++panel) clear((2 * panel + 1) * kPanel);  // behind q
  for (int panel = 0; panel < kDk / 32; ++panel) clear(Slot::kRows + panel * kPanel);
  for (int panel = 0; panel < kDv / 64; ++panel) clear(Slot::kV + panel * kPanel);
}

/// f_t = 1 / sqrt(k_t . k_t + eps). A warpgroup computes them. @param factors [32]
__device__ __forceinline__ void find_factors(const Slot& slot, float* factors) {
  const int thread = int(threadIdx.x) % kWarpgroup, row = thread / 4;
  float squares = 0;
#pragma unroll
  for (int column = thread % 4 * 8; column < kDk; column += 32) {
    const uint4 k = *reinterpret_cast<const uint4*>(slot.rows().data + slot.rows().unit(kPositions + row, column));
    for (const std::uint32_t two : {k.x, k.y, k.z, k.w}) {
      const float2 x = unpack(two);
      squares += x.x * x.x + x.y * x.y;
    }
  }
  squares = warp_sum<4>(squares);
  if (thread % 4 == 0) factors[row] = rsqrtf(squares + kKeyEps);
}

/// Makes q', k' and k~ of q, k and g. A warpgroup calls it: each warp has 64 columns of one half of the positions.
/// @param decays_of decays_of(half), [kDk]
/// @param factors of keys, if they are to be normalised
/// @return whether no column of the warp forgets too much
template <bool kNormalize, class Decays>
__device__ __forceinline__ bool decay_rows(const Slot& slot, int warp, unsigned barrier, Decays decays_of,
                                           const float* factors) {
  constexpr int kRows = kNormalize ? 4 : 8;  // at a time
  const int lane = int(lane_index()), half = warp / 2, first = half * kHalf, column = warp % 2 * 64 + lane * 2;
  // From a multiple of 8 to the i-th row after it, the permutation of units of 16 bytes is one exclusive or.
  const float* g = slot.g().data + first * 32;
  const int place = slot.g().place(0, column);
  const auto gates = [&](int t) { return *reinterpret_cast<const float2*>(g + (place ^ t % 8 * 4) + t * 32); };
  float2 b[kHalf], sum{0, 0};  // the sum from the anchor to a position; of the half
  if (half == 0) {
#pragma unroll
    for (int t = kHalf - 1; t >= 0; --t) {
      b[t] = {-sum.x, -sum.y};
      add_gates(sum, gates(t));
    }
  } else {
#pragma unroll
    for (int t = 0; t < kHalf; ++t) {
      add_gates(sum, gates(t));
      b[t] = sum;
    }
  }
  wait_at_named_barrier(barrier, kWarpgroup);  // all warps have read g: k~ comes where it lies
  *reinterpret_cast<float2*>(decays_of(half) + column) = {ex2(sum.x), ex2(sum.y)};
  const int unit = column / 64 * PanelTile<kDk>::kPanelElements + SwizzledTile<64>::unit(first, column % 64 / 8 * 8);
  const int unit_of_end = unit - column / 64 * (PanelTile<kDk>::kPanelElements - Panel::kPanelElements);
  auto* queries = slot.rows().data + column % 8;
  auto* keys = queries + kPositions * 64;
  auto* ends = slot.K_end().data + column % 8;
  const auto two = [](__nv_bfloat16* data, int at, int t) {
    return reinterpret_cast<std::uint32_t*>(data + (at ^ t % 8 * 8) + t * 64);
  };
#pragma unroll
  for (int from = 0; from < kHalf; from += kRows) {
    std::uint32_t q[kRows], k[kRows];  // all loads before all stores: the compiler cannot know that they do not overlap
#pragma unroll
    for (int i = 0; i < kRows; ++i) q[i] = *two(queries, unit, from + i), k[i] = *two(keys, unit, from + i);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int t = from + i;
      const float2 to_row{ex2(b[t].x), ex2(b[t].y)}, to_anchor{ex2(-b[t].x), ex2(-b[t].y)};
      float2 of_k = unpack(k[i]);
      if constexpr (kNormalize) {
        const float factor = factors[first + t];
        of_k = {factor * of_k.x, factor * of_k.y};
      }
      store_for_copies(two(queries, unit, t), scaled(q[i], to_row));
      store_for_copies(two(keys, unit, t), pack(of_k.x * to_row.x, of_k.y * to_row.y));
      store_for_copies(two(ends, unit_of_end, t), pack(of_k.x * to_anchor.x, of_k.y * to_anchor.y));
    }
  }
  return __all_sync(kAllLanes, min(sum.x, sum.y) >= kLeast);
}

/// Stores two blocks of 16 x 16 side by side. One warp does it.
__device__ __forceinline__ void put_blocks(const Panel& tile, int row, int column, const std::uint32_t (&left)[4],
                                           const std::uint32_t (&right)[4]) {
  const int lane = int(lane_index()), unit = tile.unit(row + lane % 16, lane / 16 * 8);
  stmatrix(tile.data + tile.advance(unit, 0, column), left);
  stmatrix(tile.data + tile.advance(unit, 0, column + kBlock), right);
}

/// P, without scale, with zeros above the diagonal. A warp has 16 rows of it.
/// @param r 0 or 1, the row of blocks
__device__ __forceinline__ void put_scores(const Panel& P, BlockSums (&scores)[2], int r) {
  std::uint32_t blocks[2][4];
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    for_each_of_block(scores[c], [&](int t, int i, float& x) {
      if (c > r || (c == r && i > t)) x = 0;
    });
#pragma unroll
    for (int i = 0; i < 4; ++i) blocks[c][i] = pack(scores[c][i / 2][i % 2 * 2], scores[c][i / 2][i % 2 * 2 + 1]);
  }
  put_blocks(P, r * kBlock, 0, blocks[0], blocks[1]);
}

/// U = -T = -(I + diag(beta) N)^-1 diag(beta), in two bf16, as in warpgroup_inverse.cuh: two warps, each with a row of
/// blocks.
/// @param N the warp's row of K K^T with its decays, of which only what is below the diagonal is used
/// @param beta of the warp's positions, in lanes 0 to 15
/// @param barrier a named barrier of both warps
__device__ __forceinline__ void put_T(const Panel& T, const SplitBlocks& blocks, unsigned barrier, int r,
                                      const BlockSums (&N)[2], float beta) {
  const float2 of_rows{__shfl_sync(kAllLanes, beta, lane_index() / 4),
                       __shfl_sync(kAllLanes, beta, lane_index() / 4 + 8)};
  BlockSums diagonal;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    diagonal[i / 4][i % 4] = -(i % 4 / 2 ? of_rows.y : of_rows.x) * (r == 0 ? N[0][i / 4][i % 4] : N[1][i / 4][i % 4]);
  }
  put_inverse(blocks, r, diagonal, -__shfl_sync(kAllLanes, beta, int(lane_index()) % kBlock));
  wait_at_named_barrier(barrier, 2 * 32);
  // A loop over the columns of blocks would index registers by r.
  const SplitFragment<4> own = blocks.diagonal(r), none = {};
  if (r == 0) {
    put_blocks(T, 0, 0, own.high, none.high);
    put_blocks(T, 0, kPositions, own.low, none.low);
    return;
  }
  BlockSums W = {}, sums = {};  // U_10 = U_11 W_10, W_10 = N_10 U_00
  blocks.add_diagonal_product(W, as_fragment(N[0]), 0);
  blocks.put(1, 0, as_fragment(W));
  __syncwarp();
  blocks.add_product(sums, own, 1, 0);
  const SplitFragment<4> left = as_fragment(sums);
  put_blocks(T, kBlock, 0, left.high, own.high);
  put_blocks(T, kBlock, kPositions, left.low, own.low);
}

/// A warp's part of the bound of a chunk. A warpgroup calls it: a thread has a quarter of a row of k', k~ and T.
/// @param barrier a named barrier of the warpgroup's, which has put T
__device__ __forceinline__ float bound_of_chunk(const Slot& slot, const float* to_anchor, const float* to_end, int Dk,
                                                PreparingMemory& own, unsigned barrier) {
  const int thread = int(threadIdx.x) % kWarpgroup, row = thread / 4, quarter = thread % 4;
  const auto square = [](uint4 x, const float* factors) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 two = unpack(i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w);
      const float first = two.x * factors[2 * i], second = two.y * factors[2 * i + 1];
      sum += first * first + second * second;
    }
    return sum;
  };
  const auto unit_of = [](const auto& tile, int row, int column) {
    return *reinterpret_cast<const uint4*>(tile.data + tile.unit(row, column));
  };
  float plus = 0, minus = 0;
#pragma unroll 1
  for (int column = quarter * 8; column < kDk; column += 32) {
    plus += square(unit_of(slot.rows(), kPositions + row, column), to_anchor + column);
    minus += square(unit_of(slot.K_end(), row, column), to_end + column);
  }
  plus = warp_sum<4>(plus);
  minus = warp_sum<4>(minus);
  if (quarter == 0) own.of_K_plus[row] = sqrtf(plus), own.of_K_minus[row] = sqrtf(minus);
  wait_at_named_barrier(barrier, kWarpgroup);
  const uint4 T = unit_of(slot.T(), row, quarter * 8);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 two = unpack(i == 0 ? T.x : i == 1 ? T.y : i == 2 ? T.z : T.w);
    const float* lengths = own.of_K_plus + quarter * 8 + 2 * i;
    sum += fabsf(two.x) * lengths[0] + fabsf(two.y) * lengths[1];
  }
  // T is rounded here: by 2^-9 at most.
  const float decay = thread < Dk ? to_anchor[thread] * to_end[thread] : 0.0f;  // rows that do not exist have no gates
  return 1.01f * warp_sum(sum * own.of_K_minus[row]) + warp_max(decay);
}

/// A preparing warpgroup: every second chunk.
template <bool kNormalize>
__device__ __forceinline__ void prepare(const Bf16Arguments& a, const Memory& memory, Barriers& barriers,
                                        const Walk& walk, int group, PreparingMemory& own) {
  const int warp = __shfl_sync(kAllLanes, warp_in_group(), 0), lane = int(lane_index());
  const auto beta_of = [&](int n) {
    const int position = walk.first + n * kPositions + warp % 2 * kBlock + lane;
    return warp >= 2 && lane < kBlock && position < walk.end ? load_global(a.beta.row(walk.b, walk.h, position)) : 0.0f;
  };
  const unsigned barrier = kOfPreparing + unsigned(group);
  const int chunks = walk.chunks(), warm_up = walk.warm_up();
  float next_beta = beta_of(group);
  for (int n = group; n < chunks; n += kPreparing) {
    const int i = n % kSlots;
    const Slot slot = memory.slot(i);
    const float beta = next_beta;
    next_beta = beta_of(n + kPreparing);
    barriers.raw[n % Barriers::kRaw].wait(unsigned(n / Barriers::kRaw) % 2);
    if (barriers.is_end[n % Barriers::kRaw]) break;
    if (walk.rows(n) < kPositions) {
      clear_rows(slot, walk.rows(n));
      wait_at_named_barrier(barrier, kWarpgroup);
    }
    if (kNormalize) find_factors(slot, own.factors);
    const bool has_anchor = decay_rows<kNormalize>(
        slot, warp, barrier, [&](int half) { return memory.decays(i, half); }, own.factors);
    fence_async_proxy();
    wait_at_named_barrier(barrier, kWarpgroup);
    // The scores of q' and k' with k~, 64 x 32.
    BlockSums scores[2];
    auto& sums = reinterpret_cast<float(&)[kPositions / 2]>(scores);
    const auto rows = k_along_rows(slot.rows());
    const auto keys = k_along_rows(slot.K_end());
    wgmma_fence(sums);
#pragma unroll
    for (int d = 0; d < kDk; d += 16) wgmma<kPositions>(sums, rows.along_k(d), keys.along_k(d), d > 0);
    wgmma_commit();
    wgmma_wait<0>(sums);
    if (warp < 2) {
      put_scores(slot.P(), scores, warp);
    } else {
      put_T(slot.T(), memory.blocks(group), kOfInverse + unsigned(group), warp - 2, scores, beta);
    }
    float bound = 0;
    if (n < warm_up) bound = bound_of_chunk(slot, memory.decays(i, 0), memory.decays(i, 1), a.Dk, own, barrier);
    fence_async_proxy();
    __syncwarp();
    if (lane == 0) {
      barriers.bounds[i][warp] = has_anchor ? bound : INFINITY;
      barriers.full[i].arrive();
    }
  }
}

/// A walking warpgroup.
/// @return whether it has come to the end
__device__ __forceinline__ bool walk_columns(const Bf16Arguments& a, const Memory& memory, Barriers& barriers,
                                             const HalfChunkMaps& maps, const Walk& walk, int group) {
  // One thread stores, and one of another warp of the first warpgroup loads.
  const bool is_first = threadIdx.x % kWarpgroup == 0, loads = group == 0 && threadIdx.x % kWarpgroup == 32;
  const int chunks = walk.chunks(), warm_up = walk.warm_up();
  const int first_column = walk.first_column + group * kWarpgroupColumns;
  const int unit = first_unit_of_columns();
  if (loads) {
    for (int n = 0; n < min(chunks, kSlots); ++n) load_chunk(memory, barriers, maps, walk, n);
  }
  WarpgroupState<kDk> S;
  const bool has_start = walk.first == walk.sequence_begin && a.initial_state.data != nullptr;
  load_group_state<kDk>(S, has_start ? a.initial_state.row(walk.state, walk.h, 0) + first_column : nullptr,
                        a.initial_state.stride_l, a.Dk, a.Dv - first_column);
  RoundedState<kDk> s;
  WarpgroupOutput D;                    // of q' S', then of k' S'
  float x[kPositions / 2];              // v_new; then P v_new
  std::uint32_t factor[2][4], o[2][4];  // Res, then v_new; and outputs

  // Chunk n has been walked: its outputs leave.
  const auto finish = [&](int n) {
    const int position = walk.first + n * kPositions;
    const bool has_outputs = position >= walk.begin;
    const Panel tile = memory.slot(n % kSlots).values(group);
    if (has_outputs) {
#pragma unroll
      for (int t = 0; t < kPositions; t += 16) stmatrix<true>(tile.data + tile.advance(unit, t, 0), o[t / 16]);
    }
    fence_async_proxy();
    wait_at_named_barrier(kOfWalking + unsigned(group), kWarpgroup);
    if (walk.rows(n) < kPositions) {
      for (int i = int(threadIdx.x) % kWarpgroup; i < walk.rows(n) * 8; i += kWarpgroup) {
        const int row = i / 8, column = i % 8 * 8;
        if (first_column + column >= a.Dv) continue;
        store_global(reinterpret_cast<uint4*>(a.o.row(walk.b, walk.h, position + row) + first_column + column),
                     *reinterpret_cast<const uint4*>(tile.data + tile.unit(row, column)));
      }
      return;
    }
    if (!is_first) return;
    if (has_outputs && first_column < a.Dv) {
      store_tile(maps.o, tile.data, {.column = first_column, .position = position, .head = walk.h, .batch = walk.b});
    }
    commit_stores();
  };

  // Chunks from n on will not be walked. Those that are under way are prepared, and behind them both preparing warpgroups
  // find an end.
  const auto stop = [&](int n) {
    if (is_first) wait_stores_read<0>();
    const int loaded = max(n - 2 + kSlots, kSlots);
    for (int m = loaded; m < min(loaded + kPreparing, chunks) && loads; ++m) {
      barriers.is_end[m % Barriers::kRaw] = true;
      barriers.raw[m % Barriers::kRaw].arrive();
    }
  };

  float left = 1;  // of the state before the walk, at most
  for (int n = 0; n < chunks; ++n) {
    const int i = n % kSlots;
    const Slot slot = memory.slot(i);
    barriers.raw[n % Barriers::kRaw].wait(unsigned(n / Barriers::kRaw) % 2);  // for V
    barriers.full[i].wait(unsigned(n / kSlots) % 2);
    const float4 bounds = *reinterpret_cast<const float4*>(barriers.bounds[i]);
    const float bound = bounds.x + bounds.y + bounds.z + bounds.w;
    if (n < warm_up) left *= bound;
    if (bound == INFINITY || (n + 1 == warm_up && !(left <= ex2(kForgotten)))) {
      stop(n);
      return false;
    }
    decay_columns(S, memory.decays(i, 0));
    round_state<kDk>(s, S);
    wgmma_fence(D, s);
    start_output_from_state<kDk>(D, s, slot.rows());
    wgmma_commit();
    if (loads && n >= 2 && n - 2 + kSlots < chunks) {
      barriers.empty[(n - 2) % kSlots].wait(unsigned((n - 2) / kSlots) % 2);
      load_chunk(memory, barriers, maps, walk, n - 2 + kSlots);
    }
    if (n > 0) finish(n - 1);
    wgmma_wait<0>(D);
    // -Res = k' S' - V.
    const Panel V = slot.values(group);
#pragma unroll
    for (int t = 0; t < kPositions; t += 16) {
      std::uint32_t v[4];
      ldmatrix_x4_trans(v, V.data + V.advance(unit, t, 0));
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float2 two = unpack(v[j]);
        const float* residual = D + (kPositions + t) / 2 + 2 * j;
        factor[t / 16][j] = pack(residual[0] - two.x, residual[1] - two.y);
      }
    }
    __syncwarp();  // all lanes have read V: outputs will lie there
    const auto T = k_along_rows(slot.T()), P = k_along_rows(slot.P());
    const auto K = k_from_row_to_row(slot.K_end());
    wgmma_fence(x, factor);
#pragma unroll
    for (int j = 0; j < 4; ++j) wgmma<kPositions>(x, factor[j % 2], T.along_k(j * 16), j > 0);
    wgmma_commit();
    wgmma_wait<0>(x);
#pragma unroll
    for (int t = 0; t < kPositions; t += 16) wgmma_fragment(factor[t / 16], x, t);
    wgmma_fence(S, x, factor);
#pragma unroll
    for (int j = 0; j < 2; ++j) wgmma<kDk>(S, factor[j], K.along_k(j * 16), true);
#pragma unroll
    for (int j = 0; j < 2; ++j) wgmma<kPositions>(x, factor[j], P.along_k(j * 16), j > 0);
    wgmma_commit();
    wgmma_wait<0>(S, x);
    if (is_first && n > 0) {  // the slot of the chunk before is free
      wait_stores_read<0>();
      barriers.empty[(n - 1) % kSlots].arrive();
    }
    decay_columns(S, memory.decays(i, 1));
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      o[j / 4][j % 4] = pack(a.scale * (D[2 * j] + x[2 * j]), a.scale * (D[2 * j + 1] + x[2 * j + 1]));
    }
  }
  finish(chunks - 1);
  if (is_first) wait_stores_read<0>();
  if (walk.end == walk.sequence_end && a.final_state.data) {
    store_group_state<kDk>(a.final_state.row(walk.state, walk.h, 0) + first_column, S, a.final_state.stride_l, a.Dk,
                           a.Dv - first_column);
  }
  return true;
}

/// How many chunks before a segment may be enough; more than kMostWarmUp if they are too few. The bound of a chunk is
/// about 2^5.5 times the decay of 32 positions, averaged over channels, with gates of logsigmoid(x) / 4 as with
/// exp(-5 sigmoid(x)), but for 4 bits or so. All threads of the block call, and get the same answer.
/// @param scratch 17 rows of [kDk] in shared memory
__device__ __forceinline__ int guess_warm_up(const Bf16Arguments& a, int b, int h, int begin, float* scratch) {
  constexpr float kBitsOfBound = 5.5f, kNeeded = 4.5f - kForgotten;
  const int warp = int(threadIdx.x) / 32, lane = int(lane_index()), thread = int(threadIdx.x);
  float4 sum{-INFINITY, -INFINITY, -INFINITY, -INFINITY};
  if (lane * 4 < a.Dk) {
    const int t = begin - kPositions + warp * 2;
    const float4 x = load_global(reinterpret_cast<const float4*>(a.g.row(b, h, t) + lane * 4));
    const float4 y = load_global(reinterpret_cast<const float4*>(a.g.row(b, h, t + 1) + lane * 4));
    sum = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
  }
  reinterpret_cast<float4*>(scratch)[thread] = sum;
  __syncthreads();
  float* of_warps = scratch + kBlockThreads / 32 * kDk;
  if (thread < kDk) {
    float of_channel = 0;
#pragma unroll
    for (int i = 0; i < kBlockThreads / 32; ++i) of_channel += scratch[i * kDk + thread];
    const float decays = warp_sum(ex2(base2(of_channel)));
    if (lane == 0) of_warps[warp] = decays;
  }
  __syncthreads();
  const float decay = (of_warps[0] + of_warps[1] + of_warps[2] + of_warps[3]) / float(a.Dk);
  const float bits = -log2f(decay) - kBitsOfBound;
  return bits * kMostWarmUp < kNeeded ? kMostWarmUp + 1 : int(ceilf(kNeeded / bits));
}

/// Equally long segments of batch entries. Grid (tiles of 128 columns of Dv of all segments, H, B).
struct BatchSegments {
  WalkedHeads heads;
  int length;  ///< positions of a segment

  /// The block's segment.
  __device__ __forceinline__ Walk of_block(const Bf16Arguments& a) const {
    const int b = int(blockIdx.z), h = int(blockIdx.y), tiles = int(gridDim.x) / heads.segments;
    const int begin = int(blockIdx.x) / tiles * length, column = int(blockIdx.x) % tiles * kDv;
    return {b, h, column, begin, begin, min(begin + length, a.L), 0, a.L, b, false};
  }
  /// Whether the sequence has more of them.
  __device__ __forceinline__ bool is_cut(const Walk&) const { return heads.segments > 1; }
  /// Says whether it has been walked. One thread calls.
  __device__ __forceinline__ void report(const Bf16Arguments& a, const Walk& walk, bool is_walked) const {
    const int segment = int(blockIdx.x) / (int(gridDim.x) / heads.segments);
    if (walk.first_column > 0) return;
    store_global(heads.walked + (std::int64_t(walk.b) * a.H + walk.h) * heads.segments + segment, int(is_walked));
  }
};

/// Those of packed sequences, the longest ones first. Grid (tiles of 128 columns of Dv, H, B times the list's entries).
struct PackedSegments {
  const int4* list;                ///< of list_segments()
  const std::int32_t* cu_seqlens;  ///< [N + 1]
  int* left;                       ///< [N, B, H]: whether a head is another kernel's; 0 before this one
  int length;

  __device__ __forceinline__ Walk of_block(const Bf16Arguments& a) const {
    const int b = int(blockIdx.z) % a.B;
    const int4 segment = load_global(list + int(blockIdx.z) / a.B);
    const std::int32_t* sequence = cu_seqlens + max(segment.x, 0);  // the list may have entries without one
    return {b,
            int(blockIdx.y),
            int(blockIdx.x) * kDv,
            segment.y,
            segment.y,
            segment.z,
            load_global(sequence),
            load_global(sequence + 1),
            segment.x < 0 ? -1 : segment.x * a.B + b,
            true};
  }
  __device__ __forceinline__ bool is_cut(const Walk& walk) const {
    return walk.sequence_end - walk.sequence_begin > length;
  }
  __device__ __forceinline__ void report(const Bf16Arguments& a, const Walk& walk, bool is_walked) const {
    if (!is_walked) atomicAdd(left + std::int64_t(walk.state) * a.H + walk.h, 1);  // other segments may, too
  }
};

/// @tparam Segments of which the block walks one
template <bool kNormalize, class Segments>
__global__ void __launch_bounds__(kBlockThreads, 1)
    middle_anchor_kernel(Bf16Arguments a, const __grid_constant__ HalfChunkMaps maps, Segments segments) {
  __shared__ Barriers barriers;
  __shared__ PreparingMemory of_preparing[kPreparing];
  const Memory memory{dynamic_shared<unsigned char, kTileAlignment>()};
  Walk walk = segments.of_block(a);
  if (walk.is_packed && walk.begin == walk.end) {
    if (walk.state >= 0) hand_state_on(a, walk.state, walk.h, walk.first_column, kDv);
    return;
  }
  let_next_kernel_start();
  int warm_up = 0;
  // The first segment asks for the second one: where that may not start, the head is another kernel's.
  if (segments.is_cut(walk)) {
    const int begin = max(walk.begin, walk.sequence_begin + segments.length);
    warm_up = guess_warm_up(a, walk.b, walk.h, begin, memory.decays(0, 0));
  }
  if (threadIdx.x == 0) barriers.init();
  __syncthreads();
  if (walk.begin > walk.sequence_begin) walk.first = max(walk.begin - warm_up * kPositions, walk.sequence_begin);
  const int group = int(threadIdx.x) / kWarpgroup;
  bool is_walked = false;
  if (warm_up <= kMostWarmUp) {
    if (group < kPreparing) {
      decrease_registers<96>();
      prepare<kNormalize>(a, memory, barriers, walk, group, of_preparing[group]);
    } else {
      increase_registers<160>();
      is_walked = walk_columns(a, memory, barriers, maps, walk, group - kPreparing);
    }
  }
  if (threadIdx.x == kPreparing * kWarpgroup) segments.report(a, walk, is_walked);
}

template <class Segments>
void start_middle_anchor(const Bf16Arguments& a, const Segments& segments, dim3 grid) {
  const TensorSizes keys = tensor_sizes(a, a.Dk), values = tensor_sizes(a, a.Dv);
  const HalfChunkMaps maps{tile_map(a.q, keys, kPositions), tile_map(a.k, keys, kPositions),
                           tile_map(a.v, values, kPositions), float_tile_map(a.g, keys, kPositions),
                           tile_map(a.o, values, kPositions)};
  launch(a.normalize_keys ? middle_anchor_kernel<true, Segments> : middle_anchor_kernel<false, Segments>,
         {grid, unsigned(kBlockThreads), std::size_t(Memory::kBytes)}, a, maps, segments);
}

}  // namespace

LaunchPlan one_wave_of_blocks(const Bf16Arguments& a) {
  const std::int64_t blocks = std::int64_t(a.B) * a.H * ceil_div(a.Dv, kDv);
  return make_launch_plan(a.L, kWarpgroupColumns, int(std::max<std::int64_t>(multiprocessor_count() / blocks, 1)));
}

LaunchPlan plan_of_past(const Bf16Arguments& a) {
  constexpr int kFewSegments = 3, kShort = 4096;
  const LaunchPlan plan = shortest_segments(a);
  return plan.segments > kFewSegments && a.L >= kShort ? plan : make_launch_plan(a.L, kWarpgroupColumns, 1);
}

void middle_anchor(const Bf16Arguments& a, const LaunchPlan& plan) {
  const std::int64_t count = std::int64_t(a.B) * a.H * plan.segments;
  const WalkedHeads heads{workspace<int>("kda: walked segments", std::size_t(count)), plan.segments};
  start_middle_anchor(a, BatchSegments{heads, plan.length},
                      dim3(unsigned(ceil_div(a.Dv, kDv) * plan.segments), unsigned(a.H), unsigned(a.B)));
  end_part("one kernel");
  if (plan.segments > 1) return segments(a, plan_of_past(a), heads);
  cluster_behind(a, heads);
  end_part("without an anchor");
}

void middle_anchor(const Bf16Arguments& a) {
  middle_anchor(a, one_wave_of_blocks(a));
}

void middle_anchor_packed(const PackedBf16Arguments& p, const PackedPlan& plan) {
  const Bf16Arguments& a = p.all;
  int* left = none_left(p);
  const PackedSegments segments{list_segments(p.cu_seqlens, plan), p.cu_seqlens, left, plan.length};
  start_middle_anchor(a, segments, dim3(unsigned(ceil_div(a.Dv, kDv)), unsigned(a.H), unsigned(plan.entries() * a.B)));
  end_part("one kernel");
  cluster_behind(p, left);
  end_part("without an anchor");
}

}  // namespace tutorial::kda
