/// @file
/// Sums, maxima and prefix sums over a warp.

#include "common/device/warp.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/launch.cuh"

namespace tutorial {
namespace {

struct Results {
  int lane, sum, sum_of_8, max, max_of_4, prefix_sum;
};

__global__ void reduce(const int* in, Results* out) {
  const unsigned thread = threadIdx.x + blockDim.x * threadIdx.y;
  const int x = in[thread];
  out[thread] = {
      static_cast<int>(lane_index()), warp_sum(x), warp_sum<8>(x), warp_max(x), warp_max<4>(x), warp_prefix_sum(x)};
}

TEST(Warp, ReducesAndScans) {
  std::vector<int> values(96);
  for (int i = 0; i < 96; ++i) values[i] = (i * 37 + 11) % 101 - 50;
  const DeviceBuffer<int> in(values);
  for (const dim3 block : {dim3(96), dim3(8, 12)}) {
    DeviceBuffer<Results> out(values.size());
    launch(reduce, {1, block}, in.data(), out.data());
    const std::vector<Results> results = out.download();
    for (int i = 0; i < 96; ++i) {
      const auto first = [&](int width) { return values.begin() + i / width * width; };
      EXPECT_EQ(results[i].lane, i % 32);
      EXPECT_EQ(results[i].sum, std::accumulate(first(32), first(32) + 32, 0));
      EXPECT_EQ(results[i].sum_of_8, std::accumulate(first(8), first(8) + 8, 0));
      EXPECT_EQ(results[i].max, *std::max_element(first(32), first(32) + 32));
      EXPECT_EQ(results[i].max_of_4, *std::max_element(first(4), first(4) + 4));
      EXPECT_EQ(results[i].prefix_sum, std::accumulate(first(32), values.begin() + i + 1, 0));
    }
  }
}

__global__ void sum_floats(const float* in, float* out) {
  out[threadIdx.x] = warp_sum(in[threadIdx.x]);
}

TEST(Warp, GivesEveryLaneTheSameBits) {
  std::vector<float> values(32);
  for (int i = 0; i < 32; ++i) values[i] = 1.0f / static_cast<float>(i + 1);
  const DeviceBuffer<float> in(values);
  DeviceBuffer<float> out(32);
  launch(sum_floats, {1, 32}, in.data(), out.data());
  EXPECT_EQ(out.download(), std::vector<float>(32, out.download()[0]));
  EXPECT_NEAR(out.download()[0], std::accumulate(values.begin(), values.end(), 0.0), 1e-6);
}

}  // namespace
}  // namespace tutorial
