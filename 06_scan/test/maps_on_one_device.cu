#include "06_scan/test/maps_on_one_device.hpp"

#include "06_scan/over_devices/dispatch/segment_maps.cuh"
#include "06_scan/over_devices/maps.cuh"
#include "06_scan/over_devices/pass_maps.cuh"
#include "06_scan/over_devices/shares.hpp"
#include "06_scan/over_devices_backward/chapters.hpp"
#include "06_scan/over_devices_backward/dispatch/from_the_end.hpp"
#include "06_scan/over_devices_backward/forward_part.hpp"
#include "06_scan/over_devices_backward/gradient_maps.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::over_devices {
namespace {

/// The positions of device n where they are.
Arguments part_of(Arguments a, int n) {
  const Positions positions = positions_of(n, a.N, a.L);
  const auto move = [&](auto& view) { view.data += view.data ? positions.first * view.stride_l : 0; };
  move(a.q), move(a.k), move(a.v), move(a.g), move(a.beta), move(a.o);
  a.L = positions.count;
  if (n > 0) a.initial_state = {};
  if (n + 1 < a.N) a.final_state = {};
  return a;
}
BackwardArguments part_of(BackwardArguments a, int n) {
  const Positions positions = positions_of(n, a.N, a.L);
  const auto move = [&](auto& view) { view.data += view.data ? positions.first * view.stride_l : 0; };
  move(a.q), move(a.k), move(a.v), move(a.g), move(a.beta), move(a.d_o);
  move(a.dq), move(a.dk), move(a.dv), move(a.dg), move(a.dbeta);
  a.L = positions.count;
  if (n > 0) a.initial_state = {}, a.dinitial_state = {};
  if (n + 1 < a.N) a.dfinal_state = {};
  return a;
}

/// @param write computes the map of the device's part
template <Rule kRule, class Write>
void through_maps(const Arguments& a, Write write) {
  const std::size_t size = map_size<kRule>(a);
  auto* maps = workspace<float>("test: maps", a.N * size);
  for (int n = 0; n + 1 < a.N; ++n) write(part_of(a, n), n, maps + n * size);
  for (int n = 0; n < a.N; ++n) {
    Arguments part = part_of(a, n);
    if (n > 0) {
      auto* before = workspace<float>("test: state before", state_size(a));
      compose<kRule>(a, maps_from<kRule>(maps, a), n, before);
      part.initial_state = packed<const float>(before, a.H, a.Dk, a.Dv);
    }
    dispatch(as_chapter<kRule>(part));
  }
}

/// @param write computes both maps of the device's part, M and X, and Y
template <Rule kRule, class Write>
void through_maps(const BackwardArguments& a, Write write) {
  const Arguments forward = forward_sizes(a);
  const std::size_t size = map_pair_size<kRule>(forward);
  auto* maps = workspace<float>("test: maps", a.N * size);
  for (int n = 0; n < a.N; ++n) {
    float* own = maps + n * size;
    write(part_of(a, n), n, own, own + map_size<kRule>(forward));
  }
  for (int n = 0; n < a.N; ++n) {
    BackwardArguments part = part_of(a, n);
    if (n > 0) part.initial_state = state_before<kRule>(forward, maps, n);
    if (n + 1 < a.N) part.dfinal_state = gradient_after<kRule>(forward, maps, n);
    dispatch_backward(as_chapter<kRule>(part));
  }
}

}  // namespace

template <Rule kRule>
void maps_of_passes(const Arguments& a) {
  through_maps<kRule>(a, [](const Arguments& part, int n, float* map) { write_map<kRule>(part, n == 0, map); });
}

template <Rule kRule>
void maps_of_segments(const Arguments& a) {
  through_maps<kRule>(a, [](const Arguments& part, int /*n*/, float* map) { write_map<kRule>(part, map); });
}

template <Rule kRule>
void maps_of_passes_backward(const BackwardArguments& a) {
  through_maps<kRule>(a, [](const BackwardArguments& part, int n, float* map, float* Y) {
    if (n + 1 < part.N) write_map<kRule>(forward_part(part), n == 0, map);
    if (n > 0) write_gradient_map<kRule>(part, Y);
  });
}

template <Rule kRule>
void maps_of_segments_backward(const BackwardArguments& a) {
  through_maps<kRule>(a, [](const BackwardArguments& part, int n, float* map, float* Y) {
    if (n + 1 < part.N) write_map<kRule>(from_the_start(part), map);
    if (n > 0) write_sum<kRule>(from_the_end(part), true, part.scale, Y);
  });
}

template void maps_of_passes<Rule::linear_attention>(const Arguments&);
template void maps_of_passes<Rule::simple_gla>(const Arguments&);
template void maps_of_passes<Rule::delta_rule>(const Arguments&);
template void maps_of_segments<Rule::linear_attention>(const Arguments&);
template void maps_of_segments<Rule::simple_gla>(const Arguments&);
template void maps_of_passes_backward<Rule::linear_attention>(const BackwardArguments&);
template void maps_of_passes_backward<Rule::simple_gla>(const BackwardArguments&);
template void maps_of_passes_backward<Rule::delta_rule>(const BackwardArguments&);
template void maps_of_segments_backward<Rule::linear_attention>(const BackwardArguments&);
template void maps_of_segments_backward<Rule::simple_gla>(const BackwardArguments&);

}  // namespace tutorial::over_devices
