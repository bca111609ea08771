/// @file
/// `overlap`: the maps of one half of the heads are under way while the other half is computed.
///
/// Idea: heads do not depend on each other. Each device computes the maps of the first half of its heads, then those of
/// the second half. Transfers have a stream of their own, so the first half's maps travel while the second half's are
/// computed, and the second half's travel while the first half is walked.
/// Improves on: in `states_alone` no device computes while maps are under way.
/// Unchanged: the kernels.
/// Equation: that of `all_gather`, for each half of the heads.
///
///   stream      maps 0   maps 1   walk 0   walk 1
///   transfers            gather 0 gather 1
///
/// Shapes: as `states_alone`, H / 2 heads at a time.
/// Thread mapping: as `states_alone`.
/// Synchronization: events: a half's transfer waits for its maps, its walk waits for its transfer.
/// Work: as `states_alone`.
/// Bytes: as `states_alone`, in two all-gathers.
/// Bound by: memory, if half of the heads fills a device.
/// Requires: as `states_alone`. A single head per batch entry is one part.
/// Weakness: a kernel of half of the heads starts and ends twice, and an all-gather costs its start twice.
/// Sources: NCCL's documentation, "Using NCCL with CUDA streams".

#include <cuda_runtime.h>

#include <vector>

#include "06_scan/over_devices/chapters.hpp"
#include "06_scan/over_devices/dispatch/segment_maps.cuh"
#include "06_scan/over_devices/dispatch/variants.hpp"
#include "06_scan/over_devices/maps.cuh"
#include "06_scan/over_devices/shares.hpp"
#include "common/device/device_group.hpp"
#include "common/device/workspace.hpp"

namespace tutorial::over_devices {

template <Rule kRule>
void overlap(const Arguments& a) {
  if (a.N == 1) return relay<kRule>(a);
  DeviceGroup& group = DeviceGroup::of(a.N);
  const int parts = overlapped_parts(a);
  std::vector<float*> maps(a.N);      // of all devices, on each of them, one part after the other
  std::vector<float*> gathered(a.N);  // those of a part
  group.run([&] {
    for (int part = 0; part < parts; ++part) {
      const std::size_t size = map_size<kRule>(heads_of(a, part, parts)),
                        first = part * a.N * map_size<kRule>(heads_of(a, 0, parts));
      group.on_each([&](int n) {
        maps[n] = workspace<float>("devices: maps", a.N * map_size<kRule>(a));
        gathered[n] = maps[n] + first;
        float* own = gathered[n] + n * size;
        if (n + 1 < a.N) write_map<kRule>(heads_of(share_of(n), part, parts), own);  // nobody needs that of the last
        put_after(group.transfer_stream(n, part), group.stream(n));
      });
      group.all_gather(gathered, size, part);
    }
    for (int part = 0; part < parts; ++part) {
      group.on_each([&](int n) {
        Arguments share = heads_of(share_of(n), part, parts);
        if (n > 0) {
          const std::size_t first = part * a.N * map_size<kRule>(heads_of(a, 0, parts));
          auto* before = workspace<float>("devices: state before", state_size(a));
          put_after(group.stream(n), group.transfer_stream(n, part));
          compose<kRule>(share, maps_from<kRule>(maps[n] + first, share), n, before);
          share.initial_state = packed<const float>(before, share.H, a.Dk, a.Dv);
        }
        dispatch(as_chapter<kRule>(share));
      });
    }
  });
}

template void overlap<Rule::linear_attention>(const Arguments&);
template void overlap<Rule::simple_gla>(const Arguments&);

}  // namespace tutorial::over_devices
