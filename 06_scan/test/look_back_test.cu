/// @file
/// Looking back over words that are all there already, as far as a test wants it to go: in the emulator a tile's
/// predecessor is mostly done, and in a short sequence it is never far.

#include "06_scan/scan/dispatch/look_back_search.cuh"

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"

namespace tutorial::scan {
namespace {

constexpr int kWarps = 16;

/// found[thread]: what thread is told.
__global__ void __launch_bounds__(kWarps * 32) block_looks_back(LookBack back, int tile, float2* found) {
  __shared__ FoundByWarps<kWarps> by_warps;
  const Affine<float> before = look_back_by_block(back, tile, /*chain=*/0, by_warps);
  store_global(&found[threadIdx.x], make_float2(before.log_decay, before.value));
}

__global__ void thread_looks_back(LookBack back, int tile, float2* found) {
  const Affine<float> before = look_back_by_thread(back, tile, /*chain=*/0, /*channel=*/0, /*early=*/kNotPublished);
  store_global(&found[threadIdx.x], make_float2(before.log_decay, before.value));
}

std::uint64_t word(const Affine<double>& map) {
  return std::uint64_t{std::bit_cast<std::uint32_t>(float(map.log_decay))} << 32 |
         std::bit_cast<std::uint32_t>(float(map.value));
}

/// Maps that do not commute, under which what is old still counts.
Affine<double> own_map(int tile) {
  return {.log_decay = -0.001 * (tile % 7), .value = 1 + 0.25 * (tile % 11)};
}

/// Tile `tile` looks back to the tile `distance` before it, the nearest one that knows the map up to its end.
void expect_found(int tile, int distance) {
  SCOPED_TRACE("tile " + std::to_string(tile) + ", distance " + std::to_string(distance));
  std::vector<Words> words(tile, {.up_to_end = kNotPublished, .own = kNotPublished});
  Affine<double> before{.log_decay = 0, .value = 3};  // y_0
  for (int n = 0; n < tile; ++n) {
    before = compose(before, own_map(n));
    if (n > 0) words[n].own = word(own_map(n));  // the first tile publishes the other one alone
    if (n <= tile - distance) words[n].up_to_end = word(before);
  }
  DeviceBuffer<Words> memory(words);
  const LookBack back{.counter = nullptr, .words = memory.data(), .chains = 1, .width = 1};
  DeviceBuffer<float2> found(kWarps * 32);
  launch(block_looks_back, {1, kWarps * 32}, back, tile, found.data());
  for (const float2& told : found.download()) {
    ASSERT_NEAR(told.x, before.log_decay, 1e-5);
    ASSERT_NEAR(told.y / before.value, 1, 1e-5);
  }
  DeviceBuffer<float2> alone(1);
  launch(thread_looks_back, {1, 1}, back, tile, alone.data());
  ASSERT_NEAR(alone.download()[0].x, before.log_decay, 1e-5);
  ASSERT_NEAR(alone.download()[0].y / before.value, 1, 1e-5);
}

// A warp's 32 tiles, the four warps' 128, several rounds of them; to the first tile, and to a later one.
TEST(LookBackTest, GoesAsFarAsItHasTo) {
  for (const int distance : {1, 2, 31, 32, 33, 64, 96, 97, 127, 128, 129, 256, 257, 300}) {
    expect_found(300, distance);
    expect_found(distance, distance);
  }
}

}  // namespace
}  // namespace tutorial::scan
