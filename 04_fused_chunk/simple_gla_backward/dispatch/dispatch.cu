/// @file
/// `dispatch`: what a user calls. It chooses a kernel, and supports the widths and rows that no other stage
/// does.
///
/// Idea: columns of zeros change nothing. A column of zeros in q and k adds a row of zeros to the state, one in v and
/// do adds a column of zeros, and no product with the other columns sees either. So tensors whose widths are no
/// multiples of 16, or whose rows are not aligned, are copied to tensors that are wider and aligned, and the gradients
/// are copied back. All other problems are computed as they are: by `hopper_gradients` if it supports them, else by
/// `pipelined` if that does, else by `segments`. Where tiles of more than 128 columns do not fit into the GPU's shared
/// memory, the gradients are computed as those of gla (dispatch/as_gla.hpp).
/// Improves on: the stages before require widths that are multiples of 16, and aligned rows.
/// Unchanged: all that is computed.
/// Shapes: as the stage that it chooses. The copies are packed: [B, H, L, D] in bf16 for D = Dk and Dv, each rounded up
/// to a multiple of 16, and states in fp32.
/// Thread mapping: a copying block takes rows of one head; its threads take the columns.
/// Bytes: as the stage that it chooses. Copies read and write every tensor but g and dg once more.
/// Bound by: as the stage that it chooses.
/// Requires: Dk and Dv up to 256, or up to 512 as gla.
/// Weakness: as the stage that it chooses. It takes `hopper_gradients` wherever it can, without an estimate.

#include <cuda_runtime.h>

#include <algorithm>

#include "04_fused_chunk/simple_gla_backward.hpp"
#include "04_fused_chunk/simple_gla_backward/dispatch/as_gla.hpp"
#include "04_fused_chunk/simple_gla_backward/requirements.hpp"
#include "common/ceil_div.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::simple_gla {
namespace {

constexpr int kCopyThreads = 64;
constexpr int kWidest = 64 * 1024;  // blocks of a copy per head, at most

/// The first rows and columns of a tensor, and zeros where it has fewer. Grid (up to kWidest, H, B).
template <class T>
__global__ void __launch_bounds__(kCopyThreads)
    copy_kernel(View<const T> from, int from_rows, int from_columns, View<T> to, int rows, int columns) {
  const int h = int(blockIdx.y), b = int(blockIdx.z);
  for (int row = int(blockIdx.x); row < rows; row += int(gridDim.x)) {
    for (int i = int(threadIdx.x); i < columns; i += kCopyThreads) {
      const bool is_there = row < from_rows && i < from_columns;
      store_global(to.row(b, h, row) + i, is_there ? load_global(from.row(b, h, row) + i) : T{});
    }
  }
}

/// The problem with widths that are multiples of 16, and packed.
struct Padded {
  int B, H, L, Dk, Dv;
  std::int64_t bytes = 0;  ///< that its tensors take
  View<__nv_bfloat16> q, k, v, d_o, dq, dk, dv;
  View<float> initial_state, dfinal_state, dinitial_state;

  /// @param memory `bytes` bytes, or null to find out how many these are
  Padded(const Bf16BackwardArguments& a, unsigned char* memory)
      : B(a.B), H(a.H), L(a.L), Dk(ceil_div(a.Dk, 16) * 16), Dv(ceil_div(a.Dv, 16) * 16) {
    for (auto* x : {&q, &k, &dq, &dk}) place(*x, memory, L, Dk);
    for (auto* x : {&v, &d_o, &dv}) place(*x, memory, L, Dv);
    if (a.initial_state.data) place(initial_state, memory, Dk, Dv);
    if (a.dfinal_state.data) place(dfinal_state, memory, Dk, Dv);
    if (a.dinitial_state.data) place(dinitial_state, memory, Dk, Dv);
  }

  template <class T>
  void place(View<T>& view, unsigned char* memory, int rows, int columns) {
    view = packed(memory ? reinterpret_cast<T*>(memory + bytes) : nullptr, H, rows, columns);
    bytes += std::int64_t(sizeof(T)) * B * H * rows * columns;
  }

  Bf16BackwardArguments arguments(Bf16BackwardArguments a) const {
    a.Dk = Dk, a.Dv = Dv;
    a.q = read_only(q), a.k = read_only(k), a.v = read_only(v), a.d_o = read_only(d_o);
    a.initial_state = read_only(initial_state), a.dfinal_state = read_only(dfinal_state);
    a.dq = dq, a.dk = dk, a.dv = dv, a.dinitial_state = dinitial_state;
    return a;
  }

  /// Copies a tensor to or from its place, if there is one.
  template <class T>
  void copy(const View<const T>& from, int from_rows, int from_columns, const View<T>& to, int rows,
            int columns) const {
    if (!from.data || !to.data) return;
    launch(copy_kernel<T>, {dim3(unsigned(std::min(rows, kWidest)), unsigned(H), unsigned(B)), kCopyThreads}, from,
           from_rows, from_columns, to, rows, columns);
  }
};

/// The kernel for a problem of whole fragments in aligned rows.
struct Kernel {
  const char* name;
  void (*run)(const Bf16BackwardArguments&);
  std::string (*note)(const Bf16BackwardArguments&);
};

Kernel kernel_for(const Bf16BackwardArguments& b) {
  if (hopper_gradients_backward_unsupported(b).empty()) {
    return {"hopper_gradients, ", hopper_gradients_backward, hopper_gradients_backward_note};
  }
  if (pipelined_backward_unsupported(b).empty()) return {"pipelined, ", pipelined_backward, segments_backward_note};
  return {"segments, ", segments_backward, segments_backward_note};
}

/// What is to be done with a problem.
struct Choice {
  std::string why_gla;     ///< why it is computed as gla; empty: by a kernel
  std::string why_padded;  ///< why on padded copies; empty: as it is

  explicit Choice(const Bf16BackwardArguments& b) : why_padded(walks_backward_unsupported(b)) {
    if (!why_padded.empty()) why_gla = walks_backward_unsupported(Padded(b, nullptr).arguments(b));
  }
};

}  // namespace

void dispatch_backward(const Bf16BackwardArguments& b) {
  const Choice choice(b);
  if (!choice.why_gla.empty()) return dispatch_as_gla_backward(b);
  if (choice.why_padded.empty()) return kernel_for(b).run(b);
  auto* memory = workspace<unsigned char>("simple_gla --backward: padded", std::size_t(Padded(b, nullptr).bytes));
  const Padded p(b, memory);
  p.copy(b.q, b.L, b.Dk, p.q, p.L, p.Dk);
  p.copy(b.k, b.L, b.Dk, p.k, p.L, p.Dk);
  p.copy(b.v, b.L, b.Dv, p.v, p.L, p.Dv);
  p.copy(b.d_o, b.L, b.Dv, p.d_o, p.L, p.Dv);
  p.copy(b.initial_state, b.Dk, b.Dv, p.initial_state, p.Dk, p.Dv);
  p.copy(b.dfinal_state, b.Dk, b.Dv, p.dfinal_state, p.Dk, p.Dv);
  const Bf16BackwardArguments padded = p.arguments(b);
  kernel_for(padded).run(padded);
  p.copy(read_only(p.dq), p.L, p.Dk, b.dq, b.L, b.Dk);
  p.copy(read_only(p.dk), p.L, p.Dk, b.dk, b.L, b.Dk);
  p.copy(read_only(p.dv), p.L, p.Dv, b.dv, b.L, b.Dv);
  p.copy(read_only(p.dinitial_state), p.Dk, p.Dv, b.dinitial_state, b.Dk, b.Dv);
}

std::string dispatch_backward_unsupported(const Bf16BackwardArguments& b) {
  return Choice(b).why_gla.empty() ? "" : as_gla_backward_unsupported(b);
}

std::string dispatch_backward_note(const Bf16BackwardArguments& b) {
  const Choice choice(b);
  if (!choice.why_gla.empty()) return "as gla, " + as_gla_backward_note(b) + ": " + choice.why_gla;
  const bool is_padded = !choice.why_padded.empty();
  const Bf16BackwardArguments walked = is_padded ? Padded(b, nullptr).arguments(b) : b;
  const Kernel kernel = kernel_for(walked);
  return kernel.name + kernel.note(walked) + (is_padded ? ", on padded copies: " + choice.why_padded : "");
}

std::int64_t dispatch_backward_memory(const Bf16BackwardArguments& b) {
  const Choice choice(b);
  if (!choice.why_gla.empty()) return as_gla_backward_memory(b);
  const bool is_padded = !choice.why_padded.empty();
  const Padded p(b, nullptr);
  const Bf16BackwardArguments walked = is_padded ? p.arguments(b) : b;
  // Where the tensors are not known yet, neither is the kernel.
  return (is_padded ? p.bytes : 0) +
         std::max(segments_backward_memory(walked), hopper_gradients_backward_memory(walked));
}

}  // namespace tutorial::simple_gla
