/// @file
/// `ring`: each device waits for the state of the device before it.
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
/// Synchronization: the stream of device n + 1 waits in ncclRecv() for that of device n. The host waits for all of
/// them.
/// Work: that of one device.
/// Bytes: each device but the last sends 4 B H Dk Dv over a link, whatever L is.
/// Bound by: one device after the other: the time of one device alone, and N - 1 transfers. It saves memory, not time.
/// Requires: NCCL, N devices of one kind that can access each other's memory, N <= L; what `dispatch` requires.
/// Weakness: N - 1 devices wait at any time. What a device does to a state is known before the state is, and a head
/// does not need the other heads.
/// Sources: NCCL's documentation, "Point-to-point communication"; flash-linear-attention calls this context
/// parallelism.

#include "06_scan/over_devices.hpp"

#if TUTORIAL_NCCL
#include <nccl.h>
#endif

#include "06_scan/over_devices/chapters.hpp"
#include "06_scan/over_devices/device_group.hpp"
#include "06_scan/over_devices/measure.hpp"
#include "06_scan/over_devices/shares.hpp"
#include "common/device/workspace.hpp"

namespace tutorial::over_devices {

#if TUTORIAL_NCCL

template <Rule kRule>
void ring(const Arguments& a) {
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
      in_one_group([&] {
        check_nccl(ncclSend(after, state_size(a), ncclFloat32, n + 1, group.communicator(n), group.stream(n)));
        check_nccl(ncclRecv(received, state_size(a), ncclFloat32, n, group.communicator(n + 1), group.stream(n + 1)));
      });
      before = received;
    }
  });
}

#else

template <Rule kRule>
void ring(const Arguments&) {}

#endif

std::int64_t ring_link_bytes(const Arguments& a) {
  return std::int64_t(sizeof(float) * state_size(a)) * (a.N - 1);
}

template <Rule kRule>
std::string ring_note(const Arguments& a) {
  const auto message = std::int64_t(sizeof(float) * state_size(a));
  return describe(a.N, ring_link_bytes(a),
                  measure(
                      a.N, [&] { ring<kRule>(a); }, [&] { dispatch(as_chapter<kRule>(a)); },
                      [&] { dispatch(as_chapter<kRule>(share_of(0))); }, message));
}

template <Rule kRule>
std::int64_t ring_memory(const Arguments& a) {
  const auto states = 2 * std::int64_t(sizeof(float) * state_size(a));  // before and after
  return share_memory<kRule>(a) + states + dispatch_memory(as_chapter<kRule>(longest_share(a)));
}

template <Rule kRule>
std::string ring_unsupported(const Arguments& a) {
  if (const std::string reason = why_not(a.N); !reason.empty()) return reason;
  return dispatch_unsupported(as_chapter<kRule>(a));
}

#define INSTANTIATE(RULE)                                    \
  template void ring<RULE>(const Arguments&);                \
  template std::int64_t ring_memory<RULE>(const Arguments&); \
  template std::string ring_note<RULE>(const Arguments&);    \
  template std::string ring_unsupported<RULE>(const Arguments&)
INSTANTIATE(Rule::linear_attention);
INSTANTIATE(Rule::simple_gla);
INSTANTIATE(Rule::delta_rule);
#undef INSTANTIATE

}  // namespace tutorial::over_devices
