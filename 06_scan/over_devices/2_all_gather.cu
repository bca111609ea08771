/// @file
/// `all_gather`: devices tell what they do to any state, before they know the state.
///
/// Idea: the positions of a device are one map of a state, S -> M S + X, as a run of steps is in every other scan of
/// this chapter. A first pass of each device finds its own map, without a state before it. One all-gather brings all
/// maps to all devices. Each device composes those of the devices before it, which gives the state before its own
/// positions, and walks them from there. Devices are the lanes of a scan.
/// Grows out of: 1_relay.cpp; port to the GPU: maps are composed by a kernel
/// Improves on: in `relay` the devices work one after the other.
/// Unchanged: the local kernel is the chapter's `dispatch`.
/// Equation: with the map of device m, from its pass without a state,
///
///   linear_attention   M = 1                             X = S at its end
///   simple_gla         M = exp(sum of its g)             X = S at its end
///   delta_rule         M = I + E, E [Dk, Dk]             [X | E] = S at its end, Dv + Dk columns, for values [v | -k]
///
///   S before device n:   S = X_0;   S = M_m S + X_m for m = 1 to n - 1        the first device starts from S_0
///
/// For values -k the delta rule turns the state E into the change of I + E: E' = F (I + E) - I, F = I - beta_t k_t^T
/// k_t. So a walk from zeros ends with the product of all F, less I.
/// Shapes: as `relay`; maps [N] [B, H, Dk, Dv] and one number per head, or [N] [B, H, Dk, Dv + Dk], fp32, on each
/// device.
/// Thread mapping: a thread per element of a state goes through the maps; for the delta rule a block has 8 columns of S
/// in shared memory, and each thread computes one row of one column at a time.
/// Synchronization: one all-gather, in which every device waits for the slowest first pass.
/// Work: two passes for each device but the first and the last, which need one. A pass of the delta rule's maps has
/// Dv + Dk columns.
/// Bytes: each device receives N - 1 maps: 4 B H (Dk Dv + 1) bytes each, or 4 B H Dk (Dv + Dk).
/// Bound by: two passes over L / N positions. With N = 2 that is the time of `relay`; it grows no more with N.
/// Requires: as `relay`.
/// Weakness: the first pass computes outputs that nobody reads.
/// Sources: Blelloch, CMU-CS-90-190, section 1.2.1; NCCL's documentation, "In-place operations"; chapter 05's
/// `segments` for the delta rule's map.

#include <cuda_runtime.h>

#include <vector>

#include "06_scan/over_devices.hpp"
#include "06_scan/over_devices/chapters.hpp"
#include "06_scan/over_devices/maps.cuh"
#include "06_scan/over_devices/pass_maps.cuh"
#include "06_scan/over_devices/shares.hpp"
#include "common/device/device_group.hpp"
#include "common/device/workspace.hpp"

namespace tutorial::over_devices {

template <Rule kRule>
void all_gather(const Arguments& a) {
  if (a.N == 1) return relay<kRule>(a);
  DeviceGroup& group = DeviceGroup::of(a.N);
  const std::size_t size = map_size<kRule>(a);
  std::vector<float*> maps(a.N);  // of all devices, on each of them
  group.run([&] {
    group.on_each([&](int n) {
      maps[n] = workspace<float>("devices: maps", a.N * size);
      if (n + 1 < a.N) write_map<kRule>(share_of(n), n == 0, maps[n] + n * size);  // nobody needs that of the last
    });
    group.all_gather(maps, size);
    for (int n = 1; n < a.N; ++n) {
      group.on(n, [&] {
        auto* before = workspace<float>("devices: state before", state_size(a));
        compose<kRule>(a, maps_from<kRule>(maps[n], a), n, before);
        Arguments share = share_of(n);
        share.initial_state = packed<const float>(before, a.H, a.Dk, a.Dv);
        dispatch(as_chapter<kRule>(share));
      });
    }
  });
}

template void all_gather<Rule::linear_attention>(const Arguments&);
template void all_gather<Rule::simple_gla>(const Arguments&);
template void all_gather<Rule::delta_rule>(const Arguments&);

}  // namespace tutorial::over_devices
