/// @file
/// `head_by_head`: `ring`, for one head after the other.
///
/// Idea: heads do not depend on each other. As soon as a device has the state of one head at its end, the next device
/// can start on that head, while the first device goes on with its next head. The devices are the stages of a pipeline
/// that heads pass through. It needs no maps, so no position is read twice.
/// Grows out of: 1_ring.cpp
/// Improves on: in `ring` a device starts when the one before it has finished all heads.
/// Unchanged: the local kernel, and the bytes over the links.
/// Equation: that of `ring`, for each head. With T for the time of all positions and heads on one device, a head takes
/// T / (N H) on a device:
///
///   device 0   head 0   head 1   head 2   head 3                       time: (H + N - 1) heads: T (H + N - 1) / (N H)
///   device 1            head 0   head 1   head 2   head 3
///
/// Shapes: as `ring`, one head of each batch entry at a time.
/// Thread mapping: as `ring`.
/// Synchronization: as `ring`, H times. A device sends a head's state in its own stream, before its next head: a
/// transfer beside a kernel would take multiprocessors from a kernel that counts on all of them.
/// Work: as `ring`.
/// Bytes: as `ring`, in messages of 4 B Dk Dv.
/// Bound by: memory, if one head fills a device; `dispatch` cuts its positions into segments for that.
/// Requires: as `ring`.
/// Weakness: while the pipeline fills and drains devices wait, for N - 1 heads each. H times as many kernels and
/// transfers start.
/// Sources: as `ring`; Huang et al., "GPipe", arXiv 1811.06965, for the time of such a pipeline.

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
        in_one_group([&] {
          check_nccl(ncclSend(after, size, ncclFloat32, n + 1, group.communicator(n), group.stream(n)));
          check_nccl(ncclRecv(received, size, ncclFloat32, n, group.communicator(n + 1), group.stream(n + 1)));
        });
        before = received;
      }
    }
  });
}

#else

template <Rule kRule>
void head_by_head(const Arguments&) {}

#endif

template <Rule kRule>
std::string head_by_head_note(const Arguments& a) {
  const auto message = std::int64_t(sizeof(float) * state_size(heads_of(a, 0, a.H)));
  return describe(a.N, ring_link_bytes(a),
                  measure(
                      a.N, [&] { head_by_head<kRule>(a); }, [&] { dispatch(as_chapter<kRule>(a)); },
                      [&] { dispatch(as_chapter<kRule>(share_of(0))); }, message));
}

template <Rule kRule>
std::int64_t head_by_head_memory(const Arguments& a) {
  const auto states = 2 * std::int64_t(sizeof(float) * state_size(a)) / a.H;  // before and after
  return share_memory<kRule>(a) + states + dispatch_memory(as_chapter<kRule>(heads_of(longest_share(a), 0, a.H)));
}

template <Rule kRule>
std::string head_by_head_unsupported(const Arguments& a) {
  if (const std::string reason = why_not(a.N); !reason.empty()) return reason;
  return dispatch_unsupported(as_chapter<kRule>(heads_of(a, 0, a.H)));
}

#define INSTANTIATE(RULE)                                            \
  template void head_by_head<RULE>(const Arguments&);                \
  template std::int64_t head_by_head_memory<RULE>(const Arguments&); \
  template std::string head_by_head_note<RULE>(const Arguments&);    \
  template std::string head_by_head_unsupported<RULE>(const Arguments&)
INSTANTIATE(Rule::linear_attention);
INSTANTIATE(Rule::simple_gla);
INSTANTIATE(Rule::delta_rule);
#undef INSTANTIATE

}  // namespace tutorial::over_devices
