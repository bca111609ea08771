/// @file
/// Sizes and alignments of the vector types, and dim3.

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <type_traits>

namespace {

template <class T, std::size_t kSize, std::size_t kAlignment>
constexpr bool has_layout = sizeof(T) == kSize && alignof(T) == kAlignment&& std::is_trivially_copyable_v<T>;

static_assert(has_layout<int2, 8, 8> && has_layout<int3, 12, 4> && has_layout<int4, 16, 16>);
static_assert(has_layout<uint2, 8, 8> && has_layout<uint3, 12, 4> && has_layout<uint4, 16, 16>);
static_assert(has_layout<float2, 8, 8> && has_layout<float3, 12, 4> && has_layout<float4, 16, 16>);
static_assert(has_layout<longlong2, 16, 16> && has_layout<ulonglong2, 16, 16>);
static_assert(has_layout<double2, 16, 16> && has_layout<double3, 24, 8>);
static_assert(sizeof(dim3) == 12);

TEST(VectorTypes, KeepTheirElementsInOrder) {
  const float4 v = make_float4(1, 2, 3, 4);
  const float* elements = &v.x;
  for (int i = 0; i < 4; ++i) EXPECT_EQ(elements[i], static_cast<float>(i + 1));
  EXPECT_EQ(make_int3(1, 2, 3).z, 3);
  EXPECT_EQ(make_uint4(1, 2, 3, 4).w, 4u);
  EXPECT_EQ(make_double2(1, 2).y, 2.0);
}

unsigned volume(dim3 size) {
  return size.x * size.y * size.z;
}

TEST(Dim3, HasOnesWhereNothingIsGiven) {
  EXPECT_EQ(volume({}), 1u);
  EXPECT_EQ(volume(7), 7u);
  EXPECT_EQ(volume({7, 2}), 14u);
  EXPECT_EQ(volume(make_uint3(7, 2, 3)), 42u);
  const uint3 size = dim3(4, 5, 6);
  EXPECT_EQ(size.z, 6u);
}

}  // namespace
