/// @file
/// `affine_chain`: runs of 32 steps as matrices, applied one after the other. (The earlier stages in the operator's
/// list are those of chapter 05.)
///
/// Idea: a step of the delta rule is the map S -> F_t S + H_t, and so is a run of steps. A leaf is a run of 32 steps.
/// The maps of all leaves are computed at once. Each map is then applied to the state before its leaf, which gives the
/// state before the next leaf. With these states, all leaves are walked at once.
/// Grows out of: 05_deltanet_wy/delta_rule/1_recurrent.cpp; port to the GPU: the loop over time becomes maps of leaves,
/// a short loop over leaves, and a walk of all leaves at once
/// Improves on: chapter 05's recurrence takes L dependent steps. Here there are L / 32 dependent matrix products.
/// Unchanged: the recurrence, in fp32.
/// Equation:
///
///   F_t = I - beta_t k_t^T k_t [Dk, Dk],  H_t = beta_t k_t^T v_t [Dk, Dv]
///   leaf:   [Phi | H] = [Phi | H] + beta_t k_t^T ([0 | v_t] - k_t [Phi | H])    leaves_kernel, from [I | 0]
///   chain:  S before the next leaf = Phi S + H                                  apply_kernel, one launch per leaf
///   walk:   delta = beta_t (v_t - k_t S),  S = S + k_t^T delta,  o_t = scale q_t S       outputs_kernel
///
/// The second line is the delta rule itself, on a state of Dk + Dv columns. Columns do not depend on each other, and
/// the first Dk columns have zeros in place of values. The first leaf starts from [. | S_0], so its map is a state and
/// has no Phi.
/// Shapes: q, k [B, H, L, Dk]; v, o [B, H, L, Dv]; beta [B, H, L]; S_0 and final_state [B, H, Dk, Dv]; maps [B, H, N -
/// 1, Dk, Dk + Dv] and states before leaves [B, H, N - 1, Dk, Dv] of N = ceil(L / 32) leaves; all fp32 in device
/// memory.
/// Thread mapping: in the leaves and the walk, block (32 columns, leaf, head) has 128 threads, the columns in registers
/// (state_tile.cuh), and 32 steps of k and v in shared memory. In the chain, block (64 columns of S, 64 rows, head) has
/// 256 threads and its rows of Phi in shared memory; a thread has 4 x 4 sums (common/tile/float_tile.cuh).
/// Resources: at Dk = 128, 32 registers of state and 36 KB of shared memory in the walk; 51 KB in products.
/// Work: 4 Dk (Dk + Dv) operations per step for the leaves, 6 Dk Dv for the walk, 2 Dk^2 Dv per leaf for the chain.
/// Bytes: maps are written and read once, states are written once and read twice: at least 12 Dk^2 + 20 Dk Dv bytes per
/// leaf.
/// Bound by: the chain. It is L / 32 launches, each of which keeps only a few multiprocessors busy per head.
/// Requires: Dk <= 256; keys as in chapter 05.
/// Weakness: the length of that chain.
/// Sources: Blelloch, CMU-CS-90-190, section 1.4; Yang et al., arXiv 2406.06484.

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

/// Maps [Phi | H] of leaves and states before leaves, of N leaves per head.
struct Tree {
  float *maps, *states;
  int N, Dk, Dv;

  /// [Dk, Dk + Dv]: the map of a leaf.
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

/// Grid (tiles of the columns) (strips) (heads).
/// @param leaf the leaf whose map is applied to the state before it
__global__ void __launch_bounds__(kTileThreads, 2) apply_kernel(Tree tree, int leaf) {
  const int strips = (tree.Dk - 1) / kTileRows + 1, tiles = (tree.Dv - 1) / kProductColumns + 1;
  const int j = int(blockIdx.x) % tiles * kProductColumns, d = int(blockIdx.x) / tiles % strips * kTileRows;
  const int head = int(blockIdx.x) / tiles / strips;
  const int Dk = tree.Dk, width = Dk + tree.Dv, columns = tree.Dv - j;
  const float* map = tree.map(head, leaf) + std::int64_t(d) * width;  // these rows
  float* after = tree.before(head, leaf + 1) + std::int64_t(d) * tree.Dv + j;

  float sums[4][4] = {};
  if (leaf > 0) {
    const Strip strip{dynamic_shared<float>()};
    for (int slice = 0; slice * kTileRows < Dk; ++slice) {
      load_tile(strip.F(slice), map + slice * kTileRows, width, Dk - d, Dk - slice * kTileRows);
    }
    multiply_strip(sums, strip, tree.before(head, leaf) + j, tree.Dv, Dk, columns);
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

void affine_chain(const FloatArguments& a) {
  Tree tree{nullptr, nullptr, leaf_count(a.L), a.Dk, a.Dv};
  const std::int64_t heads = std::int64_t(a.B) * a.H, strips = ceil_div(a.Dk, kTileRows);
  const int key_tiles = ceil_div(a.Dk, kStateColumns);
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
    for (int leaf = 0; leaf < tree.N - 1; ++leaf) {
      launch(apply_kernel, {unsigned(heads * strips * product_tiles), kTileThreads, product_bytes}, tree, leaf);
    }
    launch(outputs_kernel<kDk, Shape::kVector>,
           {unsigned(heads * tree.N * value_tiles), kStateThreads, kBytes + kQueryBytes}, a, tree);
  });
}

}  // namespace tutorial::scan
