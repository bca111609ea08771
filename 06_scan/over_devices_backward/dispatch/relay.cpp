/// @file
/// `relay`: the state goes from device to device, then its gradient comes back.
///
/// Idea: gradients need the state before a device's positions and the gradient with respect to the state after them. So
/// the devices first walk in the order of the sequence, as `relay` of the outputs does, and pass on states. Then they
/// compute gradients in the opposite order, from the last to the first, and pass on what the gradient with respect to
/// the state before their positions is.
/// Equation:
///
///   n = 0 ... N - 2    device n: from S before its first position to S after its last
///   n = N - 1 ... 0    device n: from that S, and dS after its last position, to all its gradients and to dS before
///                      its first
///
/// dS after the last device is dfinal_state; dS before the first is dinitial_state.
/// Shapes: on device n the positions from L n / N to L (n + 1) / N of all tensors; states and their gradients
/// [B, H, Dk, Dv] fp32.
/// Thread mapping: that of the chapter's `dispatch`, of its outputs and of its gradients (02, 04 or 05).
/// Synchronization: as over_devices/1_relay.cpp, in both directions.
/// Work: that of the gradients on one device, and a pass of the outputs on all devices but the last.
/// Bytes: each device but one sends 4 B H Dk Dv over a link in each direction.
/// Bound by: one device after the other, twice.
/// Requires: as over_devices/1_relay.cpp; what `dispatch` requires for gradients.
/// Weakness: N - 1 devices wait at any time. The pass for the states computes outputs that nobody reads.
/// Sources: NCCL's documentation, "Point-to-point communication"; the adjoint of a scan: Martin and Cundy, arXiv
/// 1709.04057.

#include <vector>

#include "06_scan/over_devices/shares.hpp"
#include "06_scan/over_devices_backward/chapters.hpp"
#include "06_scan/over_devices_backward/dispatch/variants.hpp"
#include "06_scan/over_devices_backward/forward_part.hpp"
#include "06_scan/over_devices_backward/gradient_shares.hpp"
#include "common/device/device_group.hpp"
#include "common/device/workspace.hpp"

namespace tutorial::over_devices {

template <Rule kRule>
void relay_backward(const BackwardArguments& a) {
  DeviceGroup& group = DeviceGroup::of(a.N);
  const auto send = [&](const float* state, int from, int to, const char* tag) {
    float* received = nullptr;
    group.on(to, [&] { received = workspace<float>(tag, state_size(a)); });
    group.send(state, from, received, to, state_size(a));
    return packed<const float>(received, a.H, a.Dk, a.Dv);
  };
  std::vector<BackwardArguments> shares;
  for (int n = 0; n < a.N; ++n) shares.push_back(gradient_share_of(n));
  group.run([&] {
    for (int n = 0; n + 1 < a.N; ++n) {
      float* after = nullptr;
      group.on(n, [&] {
        Arguments forward = forward_part(shares[n]);
        after = workspace<float>("devices: state after", state_size(a));
        forward.final_state = packed(after, a.H, a.Dk, a.Dv);
        dispatch(as_chapter<kRule>(forward));
      });
      shares[n + 1].initial_state = send(after, n, n + 1, "devices: state before");
    }
    for (int n = a.N - 1; n >= 0; --n) {
      BackwardArguments& share = shares[n];
      float* before = nullptr;
      group.on(n, [&] {
        if (n > 0) {
          before = workspace<float>("devices: gradient before", state_size(a));
          share.dinitial_state = packed(before, a.H, a.Dk, a.Dv);
        }
        dispatch_backward(as_chapter<kRule>(share));
      });
      if (n > 0) shares[n - 1].dfinal_state = send(before, n, n - 1, "devices: gradient after");
    }
  });
}

template void relay_backward<Rule::linear_attention>(const BackwardArguments&);
template void relay_backward<Rule::simple_gla>(const BackwardArguments&);
template void relay_backward<Rule::delta_rule>(const BackwardArguments&);

}  // namespace tutorial::over_devices
