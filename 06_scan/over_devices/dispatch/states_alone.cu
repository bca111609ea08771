/// @file
/// `states_alone`: the first pass reads k, v and the gates alone and computes no outputs.
///
/// Idea: a map is a state at the end of a device's positions and the product of their gates. For that neither q nor
/// outputs are needed. A kernel of its own (segment_maps.cuh) walks k and v, several segments of the device's positions
/// at once. The map of the device is composed of those of its segments, as the state before a device is composed of the
/// maps of devices.
/// Improves on: the first pass of `all_gather` computes outputs that nobody reads.
/// Unchanged: the all-gather, the composition, the second pass.
/// Equation: for each chunk of a segment, with decay_t the product of the gates behind position t to the chunk's end,
///
///   X = decay X + K^T (diag(decay_t) V)       decay: the product of the chunk's gates
///
/// Shapes: as `all_gather`; the maps of a device's segments lie in device memory, 64 positions or more each.
/// Thread mapping: block (64 or 128 columns of Dv, segment, head) has 128 threads; X is in registers, a product on
/// tensor cores per chunk (common/tile/chunk_products.cuh). The first warp computes the decays.
/// Synchronization: a barrier when a chunk has arrived, behind which the next one is loaded to the place of the one
/// before; a barrier when V has been multiplied by the decays.
/// Resources: at Dk = Dv = 128, 238 registers per thread on Hopper; two chunks of K and V, 64 KB of shared memory.
/// Work: 2 Dk Dv operations per position of the first pass, on tensor cores.
/// Bytes: the first pass reads 2 (Dk + Dv) bytes per position and head, half of those that a pass of `dispatch` moves.
/// Bound by: memory: both passes.
/// Requires: as `relay`; Dk and Dv multiples of 16, Dk <= 256, aligned rows. The delta rule has no such pass: its maps
/// need T of every chunk, which chapter 05 computes in front of its walk.
/// Weakness: no device computes while maps are under way.
/// Sources: as `all_gather`; chapter 04's `sequence_parallel` for the pass without outputs.

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
void states_alone(const Arguments& a) {
  if (a.N == 1) return relay<kRule>(a);
  DeviceGroup& group = DeviceGroup::of(a.N);
  const std::size_t size = map_size<kRule>(a);
  std::vector<float*> maps(a.N);  // of all devices, on each of them
  group.run([&] {
    group.on_each([&](int n) {
      maps[n] = workspace<float>("devices: maps", a.N * size);
      if (n + 1 < a.N) write_map<kRule>(share_of(n), maps[n] + n * size);  // nobody needs that of the last
    });
    group.all_gather(maps, size);
    group.on(0, [&] { dispatch(as_chapter<kRule>(share_of(0))); });
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

template void states_alone<Rule::linear_attention>(const Arguments&);
template void states_alone<Rule::simple_gla>(const Arguments&);

}  // namespace tutorial::over_devices
