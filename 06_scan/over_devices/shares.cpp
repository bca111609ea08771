#include "06_scan/over_devices/shares.hpp"

#include <deque>

#include "06_scan/over_devices/device_group.hpp"
#include "common/device/buffer.hpp"
#include "common/device/error.hpp"
#include "common/device/stream.hpp"

namespace tutorial::over_devices {
namespace {

/// Memory of a device.
struct Share {
  Arguments arguments;
  DeviceBuffer<__nv_bfloat16> q, k, v, o;
  DeviceBuffer<float> g, beta, final_state;
};

std::deque<Share>& shares() {
  static auto& all = *new std::deque<Share>;  // never destroyed: at the end of the process CUDA may be gone before
  return all;
}

/// Copies `count` rows of `width` elements of each head, from any device to any, on current_stream().
template <class From, class T>
void copy_rows(const View<From>& from, const View<T>& to, int B, int H, int count, int width) {
  const bool packed_rows = from.stride_l == width && to.stride_l == width;
  const int copies = packed_rows ? 1 : count;
  const std::size_t bytes = sizeof(T) * std::size_t(width) * std::size_t(packed_rows ? count : 1);
  for (int b = 0; b < B; ++b) {
    for (int h = 0; h < H; ++h) {
      for (int t = 0; t < copies; ++t) {
        check(cudaMemcpyAsync(to.row(b, h, t), from.row(b, h, t), bytes, cudaMemcpyDefault, current_stream()));
      }
    }
  }
}

template <class T>
View<T> from_position(View<T> view, int t) {
  view.data += t * view.stride_l;
  return view;
}

/// A device's positions of an input, in new memory of the current device; null if the input is.
template <class T>
View<const T> copy_positions(const View<const T>& from, const Arguments& a, Positions positions, int width,
                             DeviceBuffer<T>& memory) {
  if (!from.data) return {};
  memory = DeviceBuffer<T>(std::size_t(a.B) * a.H * positions.count * width);
  const View<T> to = packed(memory.data(), a.H, positions.count, width);
  copy_rows(from_position(from, positions.first), to, a.B, a.H, positions.count, width);
  return read_only(to);
}

}  // namespace

Positions positions_of(int n, int N, int L) {
  const auto first = [&](int device) { return int(std::int64_t(L) * device / N); };
  return {first(n), first(n + 1) - first(n)};
}

const Arguments& share_of(int n) {
  return shares()[n].arguments;
}

void share_out(const Arguments& a) {
  shares().clear();
  DeviceGroup::of(a.N).run([&] {
    DeviceGroup::of(a.N).on_each([&](int n) {
      Share& share = shares().emplace_back();
      const Positions positions = positions_of(n, a.N, a.L);
      Arguments& x = share.arguments = a;
      x.L = positions.count;
      x.q = copy_positions(a.q, a, positions, a.Dk, share.q);
      x.k = copy_positions(a.k, a, positions, a.Dk, share.k);
      x.v = copy_positions(a.v, a, positions, a.Dv, share.v);
      x.g = copy_positions(a.g, a, positions, 1, share.g);
      x.beta = copy_positions(a.beta, a, positions, 1, share.beta);
      share.o = DeviceBuffer<__nv_bfloat16>(std::size_t(a.B) * a.H * x.L * a.Dv);
      share.o.fill_bytes(0xFF);  // NaN: what a stage forgets to write shows
      x.o = packed(share.o.data(), a.H, x.L, a.Dv);
      if (n > 0) x.initial_state = {};
      if (n + 1 < a.N || !a.final_state.data) {
        x.final_state = {};
      } else {
        share.final_state = DeviceBuffer<float>(std::size_t(a.B) * a.H * a.Dk * a.Dv);
        share.final_state.fill_bytes(0xFF);
        x.final_state = packed(share.final_state.data(), a.H, a.Dk, a.Dv);
      }
    });
  });
}

void collect(const Arguments& a) {
  for (int n = 0; n < a.N; ++n) {
    const Arguments& x = share_of(n);
    copy_rows(x.o, from_position(a.o, positions_of(n, a.N, a.L).first), a.B, a.H, x.L, a.Dv);
    if (x.final_state.data) copy_rows(x.final_state, a.final_state, a.B, a.H, a.Dk, a.Dv);
  }
  check(cudaStreamSynchronize(current_stream()));
}

}  // namespace tutorial::over_devices
