/// @file
/// Stage 5, `dispatch`: what a user calls. It adds no product of its own. It supports widths, rows and keys that
/// `both_ends` does not.
///
/// Idea: a column of zeros in q and k, or in v and do, changes no other column of a gradient. So copies of the tensors
/// with widths that are multiples of 16 turn every problem up to Dk = Dv = 256 into one that `both_ends` supports. The
/// copy of k is also where keys are normalised, and the copy back of dk is where the gradient goes through it. Both are
/// a pass over rows, a warp per row, beside a copy that is made anyway.
/// Grows out of: 4_both_ends.cu; dispatch: the kernels are those of `both_ends`, and this file prepares their tensors
/// Improves on: `both_ends` does not normalise keys, and it does not support widths that are no multiple of 16 or rows
/// that are not aligned.
/// Unchanged: the products.
/// Equation: with `normalize_keys`, y_t = f_t k_t, f_t = (k_t . k_t + eps)^(-1/2), and dk_t = f_t (dy_t - (dy_t . y_t)
/// y_t). y and dy are rounded to bf16, sums over a row are in fp32.
/// Shapes: those of `both_ends`; copies [B, H, L, 16 ceil(D / 16)] bf16, and of states fp32.
/// Thread mapping: in the copies block (4 rows, h, b), a warp per row.
/// Bytes: where copies are needed, each of q, k, v, do and the gradients is read and written once more.
/// Bound by: as `both_ends`.
/// Requires: Dk and Dv up to 256.
/// Fallback: none; a wider problem is for `chunkwise`.
/// Weakness: a normalised key that is rounded to bf16 is not exactly of length 1: its length is off by up to 2^-9.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <utility>

#include "05_deltanet_wy/delta_rule.hpp"
#include "05_deltanet_wy/delta_rule_backward.hpp"
#include "common/ceil_div.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/warp.cuh"
#include "common/device/workspace.hpp"
#include "common/parts.hpp"

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

/// Widths up to a multiple of 16.
int padded(int width) {
  return ceil_div(width, 16) * 16;
}

/// A problem in memory of its own, with padded widths.
struct Copies {
  const Bf16BackwardArguments& g;
  unsigned char* memory;  ///< null: only the sizes are wanted
  std::int64_t bytes = 0;
  int Dk = padded(g.Dk), Dv = padded(g.Dv);

  /// A [B, H, rows, width] tensor in the memory that is left.
  template <class T>
  View<T> take(int rows, int width) {
    const View<T> view = packed(memory ? reinterpret_cast<T*>(memory + bytes) : nullptr, g.H, rows, width);
    bytes += std::int64_t(g.B) * g.H * rows * width * std::int64_t(sizeof(T));
    return view;
  }

  /// The states come first: they are aligned to 4 bytes, the others to 16 bytes since their widths are.
  Bf16BackwardArguments arguments() {
    const auto state = [&](bool there) { return there ? take<float>(Dk, Dv) : View<float>{}; };
    const auto keys = [&] { return take<Bf16>(g.L, Dk); };
    const auto values = [&] { return take<Bf16>(g.L, Dv); };
    Bf16BackwardArguments p = g;
    p.Dk = Dk, p.Dv = Dv, p.normalize_keys = false;
    p.initial_state = read_only(state(g.initial_state.data)), p.dfinal_state = read_only(state(g.dfinal_state.data));
    p.dinitial_state = state(g.dinitial_state.data);
    p.q = read_only(keys()), p.k = read_only(keys()), p.dq = keys(), p.dk = keys();
    p.v = read_only(values()), p.d_o = read_only(values()), p.dv = values();
    return p;
  }
};

template <class T>
View<T> writable(const View<const T>& view) {
  return {const_cast<T*>(view.data), view.stride_b, view.stride_h, view.stride_l};
}

/// The blocks of a kernel with a warp per row.
LaunchConfig rows_of(const Bf16BackwardArguments& g, int count) {
  return {dim3(unsigned(ceil_div(count, kWarps)), unsigned(g.H), unsigned(g.B)), dim3(32, kWarps)};
}

void on_copies(const Bf16BackwardArguments& g) {
  Copies sizes{g, nullptr};
  sizes.arguments();
  Copies copies{g, workspace<unsigned char>("delta_rule --backward: copies", std::size_t(sizes.bytes))};
  const Bf16BackwardArguments p = copies.arguments();
  const auto copy = [&]<class T>(const View<const T>& from, int from_width, const View<T>& to, int to_width,
                                 int count) {
    if (to.data && from.data) {
      launch(copy_rows_kernel<T>, rows_of(g, count), from, from_width, to, to_width, count);
    }
  };
  copy(g.q, g.Dk, writable(p.q), p.Dk, g.L);
  copy(g.v, g.Dv, writable(p.v), p.Dv, g.L);
  copy(g.d_o, g.Dv, writable(p.d_o), p.Dv, g.L);
  if (g.normalize_keys) {
    launch(normalize_kernel, rows_of(g, g.L), g.k, g.Dk, writable(p.k), p.Dk, g.L);
  } else {
    copy(g.k, g.Dk, writable(p.k), p.Dk, g.L);
  }
  for (const auto& [from, to] : {std::pair{g.initial_state, p.initial_state}, {g.dfinal_state, p.dfinal_state}}) {
    // Rows from g.Dk on meet columns of zeros in q and k alone: any finite number would do, so they become zeros.
    if (from.data && p.Dk > g.Dk) launch(zero_rows_kernel, rows_of(g, p.Dk - g.Dk), writable(to), g.Dk, p.Dk, p.Dv);
    copy(from, g.Dv, writable(to), p.Dv, g.Dk);
  }
  end_part("copies");
  both_ends_backward(p);
  copy(read_only(p.dq), p.Dk, g.dq, g.Dk, g.L);
  copy(read_only(p.dv), p.Dv, g.dv, g.Dv, g.L);
  if (g.normalize_keys) {
    launch(normalize_backward_kernel, rows_of(g, g.L), g.k, read_only(p.dk), g.dk, g.Dk, g.L);
  } else {
    copy(read_only(p.dk), p.Dk, g.dk, g.Dk, g.L);
  }
  copy(read_only(p.dinitial_state), p.Dv, g.dinitial_state, g.Dv, g.Dk);
  end_part("copies back");
}

}  // namespace

void dispatch_backward(const Bf16BackwardArguments& g) {
  tensor_core_backward_unsupported(g).empty() ? both_ends_backward(g) : on_copies(g);
}

std::string dispatch_backward_unsupported(const Bf16BackwardArguments& g) {
  if (tensor_core_backward_unsupported(g).empty()) return "";
  return tensor_core_backward_unsupported(Copies{g, nullptr}.arguments());
}

std::string dispatch_backward_note(const Bf16BackwardArguments& g) {
  const std::string reason = tensor_core_backward_unsupported(g);
  return reason.empty() ? "both_ends" : "both_ends on copies: " + reason;
}

std::int64_t dispatch_backward_memory(const Bf16BackwardArguments& g) {
  if (tensor_core_backward_unsupported(g).empty()) return tensor_core_backward_memory(g);
  Copies copies{g, nullptr};
  const std::int64_t inside = tensor_core_backward_memory(copies.arguments());
  return inside + copies.bytes;
}

}  // namespace tutorial::delta_rule
