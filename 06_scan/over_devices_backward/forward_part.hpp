#pragma once
/// @file
/// The forward pass of a device as the gradients need it: for the state at its end.

#include "06_scan/over_devices.hpp"
#include "06_scan/over_devices/shares.hpp"
#include "06_scan/over_devices_backward.hpp"
#include "common/device/workspace.hpp"

namespace tutorial::over_devices {

/// The forward problem of a device, the current one, with outputs in workspace that nobody reads.
inline Arguments forward_part(const BackwardArguments& share) {
  auto* outputs = workspace<__nv_bfloat16>("devices: outputs", heads(share) * share.L * share.Dv);
  return {share.B,
          share.H,
          share.L,
          share.Dk,
          share.Dv,
          share.N,
          share.scale,
          share.q,
          share.k,
          share.v,
          share.g,
          share.beta,
          share.initial_state,
          packed(outputs, share.H, share.L, share.Dv),
          {}};
}

/// The sizes of the forward problem alone.
inline Arguments forward_sizes(const BackwardArguments& a) {
  Arguments sizes{};
  sizes.B = a.B, sizes.H = a.H, sizes.L = a.L, sizes.Dk = a.Dk, sizes.Dv = a.Dv, sizes.N = a.N;
  return sizes;
}

}  // namespace tutorial::over_devices
