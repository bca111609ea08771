/// @file
/// `head_by_head`: `relay`, for one head after the other.
///
/// Idea: heads do not depend on each other. As soon as a device has the state of one head at its end, the next device
/// can start on that head, while the first device goes on with its next head. The devices are the stages of a pipeline
/// that heads pass through. It needs no maps, so no position is read twice.
/// Improves on: in `relay` a device starts when the one before it has finished all heads.
/// Unchanged: the local kernel, and the bytes over the links.
/// Equation: that of `relay`, for each head. With tau for the time of all positions and heads on one device, a head
/// takes tau / (N H) on a device:
///
///   device 0   head 0   head 1   head 2   head 3                      time: (H + N - 1) heads: tau (H + N - 1) / (N H)
///   device 1            head 0   head 1   head 2   head 3
///
/// Shapes: as `relay`, one head of each batch entry at a time.
/// Thread mapping: as `relay`.
/// Synchronization: as `relay`, H times. A device sends a head's state in its own stream, before its next head: a
/// transfer beside a kernel would take multiprocessors from a kernel that counts on all of them.
/// Work: as `relay`.
/// Bytes: as `relay`, in messages of 4 B Dk Dv.
/// Bound by: memory, if one head fills a device; `dispatch` cuts its positions into segments for that.
/// Requires: as `relay`.
/// Weakness: while the pipeline fills and drains devices wait, for N - 1 heads each. H times as many kernels and
/// transfers start.
/// Sources: as `relay`; Huang et al., "GPipe", arXiv 1811.06965, for the time of such a pipeline.

#include "06_scan/over_devices/chapters.hpp"
#include "06_scan/over_devices/dispatch/variants.hpp"
#include "06_scan/over_devices/shares.hpp"
#include "common/device/device_group.hpp"
#include "common/device/workspace.hpp"

namespace tutorial::over_devices {

template <Rule kRule>
void head_by_head(const Arguments& a) {
  DeviceGroup& group = DeviceGroup::of(a.N);
  const std::size_t size = state_size(heads_of(a, 0, a.H));  // of one head of each batch entry
  group.run([&] {
    for (int head = 0; head < a.H; ++head) {
      const float* before = nullptr;  // the state before this device's positions, in its memory
      for (int n = 0; n < a.N; ++n) {
        float *after = nullptr, *received = nullptr;
        group.on(n, [&] {
          Arguments share = heads_of(share_of(n), head, a.H);
          if (n > 0) share.initial_state = packed(before, share.H, a.Dk, a.Dv);
          if (n + 1 < a.N) {
            after = workspace<float>("devices: state after", size);
            share.final_state = packed(after, share.H, a.Dk, a.Dv);
          }
          dispatch(as_chapter<kRule>(share));
        });
        if (n + 1 == a.N) break;
        group.on(n + 1, [&] { received = workspace<float>("devices: state before", size); });
        group.send(after, n, received, n + 1, size);
        before = received;
      }
    }
  });
}

template void head_by_head<Rule::linear_attention>(const Arguments&);
template void head_by_head<Rule::simple_gla>(const Arguments&);
template void head_by_head<Rule::delta_rule>(const Arguments&);

}  // namespace tutorial::over_devices
