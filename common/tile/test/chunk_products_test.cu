/// @file
/// The four products of a chunk on tensor cores against the same products in double.

#include <gtest/gtest.h>

#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/launch.cuh"
#include "common/tile/chunk_products.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/load_tile.cuh"
#include "common/tile/state.cuh"
#include "common/tile/store_tile.cuh"
#include "common/tile/test/matrices.hpp"

namespace tutorial::tile {
namespace {

/// An epilogue that doubles the scores, so that a test sees that it is asked.
struct Doubled : NoEpilogue {
  __device__ float score(int, int, float product) { return 2 * product; }
};

/// o = Q S + (2 Q K^T . M) V and S += K^T V of one chunk.
template <class Shape>
__global__ void __launch_bounds__(kThreads)
    one_chunk(const __nv_bfloat16* q, const __nv_bfloat16* k, const __nv_bfloat16* v, float* state, __nv_bfloat16* o) {
  auto* memory = dynamic_shared<__nv_bfloat16>();
  const ChunkTiles<Shape> tiles(memory);
  const typename Shape::ScoreTile P{memory + ChunkTiles<Shape>::kElements};
  load_tile(tiles.Q, q, Shape::kDk, kChunk, Shape::kDk);
  load_tile(tiles.K, k, Shape::kDk, kChunk, Shape::kDk);
  load_tile(tiles.V, v, Shape::kDv, kChunk, Shape::kDv);
  typename Shape::State S;
  load_state<Shape>(S, state, Shape::kDv, Shape::kDk, Shape::kDv);
  __syncthreads();
  typename Shape::Output O = {};
  masked_scores<Shape>(P, tiles.Q, tiles.K, Doubled());
  add_from_state<Shape>(O, tiles.Q, S);
  __syncthreads();
  add_from_scores<Shape>(O, P, tiles.V);
  update_state<Shape>(S, tiles.K, tiles.V);
  store_output<Shape>(o, Shape::kDv, kChunk, Shape::kDv, O, tiles.V, 1.0f);
  store_state<Shape>(state, S, Shape::kDv, Shape::kDk, Shape::kDv);
}

template <class Shape>
void expect_products() {
  constexpr int Dk = Shape::kDk, Dv = Shape::kDv;
  const auto q = normal_numbers(kChunk * Dk, 1), k = normal_numbers(kChunk * Dk, 2), v = normal_numbers(kChunk * Dv, 3),
             s = normal_numbers(Dk * Dv, 4, 8);
  const DeviceBuffer<__nv_bfloat16> q_device(as_bf16(q)), k_device(as_bf16(k)), v_device(as_bf16(v));
  DeviceBuffer<float> state(s);
  DeviceBuffer<__nv_bfloat16> o(kChunk * Dv);
  launch(one_chunk<Shape>, {1, kThreads, ChunkTiles<Shape>::kBytes + kChunk * kChunk * sizeof(__nv_bfloat16)},
         q_device.data(), k_device.data(), v_device.data(), state.data(), o.data());
  const Matrix Q(kChunk, Dk, q), K(kChunk, Dk, k), V(kChunk, Dv, v), S(Dk, Dv, s);
  Matrix P = lower(Q * transpose(K));
  for (double& x : P.elements) x *= 2;
  std::vector<float> outputs;
  for (const __nv_bfloat16 x : o.download()) outputs.push_back(__bfloat162float(x));
  // O: P and S are rounded to bf16 once each, and so is o. S: only fp32 sums.
  EXPECT_LT(relative_error(Matrix(kChunk, Dv, outputs), Q * S + P * V), 4e-3) << Dk << ", " << Dv;
  EXPECT_LT(relative_error(Matrix(Dk, Dv, state.download()), S + transpose(K) * V), 1e-6) << Dk << ", " << Dv;
}

TEST(ChunkProductsTest, AreThoseOfTheMatrices) {
  expect_products<ChunkShape<64, 64>>();
  expect_products<ChunkShape<64, 128>>();
  expect_products<ChunkShape<128, 64>>();
  expect_products<ChunkShape<128, 128>>();
  expect_products<ChunkShape<256, 64>>();
}

}  // namespace
}  // namespace tutorial::tile
