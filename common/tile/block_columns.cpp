#include "common/tile/block_columns.hpp"

#include <cstdint>

#include "common/ceil_div.hpp"
#include "common/device/device.hpp"

namespace tutorial::tile {
namespace {

// Shared memory of a block that walks with two sets of tiles and a normaliser, in KB, with Dk = 128 and 128 columns.
constexpr int kSharedOfWideTile = 112;

}  // namespace

int widest_tile(const Extents& e) {
  if (e.Dv <= 64 || e.Dk > 128) return 64;
  return e.Dk <= 64 || shared_memory_missing(kSharedOfWideTile * 1024).empty() ? 128 : 64;
}

int block_columns(const Extents& e) {
  const bool fills_the_gpu = std::int64_t(e.B) * e.H * ceil_div(e.Dv, 128) >= multiprocessor_count();
  return fills_the_gpu ? widest_tile(e) : 64;
}

}  // namespace tutorial::tile
