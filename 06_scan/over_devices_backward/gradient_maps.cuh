#pragma once
/// @file
/// The maps of all devices of a gradient: that of the state, S -> M S + X, and that of its gradient, dS -> M^T dS + Y.
/// M is sent once: for each device map_size() floats of maps.cuh, then Y [B, H, Dk, Dv].

#include <cstddef>
#include <cstdint>
#include <utility>

#include "06_scan/over_devices/maps.cuh"
#include "06_scan/over_devices_backward.hpp"
#include "06_scan/over_devices_backward/chapters.hpp"
#include "06_scan/over_devices_backward/forward_part.hpp"
#include "common/device/workspace.hpp"

namespace tutorial::over_devices {

/// Floats of both maps of a device.
template <Rule kRule>
std::size_t map_pair_size(const Arguments& a) {
  return map_size<kRule>(a) + state_size(a);
}

namespace {

/// The state before device n, from the maps of all devices, in workspace of the current device; data is null for the
/// first one.
template <Rule kRule>
View<const float> state_before(const Arguments& a, const float* maps, int n) {
  if (n == 0) return {};
  Maps before = maps_from<kRule>(maps, a);
  before.next = std::int64_t(map_pair_size<kRule>(a));
  auto* state = workspace<float>("devices: state before", state_size(a));
  compose<kRule>(a, before, n, state);
  return packed<const float>(state, a.H, a.Dk, a.Dv);
}

/// The gradient with respect to the state after device n, likewise: the maps of the devices behind it, from the last
/// one on. M^T has the columns of E for rows. Data is null for the last device.
template <Rule kRule>
View<const float> gradient_after(const Arguments& a, const float* maps, int n) {
  if (n + 1 == a.N) return {};
  const auto size = std::int64_t(map_pair_size<kRule>(a));
  Maps behind = maps_from<kRule>(maps + (a.N - 1) * size, a);
  behind.X = maps + (a.N - 1) * size + map_size<kRule>(a);
  behind.X_row = a.Dv;
  std::swap(behind.E_row, behind.E_column);
  behind.next = -size;
  auto* gradient = workspace<float>("devices: gradient after", state_size(a));
  compose<kRule>(a, behind, a.N - 1 - n, gradient);
  return packed<const float>(gradient, a.H, a.Dk, a.Dv);
}

/// Computes Y of a device, and gradients that are not those of the whole sequence.
template <Rule kRule>
void write_gradient_map(BackwardArguments share, float* Y) {
  share.initial_state = {};
  share.dinitial_state = packed(Y, share.H, share.Dk, share.Dv);
  dispatch_backward(as_chapter<kRule>(share));
}

}  // namespace
}  // namespace tutorial::over_devices
