/// @file
/// `states_alone`: the first passes compute X and Y alone, no outputs and no gradients.
///
/// Idea: Y = sum over the positions of scale q_t^T do_t, each with the product of the gates up to its own. X is the
/// same sum from the other end, of k_t^T v_t. So the kernel that finds X (over_devices/segment_maps.cuh) finds Y, too.
/// It gets q for k, do for v, and all positions in reversed order: views whose rows lie at negative distances.
/// Grows out of: 2_all_gather.cu
/// Improves on: the first passes of `all_gather` compute outputs and gradients that nobody reads.
/// Unchanged: the all-gather, the composition, the pass of the gradients.
/// Equation: with G_t = g_1 + ... + g_t from the device's first position on (0 without gates), and G its last,
///
///   X = sum_t exp(G - G_t) k_t^T v_t          Y = sum_t exp(G_t) scale q_t^T do_t
///
/// In reversed order the gates behind position t are those before it. Its own gate is not among them, so the kernel
/// multiplies by that, too.
/// Shapes: as `all_gather`; the maps of a device's segments lie in device memory, 64 positions or more each.
/// Thread mapping: as over_devices/3_states_alone.cu, twice.
/// Synchronization: as over_devices/3_states_alone.cu.
/// Resources: as over_devices/3_states_alone.cu.
/// Work: 4 Dk Dv operations per position of the first passes, on tensor cores.
/// Bytes: the first passes read 4 (Dk + Dv) bytes per position and head.
/// Bound by: memory: all passes.
/// Requires: as `ring`; Dk and Dv multiples of 16, Dk <= 256, aligned rows. The delta rule has no such passes.
/// Weakness: no device computes while maps are under way. k and v, or q and do, are read once more by the walks of the
/// gradients.
/// Sources: as `all_gather`.

#include <cuda_runtime.h>

#include <algorithm>
#include <vector>

#include "06_scan/over_devices_backward.hpp"

#if TUTORIAL_NCCL
#include <nccl.h>
#endif

#include "06_scan/over_devices/chapters.hpp"
#include "06_scan/over_devices/device_group.hpp"
#include "06_scan/over_devices/measure.hpp"
#include "06_scan/over_devices/segment_maps.cuh"
#include "06_scan/over_devices/shares.hpp"
#include "06_scan/over_devices_backward/forward_part.hpp"
#include "06_scan/over_devices_backward/from_the_end.hpp"
#include "06_scan/over_devices_backward/gradient_maps.cuh"
#include "common/device/workspace.hpp"
#include "common/tile/requirements.hpp"

namespace tutorial::over_devices {
#if TUTORIAL_NCCL

template <Rule kRule>
void states_alone_backward(const BackwardArguments& a) {
  if (a.N == 1) return ring_backward<kRule>(a);
  DeviceGroup& group = DeviceGroup::of(a.N);
  const Arguments forward = forward_sizes(a);
  const std::size_t size = map_pair_size<kRule>(forward);
  std::vector<float*> maps(a.N);  // of all devices, on each of them
  group.run([&] {
    group.on_each([&](int n) {
      maps[n] = workspace<float>("devices: maps", a.N * size);
      const BackwardArguments& share = gradient_share_of(n);
      float *own = maps[n] + n * size, *Y = own + map_size<kRule>(forward);
      if (n + 1 < a.N) write_map<kRule>(from_the_start(share), own);           // nobody needs that of the last
      if (n > 0) write_sum<kRule>(from_the_end(share), true, share.scale, Y);  // nobody needs that of the first
    });
    in_one_group([&] {
      for (int n = 0; n < a.N; ++n) {
        const float* own = maps[n] + n * size;
        check_nccl(ncclAllGather(own, maps[n], size, ncclFloat32, group.communicator(n), group.stream(n)));
      }
    });
    group.on_each([&](int n) {
      BackwardArguments share = gradient_share_of(n);
      if (n > 0) share.initial_state = state_before<kRule>(forward, maps[n], n);
      if (n + 1 < a.N) share.dfinal_state = gradient_after<kRule>(forward, maps[n], n);
      dispatch_backward(as_chapter<kRule>(share));
    });
  });
}

#else

template <Rule kRule>
void states_alone_backward(const BackwardArguments&) {}

#endif

template <Rule kRule>
std::string states_alone_backward_unsupported(const BackwardArguments& a) {
  if (const std::string reason = ring_backward_unsupported<kRule>(a); !reason.empty()) return reason;
  if (const std::string reason = tile::unsupported_extents(tile::extents_of(a)); !reason.empty()) return reason;
  for (const View<const __nv_bfloat16>& view : {a.q, a.k, a.v, a.d_o}) {
    if (!tile::has_aligned_rows(view)) return "rows are not aligned to 16 bytes";
  }
  return "";
}

template <Rule kRule>
std::int64_t states_alone_backward_memory(const BackwardArguments& a) {
  if (a.N == 1) return ring_backward_memory<kRule>(a);
  const Arguments forward = forward_sizes(a);
  return share_memory<kRule>(a) + 4 * std::int64_t(a.N * map_pair_size<kRule>(forward) + 2 * state_size(a)) +
         segment_maps_memory<kRule>(longest_share(forward)) + gate_parts_memory<kRule>(longest_share(forward)) +
         dispatch_backward_memory(as_chapter<kRule>(longest_share(a)));
}

template <Rule kRule>
std::string states_alone_backward_note(const BackwardArguments& a) {
  return describe(a.N, all_gather_backward_link_bytes<kRule>(a),
                  measure(
                      a.N, [&] { states_alone_backward<kRule>(a); }, [&] { dispatch_backward(as_chapter<kRule>(a)); },
                      [&] { dispatch_backward(as_chapter<kRule>(gradient_share_of(0))); },
                      4 * std::int64_t(map_pair_size<kRule>(forward_sizes(a)))));
}

#define INSTANTIATE(RULE)                                                                 \
  template void states_alone_backward<RULE>(const BackwardArguments&);                    \
  template std::string states_alone_backward_unsupported<RULE>(const BackwardArguments&); \
  template std::int64_t states_alone_backward_memory<RULE>(const BackwardArguments&);     \
  template std::string states_alone_backward_note<RULE>(const BackwardArguments&)
INSTANTIATE(Rule::linear_attention);
INSTANTIATE(Rule::simple_gla);
#undef INSTANTIATE

}  // namespace tutorial::over_devices
