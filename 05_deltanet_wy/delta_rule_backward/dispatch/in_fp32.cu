/// @file
/// The gradients of the delta rule, with or without gates, position after position in fp32 on a GPU.
///
/// Idea: no column of S or of dS depends on another column. So each block walks with some of the columns on its own:
/// forwards with S, then backwards with dS. The walk backwards needs the states once more, from the last to the first.
/// They cannot be computed backwards, since a gate may be 0. So the walk forwards stores the state before each chunk of
/// 32 positions. Before the walk backwards enters a chunk, the block computes the chunk's states R_t again from there
/// and stores all 32; the next chunk overwrites them. dq, dk, dbeta and dg are sums over the columns. The warps of a
/// block add up their parts in shared memory, and a second kernel adds up those of the blocks. The order of all sums is
/// fixed.
/// Equation: with gates for each row d of the state. A single gate is the same for all d, and its dg is the sum of
/// those of the rows.
///
///     R_t  = diag(exp(g_t)) S_{t-1},   r_t = v_t - k_t R_t,   S_t = R_t + beta_t k_t^T r_t
///     dq_t = scale do_t S_t^T
///
///     dS_t = diag(exp(g_{t+1})) dR_{t+1} + scale q_t^T do_t,   dv_t = beta_t k_t dS_t,   dR_t = dS_t - k_t^T dv_t
///     dbeta_t = (k_t dS_t) . r_t,   dk_t = beta_t r_t dS_t^T - dv_t R_t^T
///     dg_t = the sums over the rows of dR_t . R_t
///
/// dg is computed as it stands here, from a state and its gradient: `recurrent` of `kda` computes a difference of sums
/// that are larger than dg where gates are strong.
/// Shapes: q, k, dq, dk [B, H, L, Dk], v, do, dv [B, H, L, Dv] bf16, any strides; all others fp32. In device memory,
/// all fp32: the states before the N = ceil(L / 32) chunks [B, H, N, Dk, Dv], the states R of a chunk [B, H, 32, Dk,
/// Dv], and the parts [tiles, B, H, L, 3 Dk + 1]. In the states Dk is padded to 128 times a power of two, and Dv to
/// whole tiles.
/// Thread mapping: in walks_kernel block (tile of Dv, h, b) has 16 warps with four columns each, or 8, 4 or 2 if Dk >
/// 128, 256 or 512: each time the states take twice the registers. A lane has every 32nd row of its warp's columns. In add_kernel, block (4
/// positions, h, b) has one warp per position.
/// Synchronization: one barrier per position and direction. The warps' parts have two places in turn.
/// Resources: 512 threads with up to 128 registers, or fewer with up to 255; at most 33 KB of shared memory. From Dk = 513
/// on, the compiler keeps a part of the states in local memory.
/// Bytes: at Dk = Dv = 128, 128 KB per position for the states of chunks, of which a cache serves some, 4 KB for those
/// before chunks and 6 KB for the parts.
/// Bound by: latency. A position waits for its loads, for sums over the lanes, and backwards for its state.
/// Requires: Dk up to 1024.
/// Source: arXiv 2510.26692, equation 1; its adjoint step by step.

#include "05_deltanet_wy/delta_rule_backward/dispatch/in_fp32.hpp"

#include <cuda_runtime.h>

#include <algorithm>

#include "05_deltanet_wy/delta_rule.hpp"
#include "05_deltanet_wy/delta_rule_backward/dispatch/copies.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/warp.cuh"
#include "common/device/workspace.hpp"
#include "common/parts.hpp"
#include "common/tile/base2.cuh"
#include "common/view.hpp"

namespace tutorial::delta_rule {
namespace {

using Bf16 = __nv_bfloat16;

constexpr int kWarpColumns = 4;  // of Dv
constexpr int kPositions = 32;   // of a chunk: one for each lane
constexpr int kRows = 4;         // of a block of add_kernel

/// Elements of a column for each lane.
constexpr int elements_of(int Dk) {
  return Dk <= 128 ? 4 : Dk <= 256 ? 8 : Dk <= 512 ? 16 : 32;
}
/// Warps of a block of walks_kernel: fewer where a lane needs more registers.
__host__ __device__ constexpr int warps_of(int elements) {
  return 64 / elements;
}

/// What a lane has of a state: rows lane + 32 e, the columns of its warp.
template <int kElements>
using State = float[kElements][kWarpColumns];

/// What the kernels leave in device memory.
struct Workspace {
  float4* borders;  // [B, H, N, tiles, warps, elements, 32]: the states before the chunks
  float4* states;   // [B, H, kPositions, tiles, warps, elements, 32]: R of the positions of a chunk
  float* parts;     // [tiles, B, H, L, 3 Dk + 1]: dq, dk, dg and dbeta of a tile of columns
};

int tiles_of(const Bf16BackwardArguments& g) {
  return ceil_div(g.Dv, warps_of(elements_of(g.Dk)) * kWarpColumns);
}

/// Elements of a row of the parts.
__host__ __device__ int part_width(const Bf16BackwardArguments& g) {
  return 3 * g.Dk + 1;
}

/// The product of a row of Dk and a state, for all lanes. @param x what the lane has of the row
template <int kElements>
__device__ __forceinline__ void multiply(float (&product)[kWarpColumns], const float (&x)[kElements],
                                         const State<kElements>& S) {
  static_assert(kWarpColumns == 4);
  float own[kWarpColumns] = {};
#pragma unroll
  for (int e = 0; e < kElements; ++e) {
#pragma unroll
    for (int c = 0; c < kWarpColumns; ++c) own[c] += x[e] * S[e][c];
  }
  const float sum = warp_sum_of_four(own, int(lane_index()));
#pragma unroll
  for (int c = 0; c < kWarpColumns; ++c) product[c] = __shfl_sync(kAllLanes, sum, 8 * c);
}

/// Stores a lane's elements of a state, or loads them. Only this lane needs them again.
template <int kElements>
__device__ __forceinline__ void store_own(float4* to, const State<kElements>& S) {
#pragma unroll
  for (int e = 0; e < kElements; ++e) store_global(to + e * 32, make_float4(S[e][0], S[e][1], S[e][2], S[e][3]));
}
template <int kElements>
__device__ __forceinline__ void load_own(State<kElements>& S, const float4* from) {
#pragma unroll
  for (int e = 0; e < kElements; ++e) {
    const float4 four = load_for_update(from + e * 32);
    S[e][0] = four.x, S[e][1] = four.y, S[e][2] = four.z, S[e][3] = four.w;
  }
}

/// A lane's place in a problem, and what it loads there. Rows and columns that do not exist are zeros, their gates 1.
template <int kElements>
struct Lane {
  const Bf16BackwardArguments& a;
  const Gates& gates;
  int b, h, lane, first;  ///< `first` of the warp's columns of Dv

  __device__ __forceinline__ int row(int e) const { return lane + 32 * e; }
  /// @param from a state, or no data for zeros
  __device__ __forceinline__ void load_state(State<kElements>& S, const View<const float>& from) const {
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
#pragma unroll
      for (int c = 0; c < kWarpColumns; ++c) {
        const bool is_there = from.data && row(e) < a.Dk && first + c < a.Dv;
        S[e][c] = is_there ? load_global(from.row(b, h, row(e)) + first + c) : 0.0f;
      }
    }
  }
  __device__ __forceinline__ void store_state(const View<float>& to, const State<kElements>& S) const {
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
#pragma unroll
      for (int c = 0; c < kWarpColumns; ++c) {
        if (row(e) < a.Dk && first + c < a.Dv) store_global(to.row(b, h, row(e)) + first + c, S[e][c]);
      }
    }
  }
  /// An element of a row of q or k.
  __device__ __forceinline__ float load(const View<const Bf16>& from, int t, int e) const {
    return row(e) < a.Dk ? float(load_global(from.row(b, h, t) + row(e))) : 0.0f;
  }
  /// The key, of length 1 if normalize_keys. All lanes call it.
  __device__ __forceinline__ void load_key(float (&k)[kElements], int t) const {
    float squares = 0;
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      k[e] = load(a.k, t, e);
      squares += k[e] * k[e];
    }
    if (!a.normalize_keys) return;
    const float f = rsqrtf(warp_sum(squares) + kKeyEps);
#pragma unroll
    for (int e = 0; e < kElements; ++e) k[e] *= f;
  }
  /// The warp's columns of a row of v or do, times a factor.
  __device__ __forceinline__ void load_columns(float (&x)[kWarpColumns], const View<const Bf16>& from, int t,
                                               float factor) const {
#pragma unroll
    for (int c = 0; c < kWarpColumns; ++c) {
      x[c] = first + c < a.Dv ? factor * float(load_global(from.row(b, h, t) + first + c)) : 0.0f;
    }
  }
  /// S = diag(exp(g_t)) S
  __device__ __forceinline__ void decay(State<kElements>& S, int t) const {
    if (gates.count == 0) return;
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      const int d = min(row(e), gates.count - 1);
      const float factor = tile::gate(load_global(gates.g.row(b, h, t) + d));
#pragma unroll
      for (int c = 0; c < kWarpColumns; ++c) S[e][c] *= factor;
    }
  }
  /// S_t, and r_t for all lanes. @param S S_{t-1} @param keep is called when S is R_t
  template <class Keep>
  __device__ __forceinline__ void step(State<kElements>& S, float (&r)[kWarpColumns], int t, Keep keep) const {
    float k[kElements], v[kWarpColumns];
    load_key(k, t);
    load_columns(v, a.v, t, 1);
    const float beta = load_global(a.beta.row(b, h, t));
    decay(S, t);
    keep();
    multiply(r, k, S);
#pragma unroll
    for (int c = 0; c < kWarpColumns; ++c) {
      r[c] = v[c] - r[c];
#pragma unroll
      for (int e = 0; e < kElements; ++e) S[e][c] += k[e] * (beta * r[c]);
    }
  }
};

/// Sums over a block's columns: two places by turns, of a row for each warp.
template <int kWarps>
struct Sums {
  float* place;  ///< in shared memory: [2, kWarps, stride]
  int stride;
  int turn = 0;

  __device__ __forceinline__ float* row(int warp) const { return place + (turn * kWarps + warp) * stride; }
  /// Adds up the warps' rows when all have been written. All threads call it. @param to `count` elements
  __device__ __forceinline__ void add_up(float* to, int count) {
    __syncthreads();
    for (int i = int(threadIdx.x); i < count; i += 32 * kWarps) {
      float sum = 0;
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) sum += row(warp)[i];
      store_global(to + i, sum);
    }
    turn = 1 - turn;  // the barrier of the next call keeps warps from writing this place while others read it
  }
};

/// dv, dinitial_state and the parts of all others. Grid (tiles of Dv, H, B).
/// @tparam kElements of a column for each lane: Dk is at most 32 kElements
template <int kElements>
__global__ void __launch_bounds__(32 * warps_of(kElements))
    walks_kernel(Bf16BackwardArguments a, Gates gates, Workspace x) {
  constexpr int kWarps = warps_of(kElements);
  const int b = int(blockIdx.z), h = int(blockIdx.y), tile = int(blockIdx.x), tiles = int(gridDim.x);
  const int lane = int(lane_index()), warp = int(threadIdx.x) / 32, N = (a.L - 1) / kPositions + 1;
  const Lane<kElements> at{a, gates, b, h, lane, (tile * kWarps + warp) * kWarpColumns};
  const std::int64_t head = std::int64_t(b) * a.H + h;
  const auto own = [&](float4* states, std::int64_t i) {
    return states + (((i * tiles + tile) * kWarps + warp) * kElements) * 32 + lane;
  };
  const auto part = [&](int t) {
    return x.parts + ((std::int64_t(tile) * a.B * a.H + head) * a.L + t) * part_width(a);
  };
  Sums<kWarps> sums{dynamic_shared<float>(), 2 * a.Dk + 1};

  State<kElements> S, dS;
  float r[kWarpColumns];
  at.load_state(S, a.initial_state);
  for (int n = 0; n < N - 1; ++n) {
    store_own(own(x.borders, head * N + n), S);
    for (int i = 0; i < kPositions; ++i) at.step(S, r, n * kPositions + i, [] {});
  }
  store_own(own(x.borders, head * N + N - 1), S);

  at.load_state(dS, a.dfinal_state);
  for (int n = N - 1; n >= 0; --n) {
    const int first = n * kPositions, count = min(kPositions, a.L - first);
    float kept[kWarpColumns] = {};  // r of position first + lane
    load_own(S, own(x.borders, head * N + n));
    for (int i = 0; i < count; ++i) {
      const int t = first + i;
      at.step(S, r, t, [&] { store_own(own(x.states, head * kPositions + i), S); });
      float d_o[kWarpColumns];
      at.load_columns(d_o, a.d_o, t, a.scale);
#pragma unroll
      for (int c = 0; c < kWarpColumns; ++c) kept[c] = lane == i ? r[c] : kept[c];
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        float dq = 0;
#pragma unroll
        for (int c = 0; c < kWarpColumns; ++c) dq += d_o[c] * S[e][c];
        if (at.row(e) < a.Dk) sums.row(warp)[at.row(e)] = dq;
      }
      sums.add_up(part(t), a.Dk);
    }
    for (int i = count - 1; i >= 0; --i) {
      const int t = first + i;
      float k[kElements], d_o[kWarpColumns], answer[kWarpColumns];
      at.load_key(k, t);
      at.load_columns(d_o, a.d_o, t, a.scale);
      const float beta = load_global(a.beta.row(b, h, t));
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        const float q = at.load(a.q, t, e);
#pragma unroll
        for (int c = 0; c < kWarpColumns; ++c) dS[e][c] += q * d_o[c];
      }
      multiply(answer, k, dS);
      float dbeta = 0, written[kWarpColumns], dv[kWarpColumns];
#pragma unroll
      for (int c = 0; c < kWarpColumns; ++c) {
        const float r = __shfl_sync(kAllLanes, kept[c], i);
        dbeta += answer[c] * r;
        written[c] = beta * r;
        dv[c] = beta * answer[c];
        if (lane == c && at.first + c < a.Dv) store_global(a.dv.row(b, h, t) + at.first + c, Bf16(dv[c]));
      }
      const float4* states = own(x.states, head * kPositions + i);
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        const float4 four = load_for_update(states + e * 32);
        const float R[] = {four.x, four.y, four.z, four.w};
        float dk = 0, dg = 0;
#pragma unroll
        for (int c = 0; c < kWarpColumns; ++c) {
          dk += written[c] * dS[e][c] - dv[c] * R[c];
          dS[e][c] -= k[e] * dv[c];
          dg += dS[e][c] * R[c];
        }
        if (at.row(e) < a.Dk) sums.row(warp)[at.row(e)] = dk, sums.row(warp)[a.Dk + at.row(e)] = dg;
      }
      if (lane == 0) sums.row(warp)[2 * a.Dk] = dbeta;
      sums.add_up(part(t) + a.Dk, 2 * a.Dk + 1);
      at.decay(dS, t);
    }
  }
  if (a.dinitial_state.data) at.store_state(a.dinitial_state, dS);
}

/// Adds up the parts of all tiles. Grid (ceil(L / kRows), H, B), blocks of 32 x kRows threads.
__global__ void add_kernel(Bf16BackwardArguments a, Gates gates, const float* parts, int tiles) {
  const int t = int(blockIdx.x) * kRows + int(threadIdx.y), h = int(blockIdx.y), b = int(blockIdx.z);
  if (t >= a.L) return;
  const std::int64_t tile = std::int64_t(a.B) * a.H * a.L * part_width(a);
  const float* row = parts + ((std::int64_t(b) * a.H + h) * a.L + t) * part_width(a);
  const auto sum = [&](int i) {
    float sum = 0;
    for (int n = 0; n < tiles; ++n) sum += load_global(row + n * tile + i);
    return sum;
  };
  float dg = 0;  // of a gate for all rows
  for (int d = int(threadIdx.x); d < a.Dk; d += 32) {
    store_global(a.dq.row(b, h, t) + d, Bf16(sum(d)));
    store_global(a.dk.row(b, h, t) + d, Bf16(sum(a.Dk + d)));
    if (gates.count == 1) dg += sum(2 * a.Dk + d);
    if (gates.count > 1) store_global(gates.dg.row(b, h, t) + d, sum(2 * a.Dk + d));
  }
  dg = warp_sum(dg);
  if (threadIdx.x > 0) return;
  store_global(a.dbeta.row(b, h, t), sum(3 * a.Dk));
  if (gates.count == 1) store_global(gates.dg.row(b, h, t), dg);
}

dim3 grid_of(const Bf16BackwardArguments& g, int blocks) {
  return {unsigned(blocks), unsigned(g.H), unsigned(g.B)};
}

template <int kElements>
void launch_walks(const Bf16BackwardArguments& g, const Gates& gates, const Workspace& x) {
  constexpr int kWarps = warps_of(kElements);
  const std::size_t shared_bytes = sizeof(float) * 2 * kWarps * (2 * std::size_t(g.Dk) + 1);
  launch(walks_kernel<kElements>, {grid_of(g, tiles_of(g)), 32 * kWarps, shared_bytes}, g, gates, x);
}

/// Bytes of the workspace.
struct Bytes {
  std::int64_t borders, states, parts;

  explicit Bytes(const Bf16BackwardArguments& g) {
    const std::int64_t heads = std::int64_t(g.B) * g.H;
    constexpr int kOfBlock = 64 * 32 * int(sizeof(float4));  // warps, elements, lanes
    const std::int64_t state = std::int64_t(tiles_of(g)) * kOfBlock;
    borders = heads * ceil_div(g.L, kPositions) * state;
    states = heads * kPositions * state;
    parts = heads * g.L * tiles_of(g) * part_width(g) * 4;
  }
};

}  // namespace

void backward_in_fp32(const Bf16BackwardArguments& g, const Gates& gates) {
  const Bytes bytes(g);
  auto* memory = workspace<unsigned char>("delta_rule --backward: in fp32", std::size_t(backward_in_fp32_memory(g)));
  const Workspace x{reinterpret_cast<float4*>(memory), reinterpret_cast<float4*>(memory + bytes.borders),
                    reinterpret_cast<float*>(memory + bytes.borders + bytes.states)};
  switch (elements_of(g.Dk)) {
    case 4:
      launch_walks<4>(g, gates, x);
      break;
    case 8:
      launch_walks<8>(g, gates, x);
      break;
    case 16:
      launch_walks<16>(g, gates, x);
      break;
    default:
      launch_walks<32>(g, gates, x);
  }
  end_part("walks");
  launch(add_kernel, {grid_of(g, ceil_div(g.L, kRows)), dim3(32, kRows)}, g, gates, x.parts, tiles_of(g));
  if (g.normalize_keys) normalize_rows_backward({g.B, g.H, g.L}, g.k, read_only(g.dk), g.dk, g.Dk);
  end_part("gradients");
}

std::string backward_in_fp32_unsupported(const Bf16BackwardArguments& g) {
  if (g.Dk > 1024) return "Dk > 1024: a lane would have more than 32 elements of a column";
  return std::max(g.B, g.H) > 65535 ? "B or H > 65535: the grid" : "";
}

std::int64_t backward_in_fp32_memory(const Bf16BackwardArguments& g) {
  const Bytes bytes(g);
  return bytes.borders + bytes.states + bytes.parts;
}

}  // namespace tutorial::delta_rule
