/// @file
/// The four products of a chunk by a warpgroup, on tiles that bulk copies bring, against the same products in double.

#include "common/device/device.hpp"
#include "common/tile/warpgroup_chunk.cuh"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/launch.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/store_tile.cuh"
#include "common/tile/test/matrices.hpp"
#include "common/view.hpp"

namespace tutorial::tile {
namespace {

/// The factor of Q S at position t.
__host__ __device__ inline float position_factor(int t) {
  return 2.0f - float(t) / 64;
}

/// Which functions of the four products a kernel uses.
enum class Form {
  kPlain,              ///< all in one array of sums
  kFactors,            ///< the rows of Q S times position_factor(t), in two arrays of sums; V^T from registers for S
  kScoresInRegisters,  ///< the same rows, brought to the sums of P V through shared memory
};

/// o = 2 (Q S + (Q K^T . M) V) in its first `rows` rows and `columns` columns, and S += K^T V. One warpgroup.
template <int kDk, Form kForm>
__global__ void __launch_bounds__(kWarpgroup)
    one_chunk(const __grid_constant__ ChunkMaps maps, int rows, int Dk, int columns, float* state, __nv_bfloat16* o) {
  using Shape = PanelShape<kDk, 64>;
  __shared__ Barrier full;
  auto* memory = dynamic_shared<__nv_bfloat16, kTileAlignment>();
  const ChunkTiles<Shape> tiles(memory);
  const PanelTile<64> P{memory + ChunkTiles<Shape>::kElements}, output{P.data + P.kPanelElements};
  if (threadIdx.x == 0) {
    full.init(1);
    fence_barrier_init();
    full.arrive_expect(ChunkTiles<Shape>::kBytes);
    load_chunk(tiles, maps, full, 0, 0, 0, 0);
  }
  WarpgroupState<kDk> S;
  load_group_state<kDk>(S, state, columns, Dk, columns);
  __syncthreads();
  full.wait(0);
  WarpgroupScores scores;
  WarpgroupOutput O;
  RoundedState<kDk> s;
  round_state<kDk>(s, S);
  wgmma_fence(scores, O, s, S);
  start_scores(scores, tiles.Q, tiles.K);
  start_output_from_state<kDk>(O, s, tiles.Q);
  wgmma_commit();
  wgmma_wait<0>(scores, O, s);
  store_masked_scores(P, scores);
  fence_async_proxy();
  __syncthreads();
  if constexpr (kForm == Form::kScoresInRegisters) {
    ScoreFragments p;
#pragma unroll
    for (int i = 0; i < kChunk / 2; ++i) scores[i] = wgmma_column(i) <= wgmma_row(i) ? scores[i] : 0;
#pragma unroll
    for (int i = 0; i < kChunk; i += 16) wgmma_fragment(p[i / 16], scores, i);
    const TransposedSums from_state(output.data + output.kPanelElements, 0);
    from_state.put(O);
    __syncthreads();
    WarpgroupOutput rows_of_O;
    wgmma_fence(rows_of_O, S, p);
    start_output_from_scores(rows_of_O, p, tiles.V);
    start_state_update<kDk>(S, tiles.V, tiles.K);
    wgmma_commit();
    wgmma_wait<0>(rows_of_O, S, p);
    from_state.add_to(rows_of_O, {position_factor(wgmma_row(0)), position_factor(wgmma_row(2))});
#pragma unroll
    for (float& element : rows_of_O) element *= 2;
    put_rows(output, rows_of_O);
    __syncthreads();
    store_tile_by<kWarpgroup>(int(threadIdx.x), o, columns, rows, columns, output, [] {});
    store_group_state<kDk>(state, S, columns, Dk, columns);
    return;
  } else if constexpr (kForm == Form::kFactors) {
    const int lane = int(lane_index());
    const int unit = tiles.V.unit(lane / 16 * 8 + lane % 8, warp_in_group() * 16 + lane / 8 % 2 * 8);
    ValueFragments v;
#pragma unroll
    for (int i = 0; i < kChunk; i += 16) ldmatrix_x4_trans(v[i / 16], tiles.V.data + tiles.V.advance(unit, i, 0));
    WarpgroupOutput from_scores;
    wgmma_fence(from_scores, S, v);
    start_output_from_scores(from_scores, tiles.V, P, false);
    start_state_update<kDk>(S, v, tiles.K);
    wgmma_commit();
    wgmma_wait<0>(from_scores, S, v);
    add_positions(from_scores, O, [](int t) { return float2{position_factor(t), position_factor(t + 1)}; });
#pragma unroll
    for (int i = 0; i < kChunk / 2; ++i) O[i] = from_scores[i];
  } else {
    wgmma_fence(O, S);
    start_output_from_scores(O, tiles.V, P);
    start_state_update<kDk>(S, tiles.V, tiles.K);
    wgmma_commit();
    wgmma_wait<0>(O, S);
  }
  put_output(output, O, 2.0f);
  __syncthreads();
  store_tile_by<kWarpgroup>(int(threadIdx.x), o, columns, rows, columns, output, [] {});
  store_group_state<kDk>(state, S, columns, Dk, columns);
}

/// What load_chunk() and chunk_maps() want of an operator's arguments.
struct OneChunk {
  int B, H, L, Dk, Dv;
  View<const __nv_bfloat16> q, k, v;
};

template <int kDk, Form kForm>
void expect_products(int rows, int Dk, int columns) {
  SCOPED_TRACE(std::to_string(rows) + " positions, Dk " + std::to_string(Dk) + ", " + std::to_string(columns) +
               " columns");
  const auto count = [](int height, int width) { return std::size_t(height) * std::size_t(width); };
  const auto q = normal_numbers(count(rows, Dk), 1), k = normal_numbers(count(rows, Dk), 2),
             v = normal_numbers(count(rows, columns), 3), s = normal_numbers(count(Dk, columns), 4, 8);
  const DeviceBuffer<__nv_bfloat16> q_device(as_bf16(q)), k_device(as_bf16(k)), v_device(as_bf16(v));
  DeviceBuffer<float> state(s);
  DeviceBuffer<__nv_bfloat16> o(count(rows, columns));
  const OneChunk chunk{1,
                       1,
                       rows,
                       Dk,
                       columns,
                       packed(q_device.data(), 1, rows, Dk),
                       packed(k_device.data(), 1, rows, Dk),
                       packed(v_device.data(), 1, rows, columns)};
  launch(one_chunk<kDk, kForm>,
         {1, kWarpgroup,
          ChunkTiles<PanelShape<kDk, 64>>::kBytes + 2 * PanelTile<64>::kPanelBytes + TransposedSums::kBytes},
         chunk_maps(chunk), rows, Dk, columns, state.data(), o.data());
  const Matrix Q(rows, Dk, q), K(rows, Dk, k), V(rows, columns, v), S(Dk, columns, s);
  Matrix from_state = Q * S;
  if (kForm != Form::kPlain) {
    for (int t = 0; t < rows; ++t) {
      for (int j = 0; j < columns; ++j) from_state(t, j) *= position_factor(t);
    }
  }
  Matrix expected = from_state + lower(Q * transpose(K)) * V;
  for (double& x : expected.elements) x *= 2;
  std::vector<float> outputs;
  for (const __nv_bfloat16 x : o.download()) outputs.push_back(__bfloat162float(x));
  // O: P and S are rounded to bf16 once each, and so is o. S: only fp32 sums.
  EXPECT_LT(relative_error(Matrix(rows, columns, outputs), expected), 4e-3);
  EXPECT_LT(relative_error(Matrix(Dk, columns, state.download()), S + transpose(K) * V), 1e-6);
}

TEST(WarpgroupChunkTest, ProductsAreThoseOfTheMatrices) {
  if (const std::string reason = warpgroup_products_missing(); !reason.empty()) GTEST_SKIP() << reason;
  expect_products<64, Form::kPlain>(64, 64, 64);
  expect_products<128, Form::kPlain>(64, 128, 64);
  expect_products<64, Form::kPlain>(50, 48, 16);
  expect_products<128, Form::kPlain>(1, 112, 40);
}

TEST(WarpgroupChunkTest, ProductsWithFactorsAreThoseOfTheMatrices) {
  if (const std::string reason = warpgroup_products_missing(); !reason.empty()) GTEST_SKIP() << reason;
  expect_products<64, Form::kFactors>(64, 64, 64);
  expect_products<128, Form::kFactors>(64, 128, 64);
  expect_products<128, Form::kFactors>(33, 112, 40);
}

TEST(WarpgroupChunkTest, ProductsWithScoresInRegistersAreThoseOfTheMatrices) {
  if (const std::string reason = warpgroup_products_missing(); !reason.empty()) GTEST_SKIP() << reason;
  expect_products<64, Form::kScoresInRegisters>(64, 64, 64);
  expect_products<128, Form::kScoresInRegisters>(33, 112, 40);
}

}  // namespace
}  // namespace tutorial::tile
