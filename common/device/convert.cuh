#pragma once
/// @file
/// Copies a [B, H, L, D] tensor into one of another element type, element by element.

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/view.hpp"

namespace tutorial {
namespace {

constexpr int kConvertRows = 8;  // of a block, a warp each

/// Grid ceil(B H L / kConvertRows).
template <class From, class To>
__global__ void convert_kernel(int B, int H, int L, int D, View<From> from, View<To> to) {
  const std::int64_t row = std::int64_t(blockIdx.x) * kConvertRows + threadIdx.y, head = row / L, t = row % L;
  if (head >= std::int64_t(B) * H) return;
  const From* source = from.row(head / H, head % H, t);
  To* destination = to.row(head / H, head % H, t);
  for (int d = int(threadIdx.x); d < D; d += 32) store_global(destination + d, To(float(load_global(source + d))));
}

/// Starts the copy on current_stream(); a number goes through fp32 and is rounded to nearest. Strides are free, rows
/// need no alignment, `from` and `to` do not overlap. Needs: no convert_unsupported().
/// @throws CudaError if the launch is refused
template <class From, class To>
void convert(int B, int H, int L, int D, const View<From>& from, const View<To>& to) {
  const std::int64_t rows = std::int64_t(B) * H * L;
  launch(convert_kernel<From, To>, {unsigned((rows - 1) / kConvertRows + 1), dim3(32, kConvertRows)}, B, H, L, D, from,
         to);
}

/// What convert() does not take, as a sentence; empty where it does.
inline std::string convert_unsupported(int B, int H, int L) {
  return std::int64_t(B) * H * L > std::int64_t(INT32_MAX) * kConvertRows ? "B H L > 2^34 positions: the grid" : "";
}

}  // namespace
}  // namespace tutorial
