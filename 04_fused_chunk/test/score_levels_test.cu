/// @file
/// What a warp of `score_levels` prepares of a sub-chunk, and its scores at anchors, against the same products in double.

#include "04_fused_chunk/gla/score_levels.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/device.hpp"
#include "common/device/launch.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/test/matrices.hpp"
#include "common/view.hpp"

namespace tutorial::fused_gla {
namespace {

constexpr int kDk = 128;

struct Maps {
  TensorMap q, k, g;
};

/// A lane's columns of all of Dk.
struct AllRows {
  float *q, *k, *decays;  // of the lane's first column
  template <int kColumns>
  __device__ void write(float* to, const float (&x)[kColumns]) const {
    for (int i = 0; i < kColumns; ++i) to[i] = x[i];
  }
  template <int kColumns>
  __device__ void query(int t, const float (&x)[kColumns]) const {
    write(q + t * kDk, x);
  }
  template <int kColumns>
  __device__ void key(int i, const float (&x)[kColumns]) const {
    write(k + i * kDk, x);
  }
  template <int kColumns>
  __device__ void decay(const float (&x)[kColumns]) const {
    write(decays, x);
  }
};

/// One warp. scores [16, 64]: those of the sub-chunk from column 32 on.
__global__ void __launch_bounds__(32)
    prepare_levels(const __grid_constant__ Maps maps, float* q, float* k, float* decays, float* scores) {
  __shared__ Barrier full[2];
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const LevelTiles<kDk> tiles{memory, memory + LevelTiles<kDk>::kBytes};
  const PanelTile<64, kSubChunk> P{reinterpret_cast<__nv_bfloat16*>(tiles.first_level + LevelTiles<kDk>::kRowsBytes)};
  const int lane = int(lane_index()), column = lane * (kDk / 32);
  if (lane == 0) {
    for (Barrier& barrier : full) barrier.init(1);
    fence_barrier_init();
  }
  for (int i = lane; i < P.kPanelElements; i += 32) P.data[i] = __float2bfloat16(0);
  __syncwarp();
  if (lane == 0) {
    for (int half = 0; half < 2; ++half) {
      full[half].arrive_expect(tiles.kLoadedBytes);
      load_half(tiles, half, maps, full[half], {.position = half * kHalf});
    }
  }
  LevelScores sums = {};
  FirstHalf<kDk> first;
  const AllRows out{q + column, k + column, decays + column};
  full[0].wait(0);
  prepare_half<0>(tiles, out, first, [] {});
  __syncwarp();
  level_rows::multiply_half<0>(tiles, sums);
  __syncwarp();
  full[1].wait(0);
  prepare_half<1>(tiles, out, first, [] {});
  __syncwarp();
  level_rows::multiply_half<1>(tiles, sums);
  __syncwarp();
  store_scores(P, 32, sums);
  __syncwarp();
  for (int i = lane; i < kSubChunk * 64; i += 32) {
    scores[i] = __bfloat162float(P.data[P.unit(i / 64, i % 64 / 8 * 8) + i % 8]);
  }
}

/// @param rows of the tensors, 16 at most
void expect_prepared(int rows, float strength) {
  const auto q = normal_numbers(std::size_t(rows) * kDk, 1), k = normal_numbers(std::size_t(rows) * kDk, 2);
  std::vector<float> g = normal_numbers(std::size_t(rows) * kDk, 3);
  for (float& x : g) x = x < -1 ? 0 : x > 1 ? -1e4f : -strength * std::abs(x);  // also gates of 1, and closed ones
  const DeviceBuffer<__nv_bfloat16> q_in(as_bf16(q)), k_in(as_bf16(k));
  const DeviceBuffer<float> g_in(g);
  DeviceBuffer<float> q_out(kSubChunk * kDk), k_out(kSubChunk * kDk), decays_out(kDk), scores_out(kSubChunk * 64);
  const TensorSizes sizes{.L = rows, .D = kDk};
  const Maps maps{tile_map(packed(q_in.data(), 1, rows, kDk), sizes, kHalf),
                  tile_map(packed(k_in.data(), 1, rows, kDk), sizes, kHalf),
                  float_tile_map(packed(g_in.data(), 1, rows, kDk), sizes, kHalf)};
  launch(prepare_levels,
         {1, 32, LevelTiles<kDk>::kBytes + LevelTiles<kDk>::kRowsBytes + PanelTile<64, kSubChunk>::kPanelBytes}, maps,
         q_out.data(), k_out.data(), decays_out.data(), scores_out.data());
  const std::vector<float> q_decayed = q_out.download(), k_decayed = k_out.download(), decays = decays_out.download(),
                           scores = scores_out.download();

  const auto gates = [&](int from, int to, int d) {  // exp of the sum over positions from + 1 to `to`, those that exist
    double sum = 0;
    for (int t = from + 1; t <= to && t < rows; ++t) sum += double(g[std::size_t(t) * kDk + std::size_t(d)]);
    return std::exp(sum);
  };
  const auto element = [&](const std::vector<float>& x, int t, int d) {
    return t < rows ? double(x[std::size_t(t) * kDk + std::size_t(d)]) : 0.0;
  };
  for (int d = 0; d < kDk; ++d) {
    EXPECT_NEAR(decays[std::size_t(d)], gates(-1, 15, d), 1e-6);
    for (int t = 0; t < kSubChunk; ++t) {
      const std::size_t at = std::size_t(t) * kDk + std::size_t(d);
      EXPECT_NEAR(q_decayed[at], element(q, t, d) * gates(-1, t, d), 1e-5);
      EXPECT_NEAR(k_decayed[at], element(k, t, d) * gates(t, 15, d), 1e-5);
    }
  }
  for (int t = 0; t < kSubChunk; ++t) {
    for (int i = 0; i < kSubChunk; ++i) {
      double score = 0, size = 0;  // of its terms
      for (int d = 0; d < kDk && i <= t; ++d) {
        const double term = element(q, t, d) * element(k, i, d) * gates(i, t, d);
        score += term;
        size += term * term;
      }
      // Both factors of a product are rounded to 8 bits, and so is the score. What is below 2^-126 is 0.
      EXPECT_NEAR(scores[std::size_t(t * 64 + 32 + i)], score,
                  0x1p-7 * std::sqrt(size) + 0x1p-8 * std::abs(score) + 0x1p-120)
          << t << ", " << i;
    }
  }
}

TEST(ScoreLevelsTest, ScoresAtAnchorsAreThoseOfThePairs) {
  if (const std::string reason = warpgroup_products_missing(); !reason.empty()) GTEST_SKIP() << reason;
  expect_prepared(16, 0.1f);
  expect_prepared(16, 100.0f);
  expect_prepared(5, 0.1f);
}

}  // namespace
}  // namespace tutorial::fused_gla
