/// @file
/// `cub`: the same operator through CUB, NVIDIA's library of such building blocks, as a yardstick.
///
/// Idea: cub::DeviceScan takes any associative operator. It is a `single_pass` that NVIDIA tunes for every GPU, and it
/// needs only the maps and their composition.
/// Unchanged: the maps and their composition.
/// Equation: y_t = exp(g_t) y_{t-1} + x_t. All sequences together are scanned as one of B H L steps. The first step of
/// each sequence is the map {-infinity, exp(g_1) y_0 + x_1}, which ignores everything before it, because exp(-infinity)
/// = 0.
/// Shapes: x, y [B, H, L, 1]; g [B, H, L, 1]; states [B, H, 1]; fp32 in device memory.
/// Thread mapping: CUB decides it. One iterator makes maps of g and x as they are read, and another writes the values
/// of the results as y. One thread per sequence copies its last y.
/// Resources: a workspace for the tiles of CUB.
/// Work: that of `single_pass`, and one division per step to find the first step of a sequence.
/// Bytes: x, g and y once.
/// Bound by: memory.
/// Requires: D = 1 and packed tensors of less than 2^32 steps; a CUDA build, because the emulator has no CUB.
/// Weakness: its loads have 4 bytes, because each pair comes from two arrays. -infinity destroys the sums of the gates,
/// so there is no final_log_decay. Channels that lie side by side would have to be transposed.
/// Sources: the documentation of cub::DeviceScan::InclusiveScan.

#include "06_scan/scan/dispatch/cub.hpp"

#if TUTORIAL_CUDA

#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/iterator/transform_output_iterator.h>
#include <cub/device/device_scan.cuh>

#include <cmath>

#include "06_scan/affine.hpp"
#include "common/device/error.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/stream.hpp"
#include "common/device/workspace.hpp"

namespace tutorial::scan {
namespace {

struct Compose {
  __device__ Affine<float> operator()(const Affine<float>& first, const Affine<float>& second) const {
    return compose(first, second);
  }
};

/// Step i of all sequences.
struct Step {
  const float *x, *log_decay, *initial_state;
  unsigned L;

  __device__ Affine<float> operator()(unsigned i) const {
    const Affine<float> step{load_global(&log_decay[i]), load_global(&x[i])};
    if (i % L != 0) return step;
    return {-INFINITY, apply(step, initial_state ? load_global(&initial_state[i / L]) : 0.0f)};
  }
};

struct Value {
  __device__ float operator()(const Affine<float>& map) const { return map.value; }
};

/// If memory is null, CUB only returns how many bytes it needs.
cudaError_t inclusive_scan(const Arguments& a, void* memory, std::size_t& bytes) {
  const Step step{a.x.data, a.log_decay.data, a.initial_state.data, unsigned(a.L)};
  const auto steps = thrust::make_transform_iterator(thrust::counting_iterator<unsigned>(0), step);
  const auto y = thrust::make_transform_output_iterator(a.y.data, Value{});
  return cub::DeviceScan::InclusiveScan(memory, bytes, steps, y, Compose{}, std::int64_t(a.B) * a.H * a.L,
                                        current_stream());
}

constexpr int kThreads = 256;

__global__ void last_kernel(Arguments a) {
  const std::int64_t head = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (head < std::int64_t(a.B) * a.H)
    store_global(&a.final_state.data[head], load_global(&a.y.data[(head + 1) * a.L - 1]));
}

bool is_packed(const View<const float>& view, const Arguments& a) {
  return view.stride_l == 1 && view.stride_h == a.L && view.stride_b == std::int64_t(a.H) * a.L;
}

}  // namespace

void cub_scan(const Arguments& a) {
  auto bytes = std::size_t(cub_memory(a));
  check(inclusive_scan(a, workspace_bytes("scan: CUB", bytes), bytes));
  if (a.final_state.data) launch(last_kernel, {unsigned((std::int64_t(a.B) * a.H - 1) / kThreads + 1), kThreads}, a);
}

std::string cub_unsupported(const Arguments& a) {
  if (a.D > 1) return "D > 1: CUB scans what is contiguous";
  if (std::int64_t(a.B) * a.H * a.L > INT64_C(0xFFFFFFFF)) return "B H L > 2^32 - 1: steps are counted in unsigned";
  const View<const float> y{a.y.data, a.y.stride_b, a.y.stride_h, a.y.stride_l};
  const bool packed = is_packed(a.x, a) && is_packed(a.log_decay, a) && is_packed(y, a);
  return packed || !a.y.data ? "" : "sequences that are not packed";
}

std::int64_t cub_memory(const Arguments& a) {
  std::size_t bytes = 0;
  check(inclusive_scan(a, nullptr, bytes));
  return std::int64_t(bytes);
}

}  // namespace tutorial::scan

#else

namespace tutorial::scan {

void cub_scan(const Arguments&) {}

std::string cub_unsupported(const Arguments&) {
  return "CUB is for GPUs: build with the backend cuda";
}

std::int64_t cub_memory(const Arguments&) {
  return 0;
}

}  // namespace tutorial::scan

#endif
