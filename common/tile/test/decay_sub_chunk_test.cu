/// @file
/// What gates do inside a sub-chunk, against the same products in double.

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/launch.cuh"
#include "common/tile/decay_sub_chunk.cuh"
#include "common/tile/test/matrices.hpp"
#include "common/view.hpp"

namespace tutorial::tile {
namespace {

constexpr int kDk = 64, kAhead = 8;

struct Inputs {
  int L, Dk;
  View<const __nv_bfloat16> q, k;
  View<const float> g;
};

/// Writes rows as they come.
struct Rows {
  float *q, *k, *decay;  // the lane's first element of [16, kDk], [16, kDk], [kDk]
  __device__ void write(float* to, const float (&row)[2]) const {
    to[0] = row[0];
    to[1] = row[1];
  }
  __device__ void query(int t, const float (&row)[2]) const { write(q + t * kDk, row); }
  __device__ void key(int i, const float (&row)[2]) const { write(k + i * kDk, row); }
  __device__ void decay_of_all(const float (&row)[2]) const { write(decay, row); }
};
struct Out : Rows {
  __device__ explicit Out(const Rows& rows) : Rows(rows) {}
  __device__ void decay(const float (&row)[2]) const { decay_of_all(row); }
};

/// One warp, 16 positions, 2 elements per lane. scores [16, 16], P_ti in [i][t].
__global__ void decay_rows(Inputs a, int rows, float* q, float* k, float* decay, float* scores) {
  const int d = 2 * int(lane_index());
  Row<2> ahead[kAhead];
  const auto load = [&](int t) { return load_row<2>(a, 0, 0, t, d); };
  for (int t = 0; t < kAhead; ++t) ahead[t] = load(t);
  float sums[8] = {};
  decay_sub_chunk<2>(ahead, rows, true, load, Out(Rows{q + d, k + d, decay + d}), sums);
  for (int i = 0; i < 8; ++i) scores[int(lane_index()) * 8 + i] = sums[i];
}

void expect_decays(int rows, float strength) {
  const auto q = normal_numbers(kSubChunk * kDk, 1), k = normal_numbers(kSubChunk * kDk, 2);
  std::vector<float> g = normal_numbers(kSubChunk * kDk, 3);
  for (float& x : g) x = -strength * std::abs(x);
  const DeviceBuffer<__nv_bfloat16> q_in(as_bf16(q)), k_in(as_bf16(k));
  const DeviceBuffer<float> g_in(g);
  DeviceBuffer<float> q_out(q.size()), k_out(k.size()), decay_out(kDk), scores_out(kSubChunk * kSubChunk);
  const Inputs a{kSubChunk, kDk, packed(q_in.data(), 1, kSubChunk, kDk), packed(k_in.data(), 1, kSubChunk, kDk),
                 packed(g_in.data(), 1, kSubChunk, kDk)};
  launch(decay_rows, {1, 32}, a, rows, q_out.data(), k_out.data(), decay_out.data(), scores_out.data());
  const std::vector<float> q_decayed = q_out.download(), k_decayed = k_out.download(), decay = decay_out.download(),
                           scores = scores_out.download();

  const auto gates = [&](int from, int to, int d) {  // exp of the sum over positions from + 1 to `to`, those that exist
    double sum = 0;
    for (int t = from + 1; t <= to && t < rows; ++t) sum += double(g[std::size_t(t) * kDk + d]);
    return std::exp(sum);
  };
  for (int d = 0; d < kDk; ++d) EXPECT_NEAR(decay[std::size_t(d)], gates(-1, 15, d), 1e-6);
  for (int t = 0; t < kSubChunk; ++t) {
    for (int d = 0; d < kDk; ++d) {
      const std::size_t i = std::size_t(t) * kDk + d;
      EXPECT_NEAR(q_decayed[i], q[i] * gates(-1, t, d), 1e-5);
      EXPECT_NEAR(k_decayed[i], t < rows ? k[i] * gates(t, 15, d) : 0, 1e-5);
    }
    for (int i = 0; i <= t; ++i) {
      double score = 0;
      for (int d = 0; d < kDk && i < rows; ++d) {
        score += double(q[std::size_t(t) * kDk + d]) * k[std::size_t(i) * kDk + d] * gates(i, t, d);
      }
      EXPECT_NEAR(scores[std::size_t(i * kSubChunk + t)], score, 1e-4) << t << ", " << i;
    }
  }
}

TEST(DecaySubChunkTest, DecaysAreProductsOfGates) {
  expect_decays(16, 0.1f);
  expect_decays(16, 100.0f);  // gates that close
  expect_decays(5, 0.1f);     // the sequence ends inside
  expect_decays(0, 0.1f);     // and before
}

}  // namespace
}  // namespace tutorial::tile
