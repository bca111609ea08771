/// @file
/// A step of the walk from sub-chunk to sub-chunk, against the same products in double.

#include <gtest/gtest.h>

#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/launch.cuh"
#include "common/tile/load_tile.cuh"
#include "common/tile/state.cuh"
#include "common/tile/store_tile.cuh"
#include "common/tile/test/matrices.hpp"
#include "common/tile/walk_sub_chunk.cuh"

namespace tutorial::tile {
namespace {

using Shape = ChunkShape<64, 64>;

/// o = the outputs of a chunk of four sub-chunks, and the state after it.
/// @param scores [4, 16, 16], P_ti in [i][t] @param decays [4, 64]
__global__ void __launch_bounds__(kThreads)
    walk(const __nv_bfloat16* q, const __nv_bfloat16* k, const __nv_bfloat16* v, const __nv_bfloat16* scores,
         const float* decays, float* state, __nv_bfloat16* o) {
  const DecayedTiles<Shape> tiles(dynamic_shared<unsigned char>());
  load_tile(tiles.Q, q, 64, kChunk, 64);
  load_tile(tiles.K, k, 64, kChunk, 64);
  load_tile(tiles.V, v, 64, kChunk, 64);
  for (int i = int(threadIdx.x); i < kChunk * kSubChunk; i += kThreads) tiles.scores[i] = scores[i];
  for (int i = int(threadIdx.x); i < kSubChunks * 64; i += kThreads) tiles.decays[i] = decays[i];
  typename Shape::State S;
  load_state<Shape>(S, state, 64, 64, 64);
  __syncthreads();
  for (int row = 0; row < kChunk; row += kSubChunk) {
    float O[Shape::kWarpColumns / 8][4] = {};
    walk_sub_chunk<Shape, true>(S, O, tiles, row);
    put_output<Shape>(tiles.V, O, row, 1.0f);
  }
  store_warp_columns<Shape>(o, 64, kChunk, 64, tiles.V);
  store_state<Shape>(state, S, 64, 64, 64);
}

TEST(WalkSubChunkTest, IsTheRecurrenceOfSubChunks) {
  const auto q = normal_numbers(64 * 64, 1), k = normal_numbers(64 * 64, 2), v = normal_numbers(64 * 64, 3),
             s = normal_numbers(64 * 64, 4), p = normal_numbers(64 * kSubChunk, 5);
  std::vector<float> decays(kSubChunks * 64), scores(p.size());
  for (std::size_t i = 0; i < decays.size(); ++i) decays[i] = 0.5f + 0.5f * float(i % 7) / 7;
  for (int t = 0; t < 64; ++t) {  // p [64, 16]: scores of a query with the keys of its sub-chunk
    for (int i = 0; i < kSubChunk; ++i) {
      const int row = t % kSubChunk;
      const std::size_t at = std::size_t((t / kSubChunk * kSubChunk + i) * kSubChunk + row);
      scores[at] = i <= row ? p[std::size_t(t) * kSubChunk + i] : 0;
    }
  }
  const DeviceBuffer<__nv_bfloat16> q_in(as_bf16(q)), k_in(as_bf16(k)), v_in(as_bf16(v)), scores_in(as_bf16(scores));
  const DeviceBuffer<float> decays_in(decays);
  DeviceBuffer<float> state(s);
  DeviceBuffer<__nv_bfloat16> o(64 * 64);
  launch(walk, {1, kThreads, DecayedTiles<Shape>::kBytes}, q_in.data(), k_in.data(), v_in.data(), scores_in.data(),
         decays_in.data(), state.data(), o.data());

  Matrix S(64, 64, s), O(64, 64);
  const std::vector<__nv_bfloat16> outputs = o.download();
  for (int first = 0; first < 64; first += kSubChunk) {
    for (int t = first; t < first + kSubChunk; ++t) {
      for (int j = 0; j < 64; ++j) {
        double sum = 0;
        for (int d = 0; d < 64; ++d) sum += double(q[std::size_t(t) * 64 + d]) * S(d, j);
        for (int i = first; i <= t; ++i) {
          sum += double(p[std::size_t(t) * kSubChunk + (i - first)]) * v[std::size_t(i) * 64 + j];
        }
        O(t, j) = sum;
      }
    }
    for (int d = 0; d < 64; ++d) {
      for (int j = 0; j < 64; ++j) {
        S(d, j) *= double(decays[std::size_t(first / kSubChunk) * 64 + d]);
        for (int i = first; i < first + kSubChunk; ++i) {
          S(d, j) += double(k[std::size_t(i) * 64 + d]) * v[std::size_t(i) * 64 + j];
        }
      }
    }
  }
  std::vector<float> o_walked;
  for (const __nv_bfloat16 x : outputs) o_walked.push_back(__bfloat162float(x));
  EXPECT_LT(relative_error(Matrix(64, 64, o_walked), O), 4e-3);  // S and o are rounded to bf16 once each
  EXPECT_LT(relative_error(Matrix(64, 64, state.download()), S), 1e-6);
}

}  // namespace
}  // namespace tutorial::tile
