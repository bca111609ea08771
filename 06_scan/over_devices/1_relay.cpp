/// @file
/// `relay`: each device waits for the state of the device before it.
///
/// Idea: a device has L / N of the positions. What it needs of all positions before its own is one state for each head,
/// whatever their number. So each device computes its positions as one device alone would, from the state that it
/// receives, and sends the state at their end to the next device.
/// Grows out of: nothing
/// Equation:
///
///   device n: from S before its first position to o of all its positions and to S after its last
///   device 0 starts from S_0; device N - 1 ends with S_L
///
/// Shapes: on device n the positions from L n / N to L (n + 1) / N: q, k [B, H, L / N, Dk]; v, o [B, H, L / N, Dv] in
/// bf16; states [B, H, Dk, Dv] fp32.
/// Thread mapping: that of the chapter's `dispatch` (02, 04 or 05), which is the local kernel.
/// Synchronization: the stream of device n + 1 waits in ncclRecv() for that of device n (send() of
/// common/device/device_group.hpp). The host waits for all of them.
/// Work: that of one device.
/// Bytes: each device but the last sends 4 B H Dk Dv over a link, whatever L is.
/// Bound by: one device after the other: the time of one device alone, and N - 1 transfers. It saves memory, not time.
/// Requires: NCCL, N devices of one kind that can access each other's memory, N <= L; what `dispatch` requires.
/// Weakness: N - 1 devices wait at any time. What a device does to a state is known before the state is, and a head
/// does not need the other heads.
/// Sources: NCCL's documentation, "Point-to-point communication"; flash-linear-attention calls this context
/// parallelism.

#include "06_scan/over_devices.hpp"
#include "06_scan/over_devices/chapters.hpp"
#include "06_scan/over_devices/shares.hpp"
#include "common/device/device_group.hpp"
#include "common/device/workspace.hpp"

namespace tutorial::over_devices {

template <Rule kRule>
void relay(const Arguments& a) {
  DeviceGroup& group = DeviceGroup::of(a.N);
  group.run([&] {
    const float* before = nullptr;  // the state before this device's positions, in its memory
    for (int n = 0; n < a.N; ++n) {
      float *after = nullptr, *received = nullptr;
      group.on(n, [&] {
        Arguments share = share_of(n);
        if (n > 0) share.initial_state = packed(before, a.H, a.Dk, a.Dv);
        if (n + 1 < a.N) {
          after = workspace<float>("devices: state after", state_size(a));
          share.final_state = packed(after, a.H, a.Dk, a.Dv);
        }
        dispatch(as_chapter<kRule>(share));
      });
      if (n + 1 == a.N) break;
      group.on(n + 1, [&] { received = workspace<float>("devices: state before", state_size(a)); });
      group.send(after, n, received, n + 1, state_size(a));
      before = received;
    }
  });
}

template void relay<Rule::linear_attention>(const Arguments&);
template void relay<Rule::simple_gla>(const Arguments&);
template void relay<Rule::delta_rule>(const Arguments&);

}  // namespace tutorial::over_devices
