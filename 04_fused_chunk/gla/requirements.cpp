/// @file
/// What the stages require of a problem, and the tile that `one_kernel` takes.

#include "common/tile/requirements.hpp"

#include "04_fused_chunk/gla/intermediates.hpp"
#include "04_fused_chunk/gla/one_kernel.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"

namespace tutorial::fused_gla {

std::string five_steps_unsupported(const Bf16Arguments& a) {
  constexpr int kLongestGrid = 65535;
  if (std::int64_t(a.B) * a.H > kLongestGrid) return "B H > 65535: the grids' third dimension";
  if (sub_chunks(a.L) > kLongestGrid) return "L > 1048560: the grids' second dimension has one block per sub-chunk";
  return tile::one_set_unsupported(a);
}

std::string one_kernel_unsupported(const Bf16Arguments& a) {
  return gla::subchunk_walk_unsupported(a);
}

int one_kernel_columns(const Bf16Arguments& a) {
  const std::int64_t narrow_blocks = std::int64_t(a.B) * a.H * ceil_div(a.Dv, 64);
  return narrow_blocks <= multiprocessor_count() ? 64 : tile::widest_tile(tile::extents_of(a));
}

}  // namespace tutorial::fused_gla
