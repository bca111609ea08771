#include "common/tile/requirements.hpp"

#include <cstdint>

#include "common/device/device.hpp"

namespace tutorial::tile {
namespace {

constexpr int kChunkLength = 64;
constexpr int kMaxKeyDim = 256, kMaxValueDim = 512;
// Shared memory of a block that walks with two sets of tiles and a normaliser, in KB, with Dk = 256 and 64 columns.
constexpr int kSharedOfWideKeys = 160;

}  // namespace

std::string unsupported_sizes(const Extents& e) {
  if (e.Dk % 16 != 0 || e.Dv % 16 != 0) return "Dk or Dv is no multiple of 16, the width of a fragment";
  if (e.Dk > kMaxKeyDim) return "Dk > 256: the state would not fit into a block's registers";
  if (e.Dv > kMaxValueDim) return "Dv > 512: not tested";
  if (e.B > 65535 || e.H > 65535) return "B or H > 65535: the grid";
  if (std::int64_t(e.B) * e.H > INT32_MAX) return "B H > 2^31 - 1: heads are counted in int";
  if (e.L > INT32_MAX - 3 * kChunkLength) return "L > 2^31 - 193: positions are counted in int";
  return "";
}

std::string unsupported_extents(const Extents& e) {
  const std::string reason = unsupported_sizes(e);
  return reason.empty() && e.Dk > 128 ? shared_memory_missing(kSharedOfWideKeys * 1024) : reason;
}

}  // namespace tutorial::tile
