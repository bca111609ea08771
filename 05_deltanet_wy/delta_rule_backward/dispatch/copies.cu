/// @file
/// The kernels of copies.hpp: a pass over rows, a warp per row.

#include "05_deltanet_wy/delta_rule_backward/dispatch/copies.hpp"

#include <cuda_runtime.h>

#include "05_deltanet_wy/delta_rule.hpp"
#include "common/ceil_div.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/warp.cuh"

namespace tutorial::delta_rule {
namespace {

using Bf16 = __nv_bfloat16;

constexpr int kWarps = 4;

/// Copies rows of `from_width` elements to rows of `to_width`: fewer, or more with zeros behind them. Grid
/// (ceil(count / kWarps), H, B), blocks of 32 x kWarps threads.
template <class T>
__global__ void copy_rows_kernel(View<const T> from, int from_width, View<T> to, int to_width, int count) {
  const int t = int(blockIdx.x) * kWarps + int(threadIdx.y), h = int(blockIdx.y), b = int(blockIdx.z);
  if (t >= count) return;
  for (int d = int(threadIdx.x); d < to_width; d += 32) {
    store_global(to.row(b, h, t) + d, d < from_width ? load_global(from.row(b, h, t) + d) : T(0.0f));
  }
}

/// Rows `first` to `last` - 1 become zeros. Grid (ceil((last - first) / kWarps), H, B).
__global__ void zero_rows_kernel(View<float> to, int first, int last, int width) {
  const int t = first + int(blockIdx.x) * kWarps + int(threadIdx.y), h = int(blockIdx.y), b = int(blockIdx.z);
  if (t >= last) return;
  for (int d = int(threadIdx.x); d < width; d += 32) store_global(to.row(b, h, t) + d, 0.0f);
}

/// What normalises a key, and in its place the gradient for the normalised key: f, and the part of dy along y.
struct Along {
  float f, dot;

  /// All lanes of a warp call it. @param k,dy rows of `width`; dy may be null
  __device__ Along(const Bf16* k, const Bf16* dy, int width) : f(0), dot(0) {
    for (int d = int(threadIdx.x); d < width; d += 32) {
      const float x = float(load_global(k + d));
      f += x * x;
      if (dy) dot += x * float(load_global(dy + d));
    }
    f = rsqrtf(warp_sum(f) + kKeyEps);
    dot = f * warp_sum(dot);
  }
};

/// y = f k, with zeros behind. Grid and blocks as copy_rows_kernel.
__global__ void normalize_kernel(View<const Bf16> k, int width, View<Bf16> y, int to_width, int L) {
  const int t = int(blockIdx.x) * kWarps + int(threadIdx.y), h = int(blockIdx.y), b = int(blockIdx.z);
  if (t >= L) return;
  const Along along(k.row(b, h, t), nullptr, width);
  for (int d = int(threadIdx.x); d < to_width; d += 32) {
    store_global(y.row(b, h, t) + d, Bf16(d < width ? along.f * float(load_global(k.row(b, h, t) + d)) : 0.0f));
  }
}

/// dk = f (dy - (dy . y) y). Grid and blocks as copy_rows_kernel.
__global__ void normalize_backward_kernel(View<const Bf16> k, View<const Bf16> dy, View<Bf16> dk, int width, int L) {
  const int t = int(blockIdx.x) * kWarps + int(threadIdx.y), h = int(blockIdx.y), b = int(blockIdx.z);
  if (t >= L) return;
  const Along along(k.row(b, h, t), dy.row(b, h, t), width);
  for (int d = int(threadIdx.x); d < width; d += 32) {
    const float y = along.f * float(load_global(k.row(b, h, t) + d)), x = float(load_global(dy.row(b, h, t) + d));
    store_global(dk.row(b, h, t) + d, Bf16(along.f * (x - along.dot * y)));
  }
}

/// The blocks of a kernel with a warp per row.
LaunchConfig blocks_of(const RowsOfHeads& rows, int count) {
  return {dim3(unsigned(ceil_div(count, kWarps)), unsigned(rows.H), unsigned(rows.B)), dim3(32, kWarps)};
}

}  // namespace

void copy_rows(const RowsOfHeads& rows, const View<const Bf16>& from, int from_width, const View<Bf16>& to,
               int to_width) {
  launch(copy_rows_kernel<Bf16>, blocks_of(rows, rows.count), from, from_width, to, to_width, rows.count);
}

void copy_rows(const RowsOfHeads& rows, const View<const float>& from, int from_width, const View<float>& to,
               int to_width) {
  launch(copy_rows_kernel<float>, blocks_of(rows, rows.count), from, from_width, to, to_width, rows.count);
}

void zero_rows(const RowsOfHeads& rows, const View<float>& to, int first, int width) {
  launch(zero_rows_kernel, blocks_of(rows, rows.count - first), to, first, rows.count, width);
}

void normalize_rows(const RowsOfHeads& rows, const View<const Bf16>& k, int width, const View<Bf16>& y, int to_width) {
  launch(normalize_kernel, blocks_of(rows, rows.count), k, width, y, to_width, rows.count);
}

void normalize_rows_backward(const RowsOfHeads& rows, const View<const Bf16>& k, const View<const Bf16>& dy,
                             const View<Bf16>& dk, int width) {
  launch(normalize_backward_kernel, blocks_of(rows, rows.count), k, dy, dk, width, rows.count);
}

}  // namespace tutorial::delta_rule
