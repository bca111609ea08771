/// @file
/// `all_gather`: devices tell what they do to any state, before they know the state.
///
/// Idea: the positions of a device are one map of a state, S -> M S + X, as a run of steps is in every other scan of
/// this chapter. A first pass of each device finds its own map, without a state before it. One all-gather brings all
/// maps to all devices. Each device composes those of the devices before it, which gives the state before its own
/// positions, and walks them from there. Devices are the lanes of a scan.
/// Grows out of: 1_ring.cpp; port to the GPU: maps are composed by a kernel
/// Improves on: in `ring` the devices work one after the other.
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
/// Shapes: as `ring`; maps [N] [B, H, Dk, Dv] and one number per head, or [N] [B, H, Dk, Dv + Dk], fp32, on each
/// device.
/// Thread mapping: a thread per element of a state goes through the maps; for the delta rule a block has 8 columns of S
/// in shared memory, and each thread computes one row of one column at a time.
/// Synchronization: one all-gather, in which every device waits for the slowest first pass.
/// Work: two passes for each device but the first and the last, which need one. A pass of the delta rule's maps has
/// Dv + Dk columns.
/// Bytes: each device receives N - 1 maps: 4 B H (Dk Dv + 1) bytes each, or 4 B H Dk (Dv + Dk).
/// Bound by: two passes over L / N positions. With N = 2 that is the time of `ring`; it grows no more with N.
/// Requires: as `ring`.
/// Weakness: the first pass computes outputs that nobody reads.
/// Sources: Blelloch, CMU-CS-90-190, section 1.2.1; NCCL's documentation, "In-place operations"; chapter 05's
/// `segments` for the delta rule's map.

#include <cuda_runtime.h>

#include <algorithm>
#include <vector>

#include "06_scan/over_devices.hpp"

#if TUTORIAL_NCCL
#include <nccl.h>
#endif

#include "06_scan/over_devices/chapters.hpp"
#include "06_scan/over_devices/device_group.hpp"
#include "06_scan/over_devices/maps.cuh"
#include "06_scan/over_devices/measure.hpp"
#include "06_scan/over_devices/pass_maps.cuh"
#include "06_scan/over_devices/shares.hpp"
#include "common/device/workspace.hpp"

namespace tutorial::over_devices {

#if TUTORIAL_NCCL

template <Rule kRule>
void all_gather(const Arguments& a) {
  if (a.N == 1) return ring<kRule>(a);
  DeviceGroup& group = DeviceGroup::of(a.N);
  const std::size_t size = map_size<kRule>(a);
  std::vector<float*> maps(a.N);  // of all devices, on each of them
  group.run([&] {
    group.on_each([&](int n) {
      maps[n] = workspace<float>("devices: maps", a.N * size);
      if (n + 1 < a.N) write_map<kRule>(share_of(n), n == 0, maps[n] + n * size);  // nobody needs that of the last
    });
    in_one_group([&] {
      for (int n = 0; n < a.N; ++n) {
        const float* own = maps[n] + n * size;
        check_nccl(ncclAllGather(own, maps[n], size, ncclFloat32, group.communicator(n), group.stream(n)));
      }
    });
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

#else

template <Rule kRule>
void all_gather(const Arguments&) {}

#endif

template <Rule kRule>
std::string all_gather_unsupported(const Arguments& a) {
  if (const std::string reason = ring_unsupported<kRule>(a); !reason.empty() || kRule != Rule::delta_rule)
    return reason;
  if (a.Dk > kMaxKeyDim) return "Dk > 512: the columns of a state would not fit into shared memory";
  Arguments x = a;
  x.Dv += x.Dk;
  const std::string reason = dispatch_unsupported(as_chapter<kRule>(x));
  return reason.empty() ? "" : "its maps of Dv + Dk columns: " + reason;
}

template <Rule kRule>
std::int64_t all_gather_memory(const Arguments& a) {
  if (a.N == 1) return ring_memory<kRule>(a);
  const Arguments share = longest_share(a);
  std::int64_t dispatched = dispatch_memory(as_chapter<kRule>(share)) + gate_parts_memory<kRule>(share);
  if (kRule == Rule::delta_rule) {
    Arguments wide = share;
    wide.Dv += wide.Dk;
    const std::int64_t values_and_outputs = 2 * 2 * std::int64_t(heads(wide)) * wide.L * wide.Dv;
    dispatched = std::max(dispatched, dispatch_memory(as_chapter<kRule>(wide))) + values_and_outputs;
  }
  return share_memory<kRule>(a) + 4 * std::int64_t(a.N * map_size<kRule>(a) + state_size(a)) + dispatched;
}

template <Rule kRule>
std::int64_t all_gather_link_bytes(const Arguments& a) {
  return 4 * std::int64_t(map_size<kRule>(a)) * a.N * (a.N - 1);
}

template <Rule kRule>
std::string all_gather_note(const Arguments& a) {
  return describe(a.N, all_gather_link_bytes<kRule>(a),
                  measure(
                      a.N, [&] { all_gather<kRule>(a); }, [&] { dispatch(as_chapter<kRule>(a)); },
                      [&] { dispatch(as_chapter<kRule>(share_of(0))); }, 4 * std::int64_t(map_size<kRule>(a))));
}

#define INSTANTIATE(RULE)                                              \
  template void all_gather<RULE>(const Arguments&);                    \
  template std::string all_gather_unsupported<RULE>(const Arguments&); \
  template std::int64_t all_gather_memory<RULE>(const Arguments&);     \
  template std::int64_t all_gather_link_bytes<RULE>(const Arguments&); \
  template std::string all_gather_note<RULE>(const Arguments&)
INSTANTIATE(Rule::linear_attention);
INSTANTIATE(Rule::simple_gla);
INSTANTIATE(Rule::delta_rule);
#undef INSTANTIATE

}  // namespace tutorial::over_devices
