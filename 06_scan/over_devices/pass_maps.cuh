#pragma once
/// @file
/// The map of a device from a pass of the chapter's `dispatch`.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>

#include "06_scan/over_devices/chapters.hpp"
#include "06_scan/over_devices/maps.cuh"
#include "common/ceil_div.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::over_devices {
namespace {

/// [v | -k]. Grid (B H, up to 65535 positions, blocks of the elements of a position's row).
__global__ void values_kernel(Arguments a, View<__nv_bfloat16> values) {
  const int j = int(blockIdx.z * kThreads + threadIdx.x);
  if (j >= a.Dv + a.Dk) return;
  const int b = int(blockIdx.x) / a.H, h = int(blockIdx.x) % a.H;
  for (int t = int(blockIdx.y); t < a.L; t += int(gridDim.y)) {
    store_global(values.row(b, h, t) + j, j < a.Dv ? load_global(a.v.row(b, h, t) + j)
                                                   : __nv_bfloat16(-float(load_global(a.k.row(b, h, t) + j - a.Dv))));
  }
}

/// The problem with the values [v | -k] and outputs that nobody reads, both in workspace.
[[maybe_unused]] Arguments with_keys_as_values(Arguments x) {
  const int width = x.Dv + x.Dk;
  const std::size_t size = heads(x) * x.L * width;
  auto* values = workspace<__nv_bfloat16>("devices: values and their outputs", 2 * size);
  const View<__nv_bfloat16> wide = packed(values, x.H, x.L, width);
  launch(values_kernel, {dim3(unsigned(heads(x)), unsigned(std::min(x.L, 65535)), ceil_div(width, kThreads)), kThreads},
         x, wide);
  x.v = read_only(wide), x.o = packed(values + size, x.H, x.L, width), x.Dv = width;
  return x;
}

/// Computes a device's own map, and its outputs where no state comes before it.
template <Rule kRule>
void write_map(const Arguments& share, bool is_first, float* map) {
  Arguments x = share;
  if constexpr (kRule == Rule::delta_rule) {
    x.final_state = packed(map, x.H, x.Dk, x.Dv + x.Dk);
    if (!is_first) x = with_keys_as_values(x);
  } else {
    x.final_state = packed(map, x.H, x.Dk, x.Dv);
  }
  dispatch(as_chapter<kRule>(x));
  if (kRule == Rule::simple_gla) sum_gates(x, map + state_size(x));
}

}  // namespace
}  // namespace tutorial::over_devices
