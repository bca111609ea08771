/// @file
/// Integer reductions over the lanes of a mask.

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/launch.cuh"

namespace tutorial {
namespace {

struct Reduced {
  int sum, least, most;
  unsigned unsigned_sum, unsigned_least, unsigned_most, all_bits, any_bits, odd_bits;
};

__global__ void reduce(const int* in, Reduced* out, unsigned mask) {
  if (!(mask >> threadIdx.x & 1)) return;
  const int x = in[threadIdx.x];
  const auto u = static_cast<unsigned>(x);
  Reduced result;
  result.sum = __reduce_add_sync(mask, x);
  result.least = __reduce_min_sync(mask, x);
  result.most = __reduce_max_sync(mask, x);
  result.unsigned_sum = __reduce_add_sync(mask, u);
  result.unsigned_least = __reduce_min_sync(mask, u);
  result.unsigned_most = __reduce_max_sync(mask, u);
  result.all_bits = __reduce_and_sync(mask, u);
  result.any_bits = __reduce_or_sync(mask, u);
  result.odd_bits = __reduce_xor_sync(mask, u);
  out[threadIdx.x] = result;
}

TEST(Reductions, CombineTheLanesOfTheMask) {
  std::vector<int> values(32);
  for (unsigned i = 0; i < 32; ++i) values[i] = static_cast<int>((i + 3) * 2654435761u);
  const DeviceBuffer<int> in(values);
  for (const unsigned mask : {~0u, 1u, 0xAAAAAAAAu, 0x0000FF00u}) {
    Reduced expected{0, INT_MAX, INT_MIN, 0, UINT_MAX, 0, UINT_MAX, 0, 0};
    for (unsigned i = 0; i < 32; ++i) {
      if (!(mask >> i & 1)) continue;
      const auto u = static_cast<unsigned>(values[i]);
      expected.unsigned_sum += u;
      expected.least = std::min(expected.least, values[i]);
      expected.most = std::max(expected.most, values[i]);
      expected.unsigned_least = std::min(expected.unsigned_least, u);
      expected.unsigned_most = std::max(expected.unsigned_most, u);
      expected.all_bits &= u;
      expected.any_bits |= u;
      expected.odd_bits ^= u;
    }
    expected.sum = static_cast<int>(expected.unsigned_sum);
    DeviceBuffer<Reduced> out(32);
    launch(reduce, {1, 32}, in.data(), out.data(), mask);
    const std::vector<Reduced> result = out.download();
    for (unsigned i = 0; i < 32; ++i) {
      if (!(mask >> i & 1)) continue;
      EXPECT_EQ(result[i].sum, expected.sum);
      EXPECT_EQ(result[i].least, expected.least);
      EXPECT_EQ(result[i].most, expected.most);
      EXPECT_EQ(result[i].unsigned_sum, expected.unsigned_sum);
      EXPECT_EQ(result[i].unsigned_least, expected.unsigned_least);
      EXPECT_EQ(result[i].unsigned_most, expected.unsigned_most);
      EXPECT_EQ(result[i].all_bits, expected.all_bits);
      EXPECT_EQ(result[i].any_bits, expected.any_bits);
      EXPECT_EQ(result[i].odd_bits, expected.odd_bits);
    }
  }
}

}  // namespace
}  // namespace tutorial
