/// @file
/// Stage 3, `scan_affine`: the delta rule as a scan of maps whose factor is a matrix.
///
/// Idea: a step is S -> A_t S + b_t, and composition asks for no more than associativity: (A_2, b_2) after (A_1, b_1) =
/// (A_2 A_1, A_2 b_1 + b_2), in this order. So runs of 32 steps, the leaves, become maps all at once, a tree of matrix
/// products finds the state before each leaf, and all leaves are walked at once.
/// Mends: chapter 05 takes chunks in line; here nothing waits for more than 2 log2(L / 32) products. Same: the
/// recurrence, in fp32.
///
///   A_t = I - beta_t k_t^T k_t [Dk, Dk],  b_t = beta_t k_t^T v_t [Dk, Dv]
///   leaf:   [A | b] = [A | b] + beta_t k_t^T ([0 | v_t] - k_t [A | b])      leaves_kernel, from [I | 0]
///   up:     [A | b] of a run = A_2 [A_1 | b_1] + [0 | b_2]                  compose_kernel, a launch a level
///   down:   S before the right half = A_1 S + b_1                           apply_kernel, a launch a level
///   leaf:   delta = beta_t (v_t - k_t S),  S = S + k_t^T delta,  o_t = scale q_t S       outputs_kernel
///
/// The first line is the delta rule itself, on a state of Dk + Dv columns whose first Dk have nothing to write: columns
/// never meet. The first leaf starts from [. | S_0], so the map of a run from there is a state and has no A.
///
/// Shapes: q, k [B, H, L, Dk]; v, o [B, H, L, Dv]; beta [B, H, L]; S_0 and final_state [B, H, Dk, Dv]; maps [B, H, N -
/// 1, Dk, Dk + Dv] and states before leaves [B, H, N - 1, Dk, Dv] of N = ceil(L / 32) leaves; all fp32 in device
/// memory. leaves.hpp says which map and which state lies where; a level is in place.
/// Who does what: leaves: block (32 columns of A or b, leaf, head) has 128 threads and the columns in registers
/// (state_tile.cuh), 32 steps of k and v in shared memory. Up: block (64 rows, pair, head) has 256 threads and its rows
/// of A_2 in shared memory, which it will overwrite: nobody else reads these rows. It walks over tiles of 64 columns of
/// [A_1 | b_1], a thread has 4 x 4 sums (float_tile.cuh of chapter 02). Down: likewise, a block for each 64 columns of
/// S.
/// Resources at Dk = 128: 32 registers of state, 36 KB of shared memory in the walk; 51 KB in products.
/// Work, a multiply-add counting as two: 4 Dk (Dk + Dv) a step for the leaves, 6 Dk Dv for the walk; 2 Dk^2 (Dk + Dv) a
/// pair on the way up, 2 Dk^2 Dv on the way down. The tree has less than L / 32 of each. Bytes that
/// kernels ask for: 41 KB a step at Dk = Dv = 128 and L = 2048, mostly maps and states, 20 times q, k, v and o.
/// Memory: 4 Dk (Dk + 2 Dv) bytes a leaf: 6 KB a step at Dk = Dv = 128, where q, k, v and o are 2 KB.
/// Limit: the fp32 units. Needs: Dk <= 256, keys as in chapter 05.
/// Weakness: a composition does not care that A is the identity minus 32 outer products. Chapter 05's WY form does.
/// Source: Blelloch, CMU-CS-90-190, sections 1.3 and 1.4; Yang et al., arXiv 2406.06484.

#include <cuda_runtime.h>

#include <climits>

#include "02_chunkwise/float_tile.cuh"
#include "06_scan/delta_rule.hpp"
#include "06_scan/delta_rule/leaves.hpp"
#include "06_scan/memory_limits.hpp"
#include "06_scan/state_tile.cuh"
#include "common/device/cp_async.cuh"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::scan {
namespace {

using delta_rule::FloatArguments;
using linear_attention::kTileRows;
using linear_attention::kTileThreads;
using Tile = linear_attention::FloatTile<64>;

constexpr int kProductColumns = 64;
constexpr const char* kTag = "delta_rule: maps and states";

constexpr int divided_up(int count, int by) {
  return (count - 1) / by + 1;
}

/// Maps [A | b] and states before leaves, of N leaves a head.
struct Tree {
  float *maps, *states;
  int N, Dk, Dv;

  /// [Dk, Dk + Dv]: a run's, with the run's last leaf.
  __device__ float* map(int head, int leaf) const {
    return maps + (std::int64_t(head) * (N - 1) + leaf) * Dk * (Dk + Dv);
  }
  /// [Dk, Dv]: the state before a leaf > 0.
  __device__ float* before(int head, int leaf) const {
    return states + (std::int64_t(head) * (N - 1) + leaf - 1) * Dk * Dv;
  }
};

/// A leaf's steps in shared memory.
template <int kDk>
struct Steps {
  float *k, *v, *beta, *q;

  static constexpr int kFloats = kLeaf * (kDk + kStateColumns + 1);

  __device__ Steps() : k(dynamic_shared<float>()), v(k + kLeaf * kDk), beta(v + kLeaf * kStateColumns) {
    q = beta + kLeaf;
  }

  /// delta = beta (v - k S), S = S + k^T delta.
  /// @param has_values false: v = 0
  __device__ __forceinline__ void take(int step, StateTile<kDk>& S, bool has_values) const {
    float parts[4], read[4], delta[4];
    S.read(k + step * kDk, parts);
    sum_for_all(parts, read);
    const float4 four_v = has_values ? four(v, step * kStateColumns + first_column()) : float4{};
    const float values[4] = {four_v.x, four_v.y, four_v.z, four_v.w};
#pragma unroll
    for (int c = 0; c < 4; ++c) delta[c] = beta[step] * (values[c] - read[c]);
    S.add(k + step * kDk, delta);
  }
};

/// Starts copies of keys and beta. Past the end both are zero.
template <int kDk, bool kVector>
__device__ __forceinline__ void load_keys(const Steps<kDk>& steps, const FloatArguments& a, int b, int h, int t,
                                          int rows) {
  load_rows_async<kVector, kLeaf, kDk>(steps.k, a.k.row(b, h, t), a.k.stride_l, rows, a.Dk);
  const int i = int(threadIdx.x);
  if (i < kLeaf) cp_async<4>(&steps.beta[i], a.beta.row(b, h, t + min(i, rows - 1)), i < rows);
}

template <int kDk>
__device__ __forceinline__ void load_state(StateTile<kDk>& S, const float* from, std::int64_t stride, int Dk,
                                           int columns) {
  S.each(Dk, columns, [&](int d, int c, float& element) { element = load_global(&from[d * stride + c]); });
}

template <int kDk>
__device__ __forceinline__ void store_state(StateTile<kDk>& S, float* to, std::int64_t stride, int Dk, int columns) {
  S.each(Dk, columns, [&](int d, int c, float& element) { store_global(&to[d * stride + c], element); });
}

/// Grid (tiles of A, then of b) (leaves but the last) (heads).
template <int kDk, bool kVector>
__global__ void __launch_bounds__(kStateThreads, 4) leaves_kernel(FloatArguments a, Tree tree) {
  const int key_tiles = (a.Dk - 1) / kStateColumns + 1, tiles = key_tiles + (a.Dv - 1) / kStateColumns + 1;
  const int tile = int(blockIdx.x) % tiles, leaf = int(blockIdx.x) / tiles % (tree.N - 1);
  const int head = int(blockIdx.x) / tiles / (tree.N - 1), b = head / a.H, h = head % a.H, t = leaf * kLeaf;
  const bool is_b = tile >= key_tiles;
  const int j = (is_b ? tile - key_tiles : tile) * kStateColumns, columns = (is_b ? a.Dv : a.Dk) - j;
  if (leaf == 0 && !is_b) return;  // nothing comes before it

  const Steps<kDk> steps;
  load_keys<kDk, kVector>(steps, a, b, h, t, kLeaf);
  if (is_b) {
    load_rows_async<kVector, kLeaf, kStateColumns>(steps.v, a.v.row(b, h, t) + j, a.v.stride_l, kLeaf, columns);
  }
  cp_async_commit();
  StateTile<kDk> S;
  S.clear();
  if (!is_b) {
    S.each(a.Dk, columns, [&](int d, int c, float& element) { element = d == j + c ? 1.0f : 0.0f; });
  } else if (leaf == 0 && a.initial_state.data) {
    load_state(S, a.initial_state.row(b, h, 0) + j, a.initial_state.stride_l, a.Dk, columns);
  }
  cp_async_wait<0>();
  __syncthreads();
#pragma unroll 1
  for (int step = 0; step < kLeaf; ++step) steps.take(step, S, is_b);
  store_state(S, tree.map(head, leaf) + (is_b ? a.Dk : 0) + j, a.Dk + a.Dv, a.Dk, columns);
}

/// Grid (tiles of the columns) (leaves) (heads).
template <int kDk, bool kVector>
__global__ void __launch_bounds__(kStateThreads, 4) outputs_kernel(FloatArguments a, Tree tree) {
  const int tiles = (a.Dv - 1) / kStateColumns + 1, leaf = int(blockIdx.x) / tiles % tree.N;
  const int head = int(blockIdx.x) / tiles / tree.N, b = head / a.H, h = head % a.H, t = leaf * kLeaf;
  const int j = int(blockIdx.x) % tiles * kStateColumns, columns = a.Dv - j, rows = min(kLeaf, a.L - t);

  const Steps<kDk> steps;
  load_keys<kDk, kVector>(steps, a, b, h, t, rows);
  load_rows_async<kVector, kLeaf, kStateColumns>(steps.v, a.v.row(b, h, t) + j, a.v.stride_l, rows, columns);
  load_rows_async<kVector, kLeaf, kDk>(steps.q, a.q.row(b, h, t), a.q.stride_l, rows, a.Dk);
  cp_async_commit();
  StateTile<kDk> S;
  S.clear();
  if (leaf > 0) {
    load_state(S, tree.before(head, leaf) + j, a.Dv, a.Dk, columns);
  } else if (a.initial_state.data) {
    load_state(S, a.initial_state.row(b, h, 0) + j, a.initial_state.stride_l, a.Dk, columns);
  }
  cp_async_wait<0>();
  __syncthreads();
#pragma unroll 1
  for (int step = 0; step < rows; ++step) {
    float o[4];
    steps.take(step, S, true);
    S.read(steps.q + step * kDk, o);
    store_output(a.o.row(b, h, t + step) + j, o, a.scale, columns);
  }
  if (leaf == tree.N - 1 && a.final_state.data) {
    store_state(S, a.final_state.row(b, h, 0) + j, a.final_state.stride_l, a.Dk, columns);
  }
}

/// Rows of A, slices of 64 columns, and a tile of what it is multiplied with.
struct Strip {
  float* memory;

  __device__ Tile A(int slice) const { return {memory + (slice + 1) * Tile::kElements}; }
  __device__ Tile X() const { return {memory}; }
  static std::size_t bytes(int Dk) { return std::size_t(divided_up(Dk, 64) + 1) * Tile::kElements * sizeof(float); }
};

/// A X, 64 columns of X from memory.
/// @param columns that X has there
__device__ __forceinline__ void multiply(float (&sums)[4][4], const Strip& strip, const float* X, std::int64_t stride,
                                         int Dk, int columns) {
  for (int d = 0; d < Dk; d += kTileRows) {
    load_tile(strip.X(), X + d * stride, stride, Dk - d, columns);
    __syncthreads();
    linear_attention::add_product<false>(sums, strip.A(d / kTileRows), strip.X());
    __syncthreads();
  }
}

/// Calls f(row, column, sum) for those of this thread's sums that there are.
template <class F>
__device__ __forceinline__ void each_sum(const float (&sums)[4][4], int rows, int columns, F f) {
#pragma unroll
  for (int r = 0; r < 4; ++r) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int row = linear_attention::tile_y() + 16 * r, column = linear_attention::tile_x() * 4 + c;
      if (row < rows && column < columns) f(row, column, sums[r][c]);
    }
  }
}

/// Grid (strips) (pairs) (heads).
/// @param s leaves of a half
__global__ void __launch_bounds__(kTileThreads, 2) compose_kernel(Tree tree, int s, int pairs) {
  const int strips = (tree.Dk - 1) / kTileRows + 1, d = int(blockIdx.x) % strips * kTileRows;
  const int f = int(blockIdx.x) / strips % pairs * 2 * s, head = int(blockIdx.x) / strips / pairs;
  const int Dk = tree.Dk, rows = Dk - d, width = Dk + tree.Dv;
  const float* first = tree.map(head, f + s - 1);
  float* second = tree.map(head, f + 2 * s - 1) + std::int64_t(d) * width;  // these rows

  // Ordinary reads here and below: what is read is overwritten at the end.
  const Strip strip{dynamic_shared<float>()};
  for (int slice = 0; slice * kTileRows < Dk; ++slice) {
    const int column = int(threadIdx.x) % kTileRows, at = slice * kTileRows + column;
#pragma unroll 4
    for (int row = int(threadIdx.x) / kTileRows; row < kTileRows; row += kTileThreads / kTileRows) {
      *strip.A(slice).at(row, column) = row < rows && at < Dk ? second[std::int64_t(row) * width + at] : 0.0f;
    }
  }
  for (int j = f == 0 ? Dk : 0; j < width; j += kProductColumns) {
    float sums[4][4] = {};
    multiply(sums, strip, first + j, width, Dk, width - j);
    each_sum(sums, rows, width - j, [&](int row, int column, float sum) {
      float& to = second[std::int64_t(row) * width + j + column];
      store_global(&to, j + column < Dk ? sum : sum + to);
    });
  }
}

/// Grid (tiles of the columns) (strips) (states) (heads).
/// @param s leaves of the run that is applied
__global__ void __launch_bounds__(kTileThreads, 2) apply_kernel(Tree tree, int s, int count) {
  const int strips = (tree.Dk - 1) / kTileRows + 1, tiles = (tree.Dv - 1) / kProductColumns + 1;
  const int j = int(blockIdx.x) % tiles * kProductColumns, d = int(blockIdx.x) / tiles % strips * kTileRows;
  const int f = int(blockIdx.x) / tiles / strips % count * 2 * s, head = int(blockIdx.x) / tiles / strips / count;
  const int Dk = tree.Dk, width = Dk + tree.Dv, columns = tree.Dv - j;
  const float* map = tree.map(head, f + s - 1) + std::int64_t(d) * width;  // these rows
  float* after = tree.before(head, f + s) + std::int64_t(d) * tree.Dv + j;

  float sums[4][4] = {};
  if (f > 0) {
    const Strip strip{dynamic_shared<float>()};
    for (int slice = 0; slice * kTileRows < Dk; ++slice) {
      load_tile(strip.A(slice), map + slice * kTileRows, width, Dk - d, Dk - slice * kTileRows);
    }
    multiply(sums, strip, tree.before(head, f) + j, tree.Dv, Dk, columns);
  }
  each_sum(sums, Dk - d, columns, [&](int row, int column, float sum) {
    const float b = load_global(&map[std::int64_t(row) * width + Dk + j + column]);
    store_global(&after[std::int64_t(row) * tree.Dv + column], sum + b);
  });
}

template <int kDk>
void launch_leaves(const FloatArguments& a, const Tree& tree, std::int64_t heads, bool is_vector) {
  const int tiles = divided_up(a.Dk, kStateColumns) + divided_up(a.Dv, kStateColumns);
  launch(is_vector ? leaves_kernel<kDk, true> : leaves_kernel<kDk, false>,
         {unsigned(heads * (tree.N - 1) * tiles), kStateThreads, Steps<kDk>::kFloats * sizeof(float)}, a, tree);
}

template <int kDk>
void launch_outputs(const FloatArguments& a, const Tree& tree, std::int64_t heads, bool is_vector) {
  const std::size_t bytes = (Steps<kDk>::kFloats + kLeaf * kDk) * sizeof(float);
  launch(is_vector ? outputs_kernel<kDk, true> : outputs_kernel<kDk, false>,
         {unsigned(heads * tree.N * divided_up(a.Dv, kStateColumns)), kStateThreads, bytes}, a, tree);
}

/// Floats of the maps, or of the states, of all heads.
std::int64_t floats(const FloatArguments& a, int columns) {
  return std::int64_t(a.B) * a.H * (leaf_count(a.L) - 1) * a.Dk * columns;
}

template <int kDk>
void run(const FloatArguments& a) {
  Tree tree{nullptr, nullptr, leaf_count(a.L), a.Dk, a.Dv};
  const std::int64_t heads = std::int64_t(a.B) * a.H;
  const bool is_vector = has_vector_rows(a.q, a.Dk) && has_vector_rows(a.k, a.Dk) && has_vector_rows(a.v, a.Dv);
  const std::int64_t strips = divided_up(a.Dk, kTileRows), tiles = divided_up(a.Dv, kProductColumns);
  const int longest = longest_run(tree.N);
  if (longest > 0) {
    const std::int64_t maps = floats(a, a.Dk + a.Dv);
    tree.maps = workspace<float>(kTag, std::size_t(maps + floats(a, a.Dv)));
    tree.states = tree.maps + maps;
    launch_leaves<kDk>(a, tree, heads, is_vector);
  }
  for (int s = 1; s < longest; s *= 2) {
    const int pairs = pairs_going_up(tree.N, s);
    launch(compose_kernel, {unsigned(heads * pairs * strips), kTileThreads, Strip::bytes(a.Dk)}, tree, s, pairs);
  }
  for (int s = longest; s > 0; s /= 2) {
    const int count = states_going_down(tree.N, s);
    launch(apply_kernel, {unsigned(heads * count * strips * tiles), kTileThreads, Strip::bytes(a.Dk)}, tree, s, count);
  }
  launch_outputs<kDk>(a, tree, heads, is_vector);
}

}  // namespace

void scan_affine(const FloatArguments& a) {
  a.Dk <= 64 ? run<64>(a) : a.Dk <= 128 ? run<128>(a) : run<256>(a);
}

std::string scan_affine_limits(const FloatArguments& a) {
  if (a.normalize_keys) return "keys that it would have to normalise";
  if (a.Dk > kMaxKeyDim) return "Dk > 256: the state's columns would not fit into the registers of 16 threads";
  const std::int64_t tiles = divided_up(a.Dk, kStateColumns) + divided_up(a.Dv, kStateColumns);
  if (std::int64_t(a.B) * a.H * leaf_count(a.L) > INT_MAX / tiles) return "more than 2^31 - 1 blocks: the grid";
  if (a.L > INT_MAX - kLeaf) return "L > 2^31 - 33: positions are counted in int";
  return memory_limits(kTag, scan_affine_memory(a));
}

std::int64_t scan_affine_memory(const FloatArguments& a) {
  return std::int64_t(sizeof(float)) * (floats(a, a.Dk + a.Dv) + floats(a, a.Dv));
}

std::int64_t scan_affine_moved(const FloatArguments& a) {
  const std::int64_t heads = std::int64_t(a.B) * a.H, A = std::int64_t(a.Dk) * a.Dk, b = std::int64_t(a.Dk) * a.Dv;
  const std::int64_t key_tiles = divided_up(a.Dk, kStateColumns), value_tiles = divided_up(a.Dv, kStateColumns);
  const std::int64_t strips = divided_up(a.Dk, kTileRows), tiles = divided_up(a.Dv, kProductColumns);
  const int N = leaf_count(a.L), longest = longest_run(N);
  std::int64_t count = a.L * (value_tiles * (2 * std::int64_t(a.Dk) + 1) + 2 * a.Dv) + (N - 1) * b;  // outputs
  if (N > 1) {                                                                                       // leaves
    count += kLeaf * ((N - 1) * (value_tiles * (a.Dk + 1) + a.Dv) + (N - 2) * key_tiles * (a.Dk + 1));
    count += (N - 1) * b + (N - 2) * A;
  }
  for (int s = 1; s < longest; s *= 2) {  // the first pair has no A
    const std::int64_t pairs = pairs_going_up(N, s);
    count += pairs * (A + (strips + 2) * b) + (pairs - 1) * (strips + 1) * A;
  }
  for (int s = longest; s > 0; s /= 2) {  // the first is a copy
    const std::int64_t states = states_going_down(N, s);
    count += states * 2 * b + (states - 1) * (tiles * A + strips * b);
  }
  if (a.initial_state.data) count += (N > 1 ? 2 : 1) * b;
  if (a.final_state.data) count += b;
  return std::int64_t(sizeof(float)) * heads * count;
}

}  // namespace tutorial::scan
