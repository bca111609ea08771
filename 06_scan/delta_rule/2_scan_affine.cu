/// @file
/// `scan_affine`: a tree of matrix products over the maps of runs.
///
/// Idea: a scan requires only an associative operation, and composition is one: (Phi_2, H_2) after (Phi_1, H_1) =
/// (Phi_2 Phi_1, Phi_2 H_1 + H_2), in this order (F and b in names of the code). So the maps of the leaves, runs of 32
/// steps, are composed in a tree. It takes 2 log2(L / 32) rounds to compute the states before all leaves, and the chain
/// of dependent products is no longer than that.
/// Grows out of: 1_affine_chain.cu
/// Improves on: `affine_chain` applies the maps of the L / 32 leaves one after the other.
/// Unchanged: the maps of leaves, and the walk of all leaves at once.
/// Equation:
///
///   F_t = I - beta_t k_t^T k_t [Dk, Dk],  H_t = beta_t k_t^T v_t [Dk, Dv]
///   leaf:   [Phi | H] = [Phi | H] + beta_t k_t^T ([0 | v_t] - k_t [Phi | H])    leaves_kernel, from [I | 0]
///   up:     [Phi | H] of a run = Phi_2 [Phi_1 | H_1] + [0 | H_2]                compose_kernel, one launch per level
///   down:   S before the right half = Phi_1 S + H_1                             apply_kernel, one launch per level
///   walk:   delta = beta_t (v_t - k_t S),  S = S + k_t^T delta,  o_t = scale q_t S       outputs_kernel
///
/// The first leaf starts from [. | S_0]. The map of a run from there is a state and has no Phi.
/// Shapes: q, k [B, H, L, Dk]; v, o [B, H, L, Dv]; beta [B, H, L]; S_0 and final_state [B, H, Dk, Dv]; maps [B, H, N -
/// 1, Dk, Dk + Dv] and states before leaves [B, H, N - 1, Dk, Dv] of N = ceil(L / 32) leaves; all fp32 in device
/// memory. map_tree.hpp says which map and which state lies where. Each level of the tree is computed in place.
/// Thread mapping: in the leaves and the walk, block (32 columns, leaf, head) has 128 threads, the columns in registers
/// (state_tile.cuh), and 32 steps of k and v in shared memory. On the way up, block (64 rows, pair, head) has 256
/// threads. It copies its rows of Phi_2 to shared memory because it overwrites them in device memory, where no other
/// block reads them. It walks over tiles of 64 columns of [Phi_1 | H_1]; a thread has 4 x 4 sums
/// (common/tile/float_tile.cuh). The way down works likewise, with one block per 64 columns of S.
/// Resources: at Dk = 128, 32 registers of state and 36 KB of shared memory in the walk; 51 KB in products.
/// Work: 4 Dk (Dk + Dv) operations per step for the leaves, 6 Dk Dv for the walk; 2 Dk^2 (Dk + Dv) per pair on the way
/// up, 2 Dk^2 Dv on the way down. The tree has fewer than L / 32 pairs.
/// Bytes: the kernels request 41 KB per step at Dk = Dv = 128 and L = 2048, mostly maps and states. That is 20 times q,
/// k, v and o. The maps and states take 4 Dk (Dk + 2 Dv) bytes of memory per leaf. At Dk = Dv = 128 that is 6 KB per
/// step, beside 2 KB of q, k, v and o.
/// Bound by: the fp32 units.
/// Requires: Dk <= 256; keys as in chapter 05.
/// Weakness: a composition does not exploit that Phi is the identity minus outer products. Chapter 05's WY form does.
/// Sources: Blelloch, CMU-CS-90-190, sections 1.3 and 1.4; Yang et al., arXiv 2406.06484.

#include <cuda_runtime.h>

#include "06_scan/delta_rule.hpp"
#include "06_scan/delta_rule/affine_steps.cuh"
#include "06_scan/delta_rule/map_tree.hpp"
#include "06_scan/state_tile.cuh"
#include "common/ceil_div.hpp"
#include "common/device/cp_async.cuh"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::scan {
namespace {

using delta_rule::FloatArguments;

/// Maps [Phi | H] and states before leaves, of N leaves per head.
struct Tree {
  float *maps, *states;
  int N, Dk, Dv;

  /// [Dk, Dk + Dv]: the map of a run, stored at the run's last leaf.
  __device__ float* map(int head, int leaf) const {
    return maps + (std::int64_t(head) * (N - 1) + leaf) * Dk * (Dk + Dv);
  }
  /// [Dk, Dv]: the state before a leaf > 0.
  __device__ float* before(int head, int leaf) const {
    return states + (std::int64_t(head) * (N - 1) + leaf - 1) * Dk * Dv;
  }
};

/// Grid (tiles of Phi, then of H) (leaves but the last) (heads).
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

/// Grid (strips) (pairs) (heads).
/// @param s leaves of a half
__global__ void __launch_bounds__(kTileThreads, 2) compose_kernel(Tree tree, int s, int pairs) {
  const int strips = (tree.Dk - 1) / kTileRows + 1, d = int(blockIdx.x) % strips * kTileRows;
  const int f = int(blockIdx.x) / strips % pairs * 2 * s, head = int(blockIdx.x) / strips / pairs;
  const int Dk = tree.Dk, rows = Dk - d, width = Dk + tree.Dv;
  const float* first = tree.map(head, f + s - 1);
  float* second = tree.map(head, f + 2 * s - 1) + std::int64_t(d) * width;  // these rows

  // Ordinary reads here and below, because this kernel overwrites what it reads at the end.
  const Strip strip{dynamic_shared<float>()};
  for (int slice = 0; slice * kTileRows < Dk; ++slice) {
    const int column = int(threadIdx.x) % kTileRows, at = slice * kTileRows + column;
#pragma unroll 4
    for (int row = int(threadIdx.x) / kTileRows; row < kTileRows; row += kTileThreads / kTileRows) {
      *strip.F(slice).at(row, column) = row < rows && at < Dk ? second[std::int64_t(row) * width + at] : 0.0f;
    }
  }
  for (int j = f == 0 ? Dk : 0; j < width; j += kProductColumns) {
    float sums[4][4] = {};
    multiply_strip(sums, strip, first + j, width, Dk, width - j);
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
      load_tile(strip.F(slice), map + slice * kTileRows, width, Dk - d, Dk - slice * kTileRows);
    }
    multiply_strip(sums, strip, tree.before(head, f) + j, tree.Dv, Dk, columns);
  }
  each_sum(sums, Dk - d, columns, [&](int row, int column, float sum) {
    const float b = load_global(&map[std::int64_t(row) * width + Dk + j + column]);
    store_global(&after[std::int64_t(row) * tree.Dv + column], sum + b);
  });
}

/// Floats of the maps, or of the states, of all heads.
std::int64_t floats(const FloatArguments& a, int columns) {
  return std::int64_t(a.B) * a.H * (leaf_count(a.L) - 1) * a.Dk * columns;
}

}  // namespace

void scan_affine(const FloatArguments& a) {
  Tree tree{nullptr, nullptr, leaf_count(a.L), a.Dk, a.Dv};
  const std::int64_t heads = std::int64_t(a.B) * a.H, strips = ceil_div(a.Dk, kTileRows);
  const int longest = longest_run(tree.N), key_tiles = ceil_div(a.Dk, kStateColumns);
  const int value_tiles = ceil_div(a.Dv, kStateColumns), product_tiles = ceil_div(a.Dv, kProductColumns);
  const std::size_t product_bytes = Strip::bytes(a.Dk);
  select_state_shape(a, [&]<class Shape>(Shape) {
    constexpr int kDk = Shape::kDk;
    constexpr std::size_t kBytes = Steps<kDk>::kFloats * sizeof(float), kQueryBytes = kLeaf * kDk * sizeof(float);
    if (tree.N > 1) {
      const std::int64_t maps = floats(a, a.Dk + a.Dv);
      tree.maps = workspace<float>(kRunsTag, std::size_t(maps + floats(a, a.Dv)));
      tree.states = tree.maps + maps;
      launch(leaves_kernel<kDk, Shape::kVector>,
             {unsigned(heads * (tree.N - 1) * (key_tiles + value_tiles)), kStateThreads, kBytes}, a, tree);
    }
    for (int s = 1; s < longest; s *= 2) {
      const int pairs = pairs_going_up(tree.N, s);
      launch(compose_kernel, {unsigned(heads * pairs * strips), kTileThreads, product_bytes}, tree, s, pairs);
    }
    for (int s = longest; s > 0; s /= 2) {
      const int count = states_going_down(tree.N, s);
      launch(apply_kernel, {unsigned(heads * count * strips * product_tiles), kTileThreads, product_bytes}, tree, s,
             count);
    }
    launch(outputs_kernel<kDk, Shape::kVector>,
           {unsigned(heads * tree.N * value_tiles), kStateThreads, kBytes + kQueryBytes}, a, tree);
  });
}

}  // namespace tutorial::scan
