/// @file
/// `all_gather`: devices tell what they do to any state and to any gradient of it, before they know either.
///
/// Idea: the same scan from the other end. What a device does to the gradient of a state is a map, dS -> M^T dS + Y, as
/// what it does to a state is one, S -> M S + X. M is the same. A pass of the outputs without a state before it finds M
/// and X, a pass of the gradients without a gradient behind it finds Y. One all-gather brings M, X and Y of all devices
/// to all. Each device composes what comes before it to S, and what comes after it, from the last device on, to dS.
/// Grows out of: 06_scan/over_devices/2_all_gather.cu
/// Improves on: with states that go from device to device and gradients that come back (the variant `relay`), the
/// devices work one after the other, twice.
/// Unchanged: maps of states, their all-gather and their composition. The local kernels are the chapter's `dispatch`, of
/// its outputs and of its gradients.
/// Equation: with M, X as in over_devices/2_all_gather.cu, and Y: dS before the first position, from a pass of the
/// gradients without dS behind the last,
///
///   S before device n:   S = X_0;                 S = M_m S + X_m          for m = 1 to n - 1
///   dS after device n:   dS = Y_{N-1};            dS = M_m^T dS + Y_m      for m = N - 2 down to n + 1
///
/// The first device starts from S_0, the last one from dfinal_state. Y depends on no state, X on no gradient, so
/// neither pass waits for the other's exchange.
/// Shapes: on device n the positions from L n / N to L (n + 1) / N of all tensors; M, X and Y of all devices [N], fp32, on each device.
/// Thread mapping: as over_devices/2_all_gather.cu. For M^T the kernel goes through E with rows and columns exchanged.
/// Synchronization: one all-gather.
/// Work: two passes of the gradients for each device but the first, which needs one, and a pass of the outputs for each
/// but the last.
/// Bytes: each device receives N - 1 pairs of maps: 4 B H (2 Dk Dv + 1) bytes each, or 4 B H Dk (2 Dv + Dk).
/// Bound by: two passes of the gradients and one of the outputs over L / N positions.
/// Requires: as over_devices/1_relay.cpp; what `dispatch` requires for gradients.
/// Weakness: the first passes compute outputs and gradients that nobody reads.
/// Sources: as over_devices/2_all_gather.cu; the adjoint of a scan: Martin and Cundy, arXiv 1709.04057.

#include <cuda_runtime.h>

#include <vector>

#include "06_scan/over_devices/pass_maps.cuh"
#include "06_scan/over_devices/shares.hpp"
#include "06_scan/over_devices_backward.hpp"
#include "06_scan/over_devices_backward/chapters.hpp"
#include "06_scan/over_devices_backward/forward_part.hpp"
#include "06_scan/over_devices_backward/gradient_maps.cuh"
#include "06_scan/over_devices_backward/gradient_shares.hpp"
#include "common/device/device_group.hpp"
#include "common/device/workspace.hpp"

namespace tutorial::over_devices {

template <Rule kRule>
void all_gather_backward(const BackwardArguments& a) {
  DeviceGroup& group = DeviceGroup::of(a.N);
  if (a.N == 1) {  // there is nothing to tell
    return group.run([&] { group.on(0, [&] { dispatch_backward(as_chapter<kRule>(gradient_share_of(0))); }); });
  }
  const Arguments forward = forward_sizes(a);
  const std::size_t size = map_pair_size<kRule>(forward);
  std::vector<float*> maps(a.N);  // of all devices, on each of them
  group.run([&] {
    group.on_each([&](int n) {
      maps[n] = workspace<float>("devices: maps", a.N * size);
      const BackwardArguments& share = gradient_share_of(n);
      float *own = maps[n] + n * size, *Y = own + map_size<kRule>(forward);
      if (n + 1 < a.N) write_map<kRule>(forward_part(share), n == 0, own);  // nobody needs that of the last
      if (n > 0) write_gradient_map<kRule>(share, Y);                       // nobody needs that of the first
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

template void all_gather_backward<Rule::linear_attention>(const BackwardArguments&);
template void all_gather_backward<Rule::simple_gla>(const BackwardArguments&);
template void all_gather_backward<Rule::delta_rule>(const BackwardArguments&);

}  // namespace tutorial::over_devices
