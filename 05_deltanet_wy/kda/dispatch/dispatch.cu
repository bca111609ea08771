/// @file
/// `dispatch`: what a user calls.
///
/// Idea: choose a kernel that supports the problem, and the faster one of two. On Hopper that is `cluster` if there are
/// enough heads for its clusters, and `one_anchor` otherwise, or `two_products` if rows of g are not aligned; on other
/// GPUs it is `specialized_warps`. Where blocks have too little shared memory for it, `tensor_core` may still fit.
/// Problems that the tensor cores do not support are computed in fp32 by `recurrent_gpu`: widths that are no multiple of
/// 16 or too large, and rows that are not aligned. One kernel each copies q, k and v to fp32, and one copies the result
/// back.
/// Improves on: `cluster` supports neither every width nor every alignment, and leaves multiprocessors idle where heads
/// are few.
/// Unchanged: the kernels, shapes and bytes of what it chooses.
/// Bound by: as what it chooses.
/// Requires: Dk <= 256.
/// Weakness: rows that are not aligned, and widths that are no multiple of 16, could be copied to aligned bf16 rows of
/// a suitable width. No choice cuts the sequence into segments, and none looks at the gates: where they are so strong
/// that chunks take the long way (sub_chunk_anchors.cuh), `cluster` and `one_anchor` are slower than the estimate.

#include <cuda_runtime.h>

#include <algorithm>

#include "05_deltanet_wy/kda.hpp"
#include "05_deltanet_wy/kda/prepared.hpp"
#include "common/ceil_div.hpp"
#include "common/device/convert.cuh"
#include "common/device/device.hpp"
#include "common/device/workspace.hpp"

namespace tutorial::kda {
namespace {

/// q, k, v and o in fp32.
struct Copies {
  View<float> q, k, v, o;

  static std::int64_t count(const Bf16Arguments& a) {
    return 2 * std::int64_t(a.B) * a.H * a.L * (std::int64_t(a.Dk) + a.Dv);
  }
  /// @param memory of count() elements
  Copies(const Bf16Arguments& a, float* memory) {
    const std::int64_t rows = std::int64_t(a.B) * a.H * a.L;
    q = packed(memory, a.H, a.L, a.Dk);
    k = packed(q.data + rows * a.Dk, a.H, a.L, a.Dk);
    v = packed(k.data + rows * a.Dk, a.H, a.L, a.Dv);
    o = packed(v.data + rows * a.Dv, a.H, a.L, a.Dv);
  }
  Copies() = default;  // if only sizes are needed
};

/// The same problem in fp32.
FloatArguments in_fp32(const Bf16Arguments& a, const Copies& copies) {
  const auto read = [](const View<float>& x) { return View<const float>{x.data, x.stride_b, x.stride_h, x.stride_l}; };
  return {a.B,
          a.H,
          a.L,
          a.Dk,
          a.Dv,
          a.C,
          a.scale,
          a.normalize_keys,
          read(copies.q),
          read(copies.k),
          read(copies.v),
          a.g,
          a.beta,
          a.initial_state,
          copies.o,
          a.final_state};
}

void compute_in_fp32(const Bf16Arguments& a) {
  const Copies copies(a, workspace<float>("kda: q, k, v, o in fp32", std::size_t(Copies::count(a))));
  convert(a.B, a.H, a.L, a.Dk, a.q, copies.q);
  convert(a.B, a.H, a.L, a.Dk, a.k, copies.k);
  convert(a.B, a.H, a.L, a.Dv, a.v, copies.v);
  recurrent_gpu(in_fp32(a, copies));
  convert(a.B, a.H, a.L, a.Dv, copies.o, a.o);
}

// Microseconds, and bytes per microsecond, on an H200 with Dk = Dv = 128.
constexpr double kFirstChunk = 9, kClusterChunk = 2.85;  // cluster: until the first chunk is prepared; a chunk
constexpr double kTwoLaunches = 9, kBytes = 4e6;  // one_anchor: beside what follows; what limits the first kernel
constexpr double kWalkChunk = 0.95;               // the same: a chunk of the walk, if its bytes do not limit it

/// The bounds are rough, but far from the point where they are equal the choice is clear, and near it either will do.
bool cluster_is_faster(const Bf16Arguments& a) {
  if (!one_anchor_unsupported(a).empty()) return false;
  const std::int64_t heads = std::int64_t(a.B) * a.H, tiles = ceil_div(a.Dv, 64), blocks = heads * tiles;
  const std::int64_t clusters = heads * ceil_div(a.Dv, 128), units = multiprocessor_count();
  const std::int64_t at_a_time = std::max<std::int64_t>(1, units / 2);
  const double chunks = double(ceil_div(a.L, 64));
  const double cluster = kFirstChunk + double(ceil_div(clusters, at_a_time)) * chunks * kClusterChunk;
  // The walk reads what the first kernel has written once per tile, all but once from the second-level cache.
  const double written = double(two_products_memory(a)), read = double(heads * a.L) * double(8 * a.Dk);
  const double walk = std::max(double(ceil_div(blocks, units)) * chunks * kWalkChunk,
                               (written + double(heads * a.L) * double(4 * a.Dv)) / kBytes);
  return cluster < kTwoLaunches + (read + written) / kBytes + walk;
}

}  // namespace

void dispatch(const Bf16Arguments& a) {
  if (cluster_is_faster(a)) return cluster(a);
  if (one_anchor_unsupported(a).empty()) return one_anchor(a);
  if (warpgroup_chain_unsupported(a).empty()) return two_products(a);
  if (specialized_warps_unsupported(a).empty()) return specialized_warps(a);
  tensor_core_unsupported(a).empty() ? tensor_core(a) : compute_in_fp32(a);
}

std::string dispatch_unsupported(const Bf16Arguments& a) {
  if (tensor_core_unsupported(a).empty()) return "";
  if (const std::string unsupported = convert_unsupported(a.B, a.H, a.L); !unsupported.empty()) return unsupported;
  return recurrent_gpu_unsupported(in_fp32(a, {}));
}

std::string dispatch_note(const Bf16Arguments& a) {
  if (cluster_is_faster(a)) return "clusters of two blocks";
  if (one_anchor_unsupported(a).empty()) return "one_anchor";
  if (warpgroup_chain_unsupported(a).empty()) return "two_products";
  if (specialized_warps_unsupported(a).empty()) {
    return "specialized warps, " + std::to_string(walk_columns(a)) + " columns per block";
  }
  const std::string unsupported = tensor_core_unsupported(a);
  return unsupported.empty() ? "tensor_core: " + specialized_warps_unsupported(a)
                             : "recurrent_gpu in fp32: " + unsupported;
}

std::int64_t dispatch_memory(const Bf16Arguments& a) {
  if (cluster_is_faster(a)) return 0;
  if (warpgroup_chain_unsupported(a).empty()) return two_products_memory(a);
  if (tensor_core_unsupported(a).empty()) return prepared_memory(a);
  return std::int64_t(sizeof(float)) * Copies::count(a) + recurrent_gpu_memory(in_fp32(a, {}));
}

std::int64_t dispatch_bytes_moved(const Bf16Arguments& a) {
  if (cluster_is_faster(a)) return cluster_bytes_moved(a);
  if (one_anchor_unsupported(a).empty()) return one_anchor_bytes_moved(a);
  if (warpgroup_chain_unsupported(a).empty()) return two_products_bytes_moved(a);
  if (specialized_warps_unsupported(a).empty()) return specialized_warps_bytes_moved(a);
  return tensor_core_unsupported(a).empty() ? tensor_core_bytes_moved(a) : -1;
}

}  // namespace tutorial::kda
