/// @file
/// `overlap`: the maps of one half of the heads are under way while the other half is computed.
///
/// Idea: heads do not depend on each other. Each device computes the maps of the first half of its heads, then those of
/// the second half. Transfers have a stream of their own, so the first half's maps travel while the second half's are
/// computed, and the second half's travel while the first half is walked.
/// Grows out of: 3_states_alone.cu
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

#include "06_scan/over_devices.hpp"

#if TUTORIAL_NCCL
#include <nccl.h>
#endif

#include "06_scan/over_devices/chapters.hpp"
#include "06_scan/over_devices/device_group.hpp"
#include "06_scan/over_devices/maps.cuh"
#include "06_scan/over_devices/measure.hpp"
#include "06_scan/over_devices/segment_maps.cuh"
#include "06_scan/over_devices/shares.hpp"
#include "common/device/workspace.hpp"
#include "common/tile/requirements.hpp"

namespace tutorial::over_devices {
namespace {

/// Parts of the heads of a batch entry.
int parts_of(const Arguments& a) {
  return a.H > 1 ? 2 : 1;
}

}  // namespace

#if TUTORIAL_NCCL

template <Rule kRule>
void overlap(const Arguments& a) {
  if (a.N == 1) return ring<kRule>(a);
  DeviceGroup& group = DeviceGroup::of(a.N);
  const int parts = parts_of(a);
  std::vector<float*> maps(a.N);  // of all devices, on each of them, one part after the other
  group.run([&] {
    for (int part = 0; part < parts; ++part) {
      const std::size_t size = map_size<kRule>(heads_of(a, part, parts)),
                        first = part * a.N * map_size<kRule>(heads_of(a, 0, parts));
      group.on_each([&](int n) {
        maps[n] = workspace<float>("devices: maps", a.N * map_size<kRule>(a));
        float* own = maps[n] + first + n * size;
        if (n + 1 < a.N) write_map<kRule>(heads_of(share_of(n), part, parts), own);  // nobody needs that of the last
        put_after(group.transfer_stream(n, part), group.stream(n));
      });
      in_one_group([&] {
        for (int n = 0; n < a.N; ++n) {
          const float* own = maps[n] + first + n * size;
          check_nccl(ncclAllGather(own, maps[n] + first, size, ncclFloat32, group.communicator(n),
                                   group.transfer_stream(n, part)));
        }
      });
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

#else

template <Rule kRule>
void overlap(const Arguments&) {}

#endif

template <Rule kRule>
std::string overlap_unsupported(const Arguments& a) {
  const std::string reason = ring_unsupported<kRule>(a);
  return reason.empty() ? tile::tensor_core_unsupported(a) : reason;
}

template <Rule kRule>
std::int64_t overlap_memory(const Arguments& a) {
  if (a.N == 1) return ring_memory<kRule>(a);
  return all_gather_memory<kRule>(a) + segment_maps_memory<kRule>(heads_of(longest_share(a), 0, parts_of(a)));
}

template <Rule kRule>
std::string overlap_note(const Arguments& a) {
  return describe(a.N, all_gather_link_bytes<kRule>(a),
                  measure(
                      a.N, [&] { overlap<kRule>(a); }, [&] { dispatch(as_chapter<kRule>(a)); },
                      [&] { dispatch(as_chapter<kRule>(share_of(0))); },
                      4 * std::int64_t(map_size<kRule>(heads_of(a, 0, parts_of(a))))));
}

#define INSTANTIATE(RULE)                                           \
  template void overlap<RULE>(const Arguments&);                    \
  template std::string overlap_unsupported<RULE>(const Arguments&); \
  template std::int64_t overlap_memory<RULE>(const Arguments&);     \
  template std::string overlap_note<RULE>(const Arguments&)
INSTANTIATE(Rule::linear_attention);
INSTANTIATE(Rule::simple_gla);
#undef INSTANTIATE

}  // namespace tutorial::over_devices
