/// @file
/// `states_alone`: the first passes compute X and Y alone, no outputs and no gradients.
///
/// Idea: Y = sum over the positions of scale q_t^T do_t, each with the product of the gates up to its own. X is the
/// same sum from the other end, of k_t^T v_t. So the kernel that finds X (over_devices/dispatch/segment_maps.cuh) finds Y, too.
/// It gets q for k, do for v, and all positions in reversed order: views whose rows lie at negative distances.
/// Improves on: the first passes of `all_gather` compute outputs and gradients that nobody reads.
/// Unchanged: the all-gather, the composition, the pass of the gradients.
/// Equation: with b_t = g_1 + ... + g_t from the device's first position on (0 without gates), and b_end its last,
///
///   X = sum_t exp(b_end - b_t) k_t^T v_t          Y = sum_t exp(b_t) scale q_t^T do_t
///
/// In reversed order the gates behind position t are those before it. Its own gate is not among them, so the kernel
/// multiplies by that, too.
/// Shapes: as `all_gather`; the maps of a device's segments lie in device memory, 64 positions or more each.
/// Thread mapping: as over_devices/dispatch/states_alone.cu, twice.
/// Synchronization: as over_devices/dispatch/states_alone.cu.
/// Resources: as over_devices/dispatch/states_alone.cu.
/// Work: 4 Dk Dv operations per position of the first passes, on tensor cores.
/// Bytes: the first passes read 4 (Dk + Dv) bytes per position and head.
/// Bound by: memory: all passes.
/// Requires: as `relay`; Dk and Dv multiples of 16, Dk <= 256, aligned rows. The delta rule has no such passes.
/// Weakness: no device computes while maps are under way. k and v, or q and do, are read once more by the walks of the
/// gradients.
/// Sources: as `all_gather`.

#include <cuda_runtime.h>

#include <vector>

#include "06_scan/over_devices/dispatch/segment_maps.cuh"
#include "06_scan/over_devices/shares.hpp"
#include "06_scan/over_devices_backward/chapters.hpp"
#include "06_scan/over_devices_backward/dispatch/from_the_end.hpp"
#include "06_scan/over_devices_backward/dispatch/variants.hpp"
#include "06_scan/over_devices_backward/forward_part.hpp"
#include "06_scan/over_devices_backward/gradient_maps.cuh"
#include "06_scan/over_devices_backward/gradient_shares.hpp"
#include "common/device/device_group.hpp"
#include "common/device/workspace.hpp"

namespace tutorial::over_devices {

template <Rule kRule>
void states_alone_backward(const BackwardArguments& a) {
  if (a.N == 1) return all_gather_backward<kRule>(a);
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
    group.all_gather(maps, size);
    group.on_each([&](int n) {
      BackwardArguments share = gradient_share_of(n);
      if (n > 0) share.initial_state = state_before<kRule>(forward, maps[n], n);
      if (n + 1 < a.N) share.dfinal_state = gradient_after<kRule>(forward, maps[n], n);
      dispatch_backward(as_chapter<kRule>(share));
    });
  });
}

template void states_alone_backward<Rule::linear_attention>(const BackwardArguments&);
template void states_alone_backward<Rule::simple_gla>(const BackwardArguments&);

}  // namespace tutorial::over_devices
