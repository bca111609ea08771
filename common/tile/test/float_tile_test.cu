/// @file
/// The products of a chunk in fp32 against the same products in double.

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/launch.cuh"
#include "common/tile/float_tile.cuh"
#include "common/tile/test/matrices.hpp"

namespace tutorial::tile {
namespace {

/// o = Q S + (Q K^T . M) V and x = K^T V of `rows` positions; all matrices are 64 wide but V, S, o and x.
template <int kColumns>
__global__ void __launch_bounds__(kTileThreads)
    one_chunk(const float* q, const float* k, const float* v, const float* s, int rows, float* o, float* x) {
  using Keys = FloatTile<64>;
  using Values = FloatTile<kColumns>;
  const Keys Q{dynamic_shared<float>()}, K{Q.data + Keys::kElements};
  const Values V{K.data + Keys::kElements}, S{V.data + Values::kElements};
  load_tile(Q, q, 64, rows, 64);
  load_tile(K, k, 64, rows, 64);
  load_tile(V, v, kColumns, rows, kColumns);
  load_tile(S, s, kColumns, 64, kColumns);
  __syncthreads();
  float P[4][4] = {}, O[4][kColumns / 16] = {}, X[4][kColumns / 16] = {};
  add_scores(P, Q, K);
  add_product<false>(O, Q, S);
  add_transposed_product(X, K, V);
  __syncthreads();
  store_masked(Q, P);
  __syncthreads();
  add_product<true>(O, Q, V);
  for (int r = 0; r < 4; ++r) {
    if (tile_y() + 16 * r < rows) store_row(o + (tile_y() + 16 * r) * kColumns, O[r], 1.0f, kColumns);
    store_row(x + (tile_y() * 4 + r) * kColumns, X[r], 1.0f, kColumns);
  }
}

template <int kColumns>
void expect_products(int rows) {
  const auto q = normal_numbers(64 * 64, 1), k = normal_numbers(64 * 64, 2), v = normal_numbers(64 * kColumns, 3),
             s = normal_numbers(64 * kColumns, 4);
  const DeviceBuffer<float> q_device(q), k_device(k), v_device(v), s_device(s);
  DeviceBuffer<float> o(64 * kColumns), x(64 * kColumns);
  o.fill_bytes(0xFF);
  launch(one_chunk<kColumns>,
         {1, kTileThreads, sizeof(float) * 2 * (FloatTile<64>::kElements + FloatTile<kColumns>::kElements)},
         q_device.data(), k_device.data(), v_device.data(), s_device.data(), rows, o.data(), x.data());
  const auto first_rows = [&](const std::vector<float>& of, int columns) {
    return Matrix(rows, columns, std::vector<float>(of.begin(), of.begin() + rows * columns));
  };
  const Matrix Q = first_rows(q, 64), K = first_rows(k, 64), V = first_rows(v, kColumns), S(64, kColumns, s);
  const Matrix O = Q * S + lower(Q * transpose(K)) * V, X = transpose(K) * V;
  const std::vector<float> outputs = o.download(), states = x.download();
  for (int i = 0; i < 64 * kColumns; ++i) {
    if (i < rows * kColumns) {
      ASSERT_NEAR(outputs[std::size_t(i)], O.elements[std::size_t(i)], 1e-3) << i;
    } else {
      ASSERT_TRUE(std::isnan(outputs[std::size_t(i)])) << i << " was written";
    }
    ASSERT_NEAR(states[std::size_t(i)], X.elements[std::size_t(i)], 1e-4) << i;
  }
}

TEST(FloatTileTest, ProductsAreThoseOfTheMatrices) {
  for (const int rows : {64, 63, 1}) {
    expect_products<32>(rows);
    expect_products<64>(rows);
  }
}

}  // namespace
}  // namespace tutorial::tile
