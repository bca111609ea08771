#pragma once
/// @file
/// The gates of retention as a table, one row for each head.

#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::retention {
namespace {

/// Row h of the table by block h. (From h = 20 on 1 - 2^(-5-h) itself is 1 in fp32.) Grid H.
__global__ void table_kernel(float* g, int Dk) {
  const int h = int(blockIdx.x);
  const auto log_gate = float(log1p(-exp2(-5.0 - h)));
  for (int d = int(threadIdx.x); d < Dk; d += int(blockDim.x)) store_global(&g[std::int64_t(h) * Dk + d], log_gate);
}

/// The table [H, Dk] of natural logarithms, in a workspace that the next call may reuse.
float* write_gate_table(int H, int Dk) {
  float* g = workspace<float>("retention: g", std::size_t(H) * std::size_t(Dk));
  launch(table_kernel, {unsigned(H), 128}, g, Dk);
  return g;
}

}  // namespace
}  // namespace tutorial::retention
