/// @file
/// `all_gather`: devices tell what they do to any state and to any gradient of it, before they know either.
///
/// Idea: the same scan from the other end. What a device does to the gradient of a state is a map, dS -> M^T dS + Y, as
/// what it does to a state is one, S -> M S + X. M is the same. A pass of the outputs without a state before it finds M
/// and X, a pass of the gradients without a gradient behind it finds Y. One all-gather brings M, X and Y of all devices
/// to all. Each device composes what comes before it to S, and what comes after it, from the last device on, to dS.
/// Grows out of: 1_ring.cpp; port to the GPU: maps are composed by a kernel
/// Improves on: in `ring` the devices work one after the other, twice.
/// Unchanged: the local kernels are the chapter's `dispatch` of its outputs and of its gradients.
/// Equation: with M, X as in over_devices/2_all_gather.cu, and Y: dS before the first position, from a pass of the
/// gradients without dS behind the last,
///
///   S before device n:   S = X_0;                 S = M_m S + X_m          for m = 1 to n - 1
///   dS after device n:   dS = Y_{N-1};            dS = M_m^T dS + Y_m      for m = N - 2 down to n + 1
///
/// The first device starts from S_0, the last one from dfinal_state. Y depends on no state, X on no gradient, so
/// neither pass waits for the other's exchange.
/// Shapes: as `ring`; M, X and Y of all devices [N], fp32, on each device.
/// Thread mapping: as over_devices/2_all_gather.cu. For M^T the kernel goes through E with rows and columns exchanged.
/// Synchronization: one all-gather.
/// Work: two passes of the gradients for each device but the first, which needs one, and a pass of the outputs for each
/// but the last.
/// Bytes: each device receives N - 1 pairs of maps: 4 B H (2 Dk Dv + 1) bytes each, or 4 B H Dk (2 Dv + Dk).
/// Bound by: two passes of the gradients and one of the outputs over L / N positions.
/// Requires: as `ring`.
/// Weakness: the first passes compute outputs and gradients that nobody reads.
/// Sources: as over_devices/2_all_gather.cu; the adjoint of a scan: Martin and Cundy, arXiv 1709.04057.

#include <cuda_runtime.h>

#include <algorithm>
#include <vector>

#include "06_scan/over_devices_backward.hpp"

#if TUTORIAL_NCCL
#include <nccl.h>
#endif

#include "06_scan/over_devices/chapters.hpp"
#include "06_scan/over_devices/device_group.hpp"
#include "06_scan/over_devices/measure.hpp"
#include "06_scan/over_devices/pass_maps.cuh"
#include "06_scan/over_devices/shares.hpp"
#include "06_scan/over_devices_backward/forward_part.hpp"
#include "06_scan/over_devices_backward/gradient_maps.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::over_devices {
#if TUTORIAL_NCCL

template <Rule kRule>
void all_gather_backward(const BackwardArguments& a) {
  if (a.N == 1) return ring_backward<kRule>(a);
  DeviceGroup& group = DeviceGroup::of(a.N);
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
    in_one_group([&] {
      for (int n = 0; n < a.N; ++n) {
        const float* own = maps[n] + n * size;
        check_nccl(ncclAllGather(own, maps[n], size, ncclFloat32, group.communicator(n), group.stream(n)));
      }
    });
    group.on_each([&](int n) {
      BackwardArguments share = gradient_share_of(n);
      if (n > 0) share.initial_state = state_before<kRule>(forward, maps[n], n);
      if (n + 1 < a.N) share.dfinal_state = gradient_after<kRule>(forward, maps[n], n);
      dispatch_backward(as_chapter<kRule>(share));
    });
  });
}

#else

template <Rule kRule>
void all_gather_backward(const BackwardArguments&) {}

#endif

template <Rule kRule>
std::string all_gather_backward_unsupported(const BackwardArguments& a) {
  if (const std::string reason = ring_backward_unsupported<kRule>(a); !reason.empty() || kRule != Rule::delta_rule)
    return reason;
  if (a.Dk > kMaxKeyDim) return "Dk > 512: the columns of a state would not fit into shared memory";
  Arguments wide = forward_sizes(a);
  wide.Dv += wide.Dk;
  const std::string reason = dispatch_unsupported(as_chapter<kRule>(wide));
  return reason.empty() ? "" : "its maps of Dv + Dk columns: " + reason;
}

template <Rule kRule>
std::int64_t all_gather_backward_memory(const BackwardArguments& a) {
  if (a.N == 1) return ring_backward_memory<kRule>(a);
  const Arguments forward = forward_sizes(a);
  const std::int64_t first_pass = all_gather_memory<kRule>(forward) - share_memory<kRule>(forward) -
                                  4 * std::int64_t(a.N * map_size<kRule>(forward) + state_size(a));
  return share_memory<kRule>(a) + 4 * std::int64_t(a.N * map_pair_size<kRule>(forward) + 2 * state_size(a)) +
         forward_part_memory(a) + first_pass + dispatch_backward_memory(as_chapter<kRule>(longest_share(a)));
}

template <Rule kRule>
std::int64_t all_gather_backward_link_bytes(const BackwardArguments& a) {
  return 4 * std::int64_t(map_pair_size<kRule>(forward_sizes(a))) * a.N * (a.N - 1);
}

template <Rule kRule>
std::string all_gather_backward_note(const BackwardArguments& a) {
  return describe(a.N, all_gather_backward_link_bytes<kRule>(a),
                  measure(
                      a.N, [&] { all_gather_backward<kRule>(a); }, [&] { dispatch_backward(as_chapter<kRule>(a)); },
                      [&] { dispatch_backward(as_chapter<kRule>(gradient_share_of(0))); },
                      4 * std::int64_t(map_pair_size<kRule>(forward_sizes(a)))));
}

#define INSTANTIATE(RULE)                                                               \
  template void all_gather_backward<RULE>(const BackwardArguments&);                    \
  template std::string all_gather_backward_unsupported<RULE>(const BackwardArguments&); \
  template std::int64_t all_gather_backward_memory<RULE>(const BackwardArguments&);     \
  template std::int64_t all_gather_backward_link_bytes<RULE>(const BackwardArguments&); \
  template std::string all_gather_backward_note<RULE>(const BackwardArguments&)
INSTANTIATE(Rule::linear_attention);
INSTANTIATE(Rule::simple_gla);
INSTANTIATE(Rule::delta_rule);
#undef INSTANTIATE

}  // namespace tutorial::over_devices
