/// @file
/// Products of warpgroups: every width, factors from shared memory with either index along a row and from registers,
/// and products whose sums are factors of the next.

#include "common/device/wgmma.cuh"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/device.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/tensor_map.hpp"
#include "common/tile/swizzled_tile.cuh"

namespace tutorial {
namespace {

class Wgmma : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = warpgroup_products_missing(); !reason.empty()) GTEST_SKIP() << reason;
  }
};

/// A row-major matrix in device memory.
struct Rows {
  const __nv_bfloat16* data;
  int rows, columns;  ///< the latter a multiple of 64
};

/// Brings a matrix to shared memory, in panels of 64 columns.
__device__ void load(__nv_bfloat16* panels, const Rows& matrix) {
  for (int i = static_cast<int>(threadIdx.x); i < matrix.rows * matrix.columns / 8; i += static_cast<int>(blockDim.x)) {
    const int row = i * 8 / matrix.columns, column = i * 8 % matrix.columns;
    __nv_bfloat16* panel = panels + column / 64 * matrix.rows * 64;
    const auto unit = *reinterpret_cast<const uint4*>(&matrix.data[row * matrix.columns + column]);
    store_for_copies(reinterpret_cast<uint4*>(panel + tile::SwizzledTile<64>::unit(row, column % 64)), unit);
  }
}

constexpr int kM = 128, kDepth = 128;  // two warpgroups with 64 rows each, and 8 products

/// B begins so many rows or columns behind the beginning of its tile.
template <Major kMajorB>
constexpr int kSkipped = kMajorB == Major::kK ? 8 : 64;

/// D = A B, or D = C + A B. @param a [128, 128] or its transpose @param b B^T or B, below kSkipped others
/// @param sums C before and D afterwards, [128, kN]
template <int kN, Major kMajorA, Major kMajorB, bool kFromRegisters>
__global__ void multiply(Rows a, Rows b, bool accumulate, float* sums) {
  auto* a_panels = dynamic_shared<__nv_bfloat16, 1024>();
  __nv_bfloat16* b_panels = a_panels + kM * kDepth;
  load(a_panels, a);
  load(b_panels, b);
  fence_async_proxy();
  __syncthreads();

  const int first_row = static_cast<int>(threadIdx.x) / 128 * 64;
  const auto factor_a = SharedFactor<kMajorA>(a_panels, tile_bytes(kM)).along_mn(first_row);
  const auto factor_b = SharedFactor<kMajorB>(b_panels, tile_bytes(b.rows)).along_mn(kSkipped<kMajorB>);
  float d[kN / 2];
  for (int i = 0; i < kN / 2; ++i) d[i] = sums[(first_row + wgmma_row(i)) * kN + wgmma_column(i)];
  if constexpr (kFromRegisters) {
    std::uint32_t fragments[kDepth / 16][4];
#pragma unroll
    for (int k = 0; k < kDepth; k += 16) {
      float values[8];  // as a product's sums of these 16 columns would be
      for (int i = 0; i < 8; ++i) {
        values[i] = __bfloat162float(a.data[(first_row + wgmma_row(i)) * kDepth + k + wgmma_column(i)]);
      }
      wgmma_fragment(fragments[k / 16], values, 0);
    }
    wgmma_fence(d, fragments);
#pragma unroll
    for (int k = 0; k < kDepth; k += 16) wgmma<kN>(d, fragments[k / 16], factor_b.along_k(k), accumulate || k > 0);
    wgmma_commit();
    wgmma_wait<0>(d, fragments);
  } else {
    wgmma_fence(d);
#pragma unroll
    for (int k = 0; k < kDepth; k += 16) {
      wgmma<kN>(d, factor_a.along_k(k), factor_b.along_k(k), accumulate || k > 0);
    }
    wgmma_commit();
    wgmma_wait<0>(d);
  }
  for (int i = 0; i < kN / 2; ++i) sums[(first_row + wgmma_row(i)) * kN + wgmma_column(i)] = d[i];
}

std::vector<float> normal(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution;
  std::vector<float> numbers(count);
  for (float& x : numbers) x = __bfloat162float(__float2bfloat16(distribution(random)));
  return numbers;
}

std::vector<__nv_bfloat16> to_bf16(const std::vector<float>& numbers) {
  return {numbers.begin(), numbers.end()};
}

template <int kN, Major kMajorA, Major kMajorB, bool kFromRegisters>
void expect_product(bool accumulate) {
  constexpr int kSkip = kSkipped<kMajorB>, kColumns = (kSkip + kN + 63) / 64 * 64;  // of B in memory, MN-major
  constexpr bool kIsKMajorA = kMajorA == Major::kK, kIsKMajorB = kMajorB == Major::kK;
  const int b_rows = kIsKMajorB ? kSkip + kN : kDepth, b_columns = kIsKMajorB ? kDepth : kColumns;
  const std::vector<float> A = normal(kM * kDepth, 1);
  const std::vector<float> B = normal(static_cast<std::size_t>(b_rows * b_columns), 2);
  const std::vector<float> C = normal(kM * kN, 3);
  const DeviceBuffer<__nv_bfloat16> a(to_bf16(A)), b(to_bf16(B));
  DeviceBuffer<float> sums(C);
  const std::size_t shared_bytes = 2 * (A.size() + B.size());
  launch(multiply<kN, kMajorA, kMajorB, kFromRegisters>, {1, 256, shared_bytes}, Rows{a.data(), kM, kDepth},
         Rows{b.data(), b_rows, b_columns}, accumulate, sums.data());
  const std::vector<float> D = sums.download();
  const auto at = [](const std::vector<float>& matrix, int i) {
    return static_cast<double>(matrix[static_cast<std::size_t>(i)]);
  };
  for (int m = 0; m < kM; ++m) {
    for (int n = 0; n < kN; ++n) {
      double expected = accumulate ? at(C, m * kN + n) : 0;
      for (int k = 0; k < kDepth; ++k) {
        expected += at(A, kIsKMajorA ? m * kDepth + k : k * kM + m) *
                    at(B, kIsKMajorB ? (kSkip + n) * kDepth + k : k * kColumns + kSkip + n);
      }
      // 128 terms of about 1. A tensor core cuts products off at the largest one's last bits instead of rounding.
      ASSERT_NEAR(at(D, m * kN + n), expected, 2e-4) << "m " << m << ", n " << n;
    }
  }
}

template <Major kMajorA, Major kMajorB, bool kFromRegisters>
void expect_products() {
  for (const bool accumulate : {false, true}) {
    expect_product<16, kMajorA, kMajorB, kFromRegisters>(accumulate);
    expect_product<32, kMajorA, kMajorB, kFromRegisters>(accumulate);
    expect_product<64, kMajorA, kMajorB, kFromRegisters>(accumulate);
    expect_product<72, kMajorA, kMajorB, kFromRegisters>(accumulate);
    expect_product<128, kMajorA, kMajorB, kFromRegisters>(accumulate);
  }
}

TEST_F(Wgmma, MultipliesFromSharedMemory) {
  expect_products<Major::kK, Major::kK, false>();
  expect_products<Major::kK, Major::kMn, false>();
  expect_products<Major::kMn, Major::kK, false>();
  expect_products<Major::kMn, Major::kMn, false>();
}

TEST_F(Wgmma, MultipliesFromRegisters) {
  expect_products<Major::kK, Major::kK, true>();
  expect_products<Major::kK, Major::kMn, true>();
}

/// A recurrence with its state transposed: S [64, 128] in fp32. Each round computes, with X and Y [64, 128],
///
///     O = round(S) Y^T      and      U = V - round(S) X^T, S += round(U) X
///
/// so sums are factors of two products, and two groups are under way at once.
/// @param xy X above Y @param outputs [rounds, 64, 64] @param states S, before and afterwards @param V [64, 64]
__global__ void __launch_bounds__(128, 1) walk(Rows xy, const float* V, int rounds, float* outputs, float* states) {
  auto* panels = dynamic_shared<__nv_bfloat16, 1024>();
  load(panels, xy);
  fence_async_proxy();
  __syncthreads();
  const SharedFactor<Major::kK> x_transposed(panels, tile_bytes(128)), y_transposed = x_transposed.along_mn(64);
  const SharedFactor<Major::kMn> x(panels, tile_bytes(128));
  float s[64];
  for (int i = 0; i < 64; ++i) s[i] = states[wgmma_row(i) * 128 + wgmma_column(i)];
  for (int n = 0; n < rounds; ++n) {
    std::uint32_t state_fragments[8][4], update_fragments[4][4];
    for (int k = 0; k < 128; k += 16) wgmma_fragment(state_fragments[k / 16], s, k);
    float u[32], o[32];
    wgmma_fence(state_fragments, u, o);
#pragma unroll
    for (int k = 0; k < 128; k += 16) wgmma<64>(u, state_fragments[k / 16], x_transposed.along_k(k), k > 0);
    wgmma_commit();
#pragma unroll
    for (int k = 0; k < 128; k += 16) wgmma<64>(o, state_fragments[k / 16], y_transposed.along_k(k), k > 0);
    wgmma_commit();
    wgmma_wait<1>(u);
    for (int i = 0; i < 32; ++i) u[i] = V[wgmma_row(i) * 64 + wgmma_column(i)] - u[i];
    for (int k = 0; k < 64; k += 16) wgmma_fragment(update_fragments[k / 16], u, k);
    wgmma_fence(update_fragments, s);
#pragma unroll
    for (int k = 0; k < 64; k += 16) wgmma<128>(s, update_fragments[k / 16], x.along_k(k), true);
    wgmma_commit();
    wgmma_wait<0>(o, s, state_fragments, update_fragments);
    for (int i = 0; i < 32; ++i) outputs[(n * 64 + wgmma_row(i)) * 64 + wgmma_column(i)] = o[i];
  }
  for (int i = 0; i < 64; ++i) states[wgmma_row(i) * 128 + wgmma_column(i)] = s[i];
}

/// Small integers: sums of products are exact in fp32, and so both sides round the same numbers.
std::vector<float> integers(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> numbers(count);
  for (float& x : numbers) x = static_cast<float>(static_cast<int>(random() % 7) - 3);
  return numbers;
}

TEST_F(Wgmma, SumsAreFactorsOfTheNextProduct) {
  constexpr int kRounds = 2;
  const std::vector<float> XY = integers(128 * 128, 1), V = integers(64 * 64, 2);
  std::vector<float> S = integers(64 * 128, 3);
  const DeviceBuffer<__nv_bfloat16> xy(to_bf16(XY));
  const DeviceBuffer<float> v(V);
  DeviceBuffer<float> outputs(kRounds * 64 * 64), states(S);
  launch(walk, {1, 128, 2 * XY.size()}, Rows{xy.data(), 128, 128}, v.data(), kRounds, outputs.data(), states.data());
  const std::vector<float> O = outputs.download();
  const auto rounded = [](double value) {
    return static_cast<double>(__bfloat162float(__float2bfloat16(static_cast<float>(value))));
  };
  for (std::size_t n = 0; n < kRounds; ++n) {
    std::vector<double> U(64 * 64);
    for (std::size_t m = 0; m < 64; ++m) {
      for (std::size_t i = 0; i < 64; ++i) {
        double o = 0, u = V[m * 64 + i];
        for (std::size_t d = 0; d < 128; ++d) {
          o += rounded(S[m * 128 + d]) * XY[(64 + i) * 128 + d];
          u -= rounded(S[m * 128 + d]) * XY[i * 128 + d];
        }
        ASSERT_EQ(O[(n * 64 + m) * 64 + i], o) << "round " << n << ", m " << m << ", i " << i;
        U[m * 64 + i] = u;
      }
    }
    for (std::size_t m = 0; m < 64; ++m) {
      for (std::size_t d = 0; d < 128; ++d) {
        double s = S[m * 128 + d];
        for (std::size_t i = 0; i < 64; ++i) s += rounded(U[m * 64 + i]) * XY[i * 128 + d];
        S[m * 128 + d] = static_cast<float>(s);
      }
    }
  }
  EXPECT_EQ(states.download(), S);
}

}  // namespace
}  // namespace tutorial
