#pragma once
/// @file
/// Sharing a problem out among devices, and collecting what they have computed. The functions for_each_input(a, f),
/// for_each_output(a, f) and for_each_state(a, f) of a problem name its tensors: f(tensor, width) for those with a row
/// per position, f(tensor, belongs to the first device) for states, which belong to the first device or to the last.

#include <cstdint>
#include <deque>
#include <type_traits>

#include "06_scan/over_devices.hpp"
#include "06_scan/over_devices/shares.hpp"
#include "common/device/buffer.hpp"
#include "common/device/device_group.hpp"
#include "common/device/error.hpp"
#include "common/device/stream.hpp"

namespace tutorial::over_devices {

/// f(tensor, width) for each input with a row per position.
template <class F>
void for_each_input(const Arguments& a, F f) {
  f(&Arguments::q, a.Dk), f(&Arguments::k, a.Dk), f(&Arguments::v, a.Dv), f(&Arguments::g, 1), f(&Arguments::beta, 1);
}
/// The same for each output.
template <class F>
void for_each_output(const Arguments& a, F f) {
  f(&Arguments::o, a.Dv);
}
/// f(state, whether it belongs to the first device).
template <class F>
void for_each_state(const Arguments& /*a*/, F f) {
  f(&Arguments::initial_state, true), f(&Arguments::final_state, false);
}

/// What a device has of a problem.
template <class Arguments>
struct Share {
  Arguments arguments;                         ///< views of its memory
  std::deque<DeviceBuffer<std::byte>> memory;  ///< of its tensors
};

/// Those of all devices, which share_out() fills.
template <class Arguments>
std::deque<Share<Arguments>>& shares() {
  static auto& all = *new std::deque<Share<Arguments>>;  // never destroyed: CUDA may be gone before the process ends
  return all;
}

/// Runs of memory that together have `rows` rows of each head: for each batch entry one per head, or a single one if
/// the heads of a position lie inside of it.
struct Runs {
  int per_batch;
  std::int64_t elements;  ///< of each

  /// Those of a view of `rows` rows.
  template <class T>
  Runs(const View<T>& view, int H, int rows, int width)
      : per_batch(view.stride_h < view.stride_l ? 1 : H),
        elements((rows - 1) * view.stride_l + (per_batch == 1 ? (H - 1) * view.stride_h : 0) + width) {}
};

/// A view like `view` of `rows` rows, in new memory of the current device.
template <class T>
View<T> allocate_like(const View<T>& view, int B, int H, int rows, int width,
                      std::deque<DeviceBuffer<std::byte>>& memory) {
  const Runs runs(view, H, rows, width);
  // Each begins at a multiple of 16 bytes, as the first row of a tensor does.
  const std::int64_t distance = (runs.elements + 15) / 16 * 16;
  memory.emplace_back(sizeof(T) * std::size_t(B) * std::size_t(runs.per_batch * distance));
  memory.back().fill_bytes(0xFF);  // NaN: what a stage forgets to write shows
  return {reinterpret_cast<T*>(memory.back().data()), runs.per_batch * distance,
          runs.per_batch == 1 ? view.stride_h : distance, view.stride_l};
}

/// Copies rows, and what lies between them, to a view with as many elements between rows, from any device to any.
template <class From, class T>
void copy_rows(const View<From>& from, const View<T>& to, int B, int H, int rows, int width) {
  const Runs runs(to, H, rows, width);
  for (int b = 0; b < B; ++b) {
    for (int h = 0; h < runs.per_batch; ++h) {
      check(cudaMemcpyAsync(to.row(b, h, 0), from.row(b, h, 0), sizeof(T) * std::size_t(runs.elements),
                            cudaMemcpyDefault, current_stream()));
    }
  }
}

/// The view from position t on.
template <class T>
View<T> from_position(View<T> view, int t) {
  view.data += t * view.stride_l;
  return view;
}

/// The same memory, to be filled.
template <class T>
View<T> writable(const View<const T>& view) {
  return {const_cast<T*>(view.data), view.stride_b, view.stride_h, view.stride_l};
}
/// The same memory.
template <class T>
View<T> writable(const View<T>& view) {
  return view;
}

/// Makes the share of each device, with its inputs.
template <class Arguments>
void make_shares(const Arguments& a) {
  shares<Arguments>().clear();
  DeviceGroup::of(a.N).run([&] {
    DeviceGroup::of(a.N).on_each([&](int n) {
      Share<Arguments>& share = shares<Arguments>().emplace_back();
      const Positions positions = positions_of(n, a.N, a.L);
      Arguments& x = share.arguments = a;
      x.L = positions.count;
      for_each_input(a, [&](auto tensor, int width) {
        if (!(a.*tensor).data) return;
        const auto own = allocate_like(writable(a.*tensor), a.B, a.H, x.L, width, share.memory);
        copy_rows(from_position(a.*tensor, positions.first), own, a.B, a.H, x.L, width);
        x.*tensor = {own.data, own.stride_b, own.stride_h, own.stride_l};
      });
      for_each_output(a, [&](auto tensor, int width) {
        if ((a.*tensor).data) x.*tensor = allocate_like(a.*tensor, a.B, a.H, x.L, width, share.memory);
      });
      for_each_state(a, [&](auto tensor, bool is_first) {
        const auto& state = a.*tensor;
        x.*tensor = {};
        if (!state.data || n != (is_first ? 0 : a.N - 1)) return;
        const auto own = allocate_like(writable(state), a.B, a.H, a.Dk, a.Dv, share.memory);
        if constexpr (std::is_const_v<std::remove_pointer_t<decltype(state.data)>>) {
          copy_rows(state, own, a.B, a.H, a.Dk, a.Dv);
        }
        x.*tensor = {own.data, own.stride_b, own.stride_h, own.stride_l};
      });
    });
  });
}

template <class Arguments>
void collect_shares(const Arguments& a) {
  for (int n = 0; n < a.N; ++n) {
    const Arguments& x = shares<Arguments>()[n].arguments;
    for_each_output(a, [&](auto tensor, int width) {
      if (!(a.*tensor).data) return;
      copy_rows(x.*tensor, from_position(a.*tensor, positions_of(n, a.N, a.L).first), a.B, a.H, x.L, width);
    });
    for_each_state(a, [&](auto tensor, bool) {
      if constexpr (!std::is_const_v<std::remove_pointer_t<decltype((a.*tensor).data)>>) {
        if ((x.*tensor).data) copy_rows(x.*tensor, a.*tensor, a.B, a.H, a.Dk, a.Dv);
      }
    });
  }
  check(cudaStreamSynchronize(current_stream()));
}

template <Rule kRule, class Arguments>
std::int64_t share_memory_of(const Arguments& a) {
  std::int64_t bytes = 0;
  const std::int64_t rows = std::int64_t(heads(a)) * positions_of(a.N - 1, a.N, a.L).count;  // of the longest share
  const auto add_rows = [&](auto tensor, int width) {
    using Element = std::remove_pointer_t<decltype((a.*tensor).data)>;
    const std::int64_t of_rows = std::int64_t(sizeof(Element)) * rows * width;
    if (sizeof(Element) < sizeof(float)) {
      bytes += of_rows;
    } else if (kRule != Rule::linear_attention) {
      bytes += of_rows / 2;  // a rule has either g or beta
    }
  };
  for_each_input(a, add_rows);
  for_each_output(a, add_rows);
  for_each_state(a, [&](auto, bool) { bytes += std::int64_t(sizeof(float) * state_size(a)); });
  return bytes;
}

}  // namespace tutorial::over_devices
