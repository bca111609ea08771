#pragma once
/// @file
/// The table of g in device memory. A kernel of H blocks writes it before each call, so that a call can be
/// captured in a graph and no host memory has to live until it has run.

#include <cuda_runtime.h>

#include "03_gla/retention/gates.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::retention {
namespace {

/// Row h of the table by block h. Grid H.
__global__ void table_kernel(float* g, int Dk) {
  const int h = int(blockIdx.x);
  const auto log_gate = float(log1p(-exp2(-5.0 - h)));
  for (int d = int(threadIdx.x); d < Dk; d += int(blockDim.x)) store_global(&g[std::int64_t(h) * Dk + d], log_gate);
}

/// The call of gla on a table; the kernel that writes the table has been started.
/// @throws CudaError if the memory cannot be allocated or the launch is refused
template <class T>
gla::Arguments<T> with_table(const Arguments<T>& a) {
  float* g = workspace<float>("retention: g", std::size_t(a.H) * std::size_t(a.Dk));
  launch(table_kernel, {unsigned(a.H), 128}, g, a.Dk);
  return gated(a, g);
}

}  // namespace
}  // namespace tutorial::retention
