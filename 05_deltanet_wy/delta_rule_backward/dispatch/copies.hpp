#pragma once
/// @file
/// What `dispatch` of `--backward` does where the kernels do not support widths, rows or keys: the problem on copies,
/// with widths that are multiples of 16, and with keys that are normalised on the way. For `delta_rule` and the
/// operators with gates, whose arguments are those of `delta_rule` and gates.

#include <cuda_bf16.h>

#include <cstdint>
#include <utility>

#include "05_deltanet_wy/delta_rule_backward.hpp"
#include "common/device/workspace.hpp"
#include "common/parts.hpp"
#include "common/view.hpp"

namespace tutorial::delta_rule {

/// So many rows of each of B x H heads.
struct RowsOfHeads {
  int B, H, count;
};

/// Copies rows of `from_width` elements to rows of `to_width`: fewer, or more with zeros behind them.
void copy_rows(const RowsOfHeads&, const View<const __nv_bfloat16>& from, int from_width, const View<__nv_bfloat16>& to,
               int to_width);
/// The same in fp32.
void copy_rows(const RowsOfHeads&, const View<const float>& from, int from_width, const View<float>& to, int to_width);
/// Rows from `first` on become zeros.
void zero_rows(const RowsOfHeads&, const View<float>& to, int first, int width);
/// y = f k, with zeros behind; f = (k . k + kKeyEps)^(-1/2).
void normalize_rows(const RowsOfHeads&, const View<const __nv_bfloat16>& k, int width, const View<__nv_bfloat16>& y,
                    int to_width);
/// dk = f (dy - (dy . y) y).
void normalize_rows_backward(const RowsOfHeads&, const View<const __nv_bfloat16>& k,
                             const View<const __nv_bfloat16>& dy, const View<__nv_bfloat16>& dk, int width);

/// Widths up to a multiple of 16.
inline int padded(int width) {
  return (width + 15) / 16 * 16;
}

/// Arguments whose g and dg have a row of Dk numbers per position, which must be copied, too.
template <class Arguments>
concept HasRowsOfGates = requires {
  requires Arguments::kGatesAreRows;
};

/// The same memory, to be filled.
template <class T>
View<T> writable(const View<const T>& view) {
  return {const_cast<T*>(view.data), view.stride_b, view.stride_h, view.stride_l};
}

/// A problem in memory of its own, with padded widths. @tparam Arguments of `--backward` of one of the operators
template <class Arguments>
struct Copies {
  const Arguments& g;
  bool normalizes;        ///< whether the copy of k is normalised
  unsigned char* memory;  ///< null: only the sizes are wanted
  std::int64_t bytes = 0;

  /// A [B, H, rows, width] tensor in the memory that is left.
  template <class T>
  View<T> take(int rows, int width) {
    const View<T> view = packed(memory ? reinterpret_cast<T*>(memory + bytes) : nullptr, g.H, rows, width);
    bytes += std::int64_t(g.B) * g.H * rows * width * std::int64_t(sizeof(T));
    return view;
  }
  /// The states come first: they are aligned to 4 bytes, the others to 16 bytes since their widths are.
  Arguments arguments() {
    const int Dk = padded(g.Dk), Dv = padded(g.Dv);
    const auto state = [&](bool there) { return there ? take<float>(Dk, Dv) : View<float>{}; };
    const auto keys = [&] { return take<__nv_bfloat16>(g.L, Dk); };
    const auto values = [&] { return take<__nv_bfloat16>(g.L, Dv); };
    Arguments p = g;
    p.Dk = Dk, p.Dv = Dv, p.normalize_keys = g.normalize_keys && !normalizes;
    p.initial_state = read_only(state(g.initial_state.data)), p.dfinal_state = read_only(state(g.dfinal_state.data));
    p.dinitial_state = state(g.dinitial_state.data);
    p.q = read_only(keys()), p.k = read_only(keys()), p.dq = keys(), p.dk = keys();
    p.v = read_only(values()), p.d_o = read_only(values()), p.dv = values();
    if constexpr (HasRowsOfGates<Arguments>) p.g = read_only(take<float>(g.L, Dk)), p.dg = take<float>(g.L, Dk);
    return p;
  }
};

/// The sizes of a problem's copies, for what depends on sizes alone.
template <class Arguments>
Arguments sizes_of_copies(const Arguments& g, bool normalizes) {
  return Copies<Arguments>{g, normalizes, nullptr}.arguments();
}

/// Bytes of the copies.
template <class Arguments>
std::int64_t memory_of_copies(const Arguments& g) {
  Copies<Arguments> copies{g, false, nullptr};
  copies.arguments();
  return copies.bytes;
}

/// Computes the gradients with `run` on copies.
/// @param name of the copies' workspace @param normalizes whether the copy of k is normalised, and run gets such keys
template <class Arguments, class Run>
void on_copies(const char* name, const Arguments& g, bool normalizes, Run run) {
  Copies<Arguments> copies{g, normalizes, workspace<unsigned char>(name, std::size_t(memory_of_copies(g)))};
  const Arguments p = copies.arguments();
  const RowsOfHeads positions{g.B, g.H, g.L}, states{g.B, g.H, g.Dk};
  copy_rows(positions, g.q, g.Dk, writable(p.q), p.Dk);
  copy_rows(positions, g.v, g.Dv, writable(p.v), p.Dv);
  copy_rows(positions, g.d_o, g.Dv, writable(p.d_o), p.Dv);
  if (normalizes) {
    normalize_rows(positions, g.k, g.Dk, writable(p.k), p.Dk);
  } else {
    copy_rows(positions, g.k, g.Dk, writable(p.k), p.Dk);
  }
  const auto copy_states = [&](const auto& from, const auto& to) {
    if (!from.data) return;
    // Rows from g.Dk on meet columns of zeros in q and k alone: any finite number would do, so they become zeros.
    if (p.Dk > g.Dk) zero_rows({g.B, g.H, p.Dk}, writable(to), g.Dk, p.Dv);
    copy_rows(states, from, g.Dv, writable(to), p.Dv);
  };
  copy_states(g.initial_state, p.initial_state);
  copy_states(g.dfinal_state, p.dfinal_state);
  if constexpr (HasRowsOfGates<Arguments>) copy_rows(positions, g.g, g.Dk, writable(p.g), p.Dk);  // gates of 1 behind
  end_part("copies");
  run(p);
  copy_rows(positions, read_only(p.dq), p.Dk, g.dq, g.Dk);
  copy_rows(positions, read_only(p.dv), p.Dv, g.dv, g.Dv);
  if (normalizes) {
    normalize_rows_backward(positions, g.k, read_only(p.dk), g.dk, g.Dk);
  } else {
    copy_rows(positions, read_only(p.dk), p.Dk, g.dk, g.Dk);
  }
  if constexpr (HasRowsOfGates<Arguments>) copy_rows(positions, read_only(p.dg), p.Dk, g.dg, g.Dk);
  if (g.dinitial_state.data) copy_rows(states, read_only(p.dinitial_state), p.Dv, g.dinitial_state, g.Dv);
  end_part("copies back");
}

}  // namespace tutorial::delta_rule
