/// @file
/// What the stages on windows of 16 do not take.

#include "04_fused_chunk/gla/five_steps.hpp"
#include "04_fused_chunk/widths.hpp"

namespace tutorial::fused_gla {

std::string window_limits(const HalfArguments& a) {
  constexpr int kLongestGrid = 65535;
  if (std::int64_t(a.B) * a.H > kLongestGrid) return "B H > 65535: the grids' third dimension";
  if (windows(a.L) > kLongestGrid) return "L > 1048560: the grids' second dimension has a block a window";
  return tensor_core_limits(a);
}

}  // namespace tutorial::fused_gla
