/// @file
/// Stage 5, `scan_states`: every product and every state in memory, and the chapter's scan between them.
///
/// Idea: a step of the recurrence is a map whose value is a matrix, and that is Dk Dv channels that share a gate. So
/// the operator is three things that we have: outer products, a scan, products of rows with matrices.
/// Mends: chapter 04's stages are chunks and their matrix products, made for this operator. Here nothing but the scan
/// knows of time. Same: the recurrence, in fp32.
///
///   x_t = k_t^T v_t                  products_kernel; x_1 has exp(g_1) S_0 on top: the scan starts from nothing
///   S_t = exp(g_t) S_{t-1} + x_t     dispatch() of the operator scan, D = Dk Dv, Dg = 1
///   o_t = scale q_t S_t              outputs_kernel; the last S_t is the final state
///
/// Shapes: q, k [B, H, L, Dk]; v, o [B, H, L, Dv]; g [B, H, L]; S_0 and final_state [B, H, Dk, Dv]; x and S [B, H, L,
/// Dk Dv]; all fp32 in device memory. In x and S rows of Dv are filled up to a multiple of 4, for loads of 16 bytes.
/// S does not take the place of x: the scan reads with load_global(), whose promise is that nobody writes there
/// meanwhile.
/// Who does what: block (position, 128 columns) has 256 threads; a thread has four columns and every 8th row (more rows
/// apart where there are fewer columns). Its rows' part of o is added up by shuffles and 4 KB of shared memory.
/// Work, a position: Dk Dv products, three multiply-adds each for scan and output, an exponential for four of them.
/// Bytes: 16 Dk Dv a position, as x is written and read, and so is S: at Dk = Dv = 128 256 KB, where q, k, v and o are
/// 2 KB. Memory: 8 Dk Dv bytes a position, 128 KB; 69 GB for 32 heads of 16384 positions.
/// Limit: memory. Needs: that memory.
/// Weakness: the states. They are wanted for as long as it takes to multiply with q; stage 6 keeps them in registers.
/// Source: Katsch, "GateLoop", arXiv 2311.01927: the associative scan over materialised k^T v.

#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <climits>

#include "06_scan/affine.hpp"
#include "06_scan/memory_limits.hpp"
#include "06_scan/scan.hpp"
#include "06_scan/simple_gla.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/warp.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::scan {
namespace {

using simple_gla::FloatArguments;

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kColumns = 128;  // of a block: a lane has four
constexpr const char* kTag = "simple_gla: products and states";

TUTORIAL_HOST_DEVICE int quads(const FloatArguments& a) {
  return (a.Dv - 1) / 4 + 1;
}

/// Lanes that have columns, as a power of two.
int lanes_of(const FloatArguments& a) {
  return std::min(kColumns / 4, int(std::bit_ceil(unsigned(quads(a)))));
}

/// What a thread has of a position: four columns of the rows d, d + step, ...
struct Place {
  std::int64_t position;  // of all heads
  int b, h, t, d, step, column, columns, width;

  __device__ Place(const FloatArguments& a, int lanes) : position(blockIdx.x) {
    const std::int64_t head = position / a.L;
    b = int(head / a.H), h = int(head % a.H), t = int(position % a.L);
    d = int(threadIdx.x) / lanes, step = kThreads / lanes;
    column = int(blockIdx.y) * kColumns + int(threadIdx.x) % lanes * 4, columns = min(4, a.Dv - column);
    width = quads(a) * 4;
  }
  /// Where these columns of a row lie among the products, or the states.
  __device__ std::int64_t offset(const FloatArguments& a, int row) const {
    return (position * a.Dk + row) * width + column;
  }
};

/// Grid (positions, tiles of 128 columns), as the other kernel's.
__global__ void __launch_bounds__(kThreads) products_kernel(FloatArguments a, float* products, int lanes) {
  const Place at(a, lanes);
  if (at.columns <= 0 || at.d >= a.Dk) return;
  float v[4] = {};
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    if (c < at.columns) v[c] = load_global(&a.v.row(at.b, at.h, at.t)[at.column + c]);
  }
  const bool is_start = at.t == 0 && a.initial_state.data;
  const float gate = is_start ? decay(load_global(a.g.row(at.b, at.h, 0))) : 0.0f;
#pragma unroll 4
  for (int d = at.d; d < a.Dk; d += at.step) {
    const float k = load_global(&a.k.row(at.b, at.h, at.t)[d]);
    float x[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      x[c] = k * v[c];
      if (is_start && c < at.columns) x[c] += gate * load_global(&a.initial_state.row(at.b, at.h, d)[at.column + c]);
    }
    auto* to = reinterpret_cast<float4*>(products + at.offset(a, d));
    store_global(to, make_float4(x[0], x[1], x[2], x[3]));
  }
}

__global__ void __launch_bounds__(kThreads) outputs_kernel(FloatArguments a, const float* states, int lanes) {
  __shared__ float parts[kWarps][kColumns];
  const Place at(a, lanes);
  const int thread = int(threadIdx.x);
  const auto state = [&](int d) { return load_global(reinterpret_cast<const float4*>(states + at.offset(a, d))); };
  float o[4] = {};
  if (at.columns > 0) {
#pragma unroll 8
    for (int d = at.d; d < a.Dk; d += at.step) {
      const float4 S = state(d);
      const float q = load_global(&a.q.row(at.b, at.h, at.t)[d]);
      o[0] += q * S.x, o[1] += q * S.y, o[2] += q * S.z, o[3] += q * S.w;
    }
  }
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    for (int flipped = 16; flipped >= lanes; flipped /= 2) o[c] += shuffle_xor(o[c], flipped);
    if (thread % 32 < lanes) parts[thread / 32][thread % 32 * 4 + c] = o[c];
  }
  __syncthreads();
  const int column = int(blockIdx.y) * kColumns + thread;
  if (thread < kColumns && column < a.Dv) {
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) sum += parts[warp][thread];
    store_global(&a.o.row(at.b, at.h, at.t)[column], a.scale * sum);
  }
  if (at.t < a.L - 1 || a.final_state.data == nullptr || at.columns <= 0) return;
  for (int d = at.d; d < a.Dk; d += at.step) {
    const float4 S = state(d);
    const float row[4] = {S.x, S.y, S.z, S.w};
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      if (c < at.columns) store_global(&a.final_state.row(at.b, at.h, d)[at.column + c], row[c]);
    }
  }
}

std::int64_t positions(const FloatArguments& a) {
  return std::int64_t(a.B) * a.H * a.L;
}

/// Floats of a state, rows filled up.
std::int64_t state_size(const FloatArguments& a) {
  return std::int64_t(a.Dk) * quads(a) * 4;
}

/// The scan of the products.
Arguments as_scan(const FloatArguments& a, float* products, float* states) {
  const int D = int(state_size(a));
  Arguments scan{};
  scan.B = a.B, scan.H = a.H, scan.L = a.L, scan.D = D, scan.Dg = 1;
  scan.x = {products, a.H * std::int64_t(a.L) * D, std::int64_t(a.L) * D, D};
  scan.log_decay = a.g;
  scan.y = packed(states, a.H, a.L, D);
  return scan;
}

}  // namespace

void scan_states(const FloatArguments& a) {
  const std::int64_t count = positions(a) * state_size(a);
  float* products = workspace<float>(kTag, std::size_t(2 * count));
  float* states = products + count;
  const dim3 grid(unsigned(positions(a)), unsigned((a.Dv - 1) / kColumns + 1));
  const int lanes = lanes_of(a);
  launch(products_kernel, {grid, kThreads}, a, products, lanes);
  dispatch(as_scan(a, products, states));
  launch(outputs_kernel, {grid, kThreads}, a, states, lanes);
}

std::string scan_states_limits(const FloatArguments& a) {
  if (positions(a) > INT_MAX) return "B H L > 2^31 - 1 positions: the grid";
  if ((a.Dv - 1) / kColumns + 1 > 65535) return "Dv > 65535 tiles of 128 columns: the grid's second dimension";
  if (state_size(a) > INT_MAX) return "Dk Dv > 2^31 - 1: channels of a scan are counted in int";
  const std::string scan = dispatch_limits(as_scan(a, nullptr, nullptr));
  return scan.empty() ? memory_limits(kTag, scan_states_memory(a)) : "the scan of its states: " + scan;
}

std::int64_t scan_states_memory(const FloatArguments& a) {
  return 2 * std::int64_t(sizeof(float)) * positions(a) * state_size(a) + dispatch_memory(as_scan(a, nullptr, nullptr));
}

std::int64_t scan_states_moved(const FloatArguments& a) {
  const std::int64_t heads = std::int64_t(a.B) * a.H, state = std::int64_t(a.Dk) * a.Dv, loads = a.Dk * quads(a);
  const std::int64_t rows = std::min(a.Dk, kThreads / lanes_of(a));           // threads that have the same columns
  std::int64_t count = positions(a) * (loads + rows * a.Dv + state_size(a));  // k, v; products
  count += positions(a) * (loads + state_size(a) + a.Dv);                     // q, states; o
  if (a.initial_state.data) count += heads * (rows * quads(a) + state);
  if (a.final_state.data) count += heads * (state_size(a) + state);
  return std::int64_t(sizeof(float)) * count + dispatch_moved(as_scan(a, nullptr, nullptr));
}

}  // namespace tutorial::scan
