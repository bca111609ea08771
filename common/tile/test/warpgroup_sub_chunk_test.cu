/// @file
/// A chunk of four sub-chunks by a warpgroup, on tiles that bulk copies bring, against the recurrence in double.

#include "common/device/device.hpp"
#include "common/tile/warpgroup_sub_chunk.cuh"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/launch.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/float_panels.cuh"
#include "common/tile/store_tile.cuh"
#include "common/tile/test/matrices.hpp"
#include "common/view.hpp"

namespace tutorial::tile {
namespace {

constexpr int kDk = 128;

struct Maps {
  TensorMap q, k, v, scores, decays;
};

/// o = the outputs of a chunk, times 2, and the state after it. One warpgroup.
__global__ void __launch_bounds__(kWarpgroup)
    one_chunk(const __grid_constant__ Maps maps, int Dk, int columns, float* state, __nv_bfloat16* o) {
  using Decays = FloatPanels<kSubChunks, kDk>;
  __shared__ Barrier full;
  auto* memory = dynamic_shared<__nv_bfloat16, kTileAlignment>();
  const PanelTile<kDk> Q{memory}, K{memory + kChunk * kDk};
  const PanelTile<64> V{memory + 2 * kChunk * kDk}, P{V.data + V.kPanelElements}, output{P.data + P.kPanelElements};
  const Decays decays{reinterpret_cast<const float*>(output.data + output.kPanelElements)};
  if (threadIdx.x == 0) {
    full.init(1);
    fence_barrier_init();
    full.arrive_expect(2 * PanelTile<kDk>::kPanelBytes * 2 + 2 * PanelTile<64>::kPanelBytes + Decays::kLoadedBytes);
    load_panels(Q, maps.q, full, {});
    load_panels(K, maps.k, full, {});
    load_panels(V, maps.v, full, {});
    load_panels(P, maps.scores, full, {});
    load_panels(decays, maps.decays, full, {});
  }
  WarpgroupState<kDk> S;
  load_group_state<kDk>(S, state, columns, Dk, columns);
  __syncthreads();
  full.wait(0);
  for (int r = 0; r < kSubChunks; ++r) {
    const int row = r * kSubChunk;
    const auto v = k_from_row_to_row(V).along_k(row);
    StateDecays<kDk> two;
    const int first = decays.place(r, int(lane_index()) % 4 * 2);
    for (int d = 0; d < kDk; d += 8) {
      two[d / 8] = *reinterpret_cast<const float2*>(decays.data + decays.advance(first, d));
    }
    RoundedState<kDk> s;
    SubChunkOutput O;
    round_state<kDk>(s, S);
    decay_state<kDk>(S, two);
    wgmma_fence(O, s, S);
    start_sub_chunk_output<kDk>(O, s, k_along_rows(Q).along_mn(row));
    start_sub_chunk_output(O, v, k_from_row_to_row(P).along_k(row));
    start_sub_chunk_update<kDk>(S, v, k_from_row_to_row(K).along_k(row));
    wgmma_commit();
    wgmma_wait<0>(O, s, S);
    put_sub_chunk_output(output, O, row, 2.0f);
  }
  __syncthreads();
  store_tile_by<kWarpgroup>(int(threadIdx.x), o, columns, kChunk, columns, output, [] {});
  store_group_state<kDk>(state, S, columns, Dk, columns);
}

void expect_recurrence(int Dk, int columns) {
  SCOPED_TRACE("Dk " + std::to_string(Dk) + ", " + std::to_string(columns) + " columns");
  const auto size = [](int height, int width) { return std::size_t(height) * std::size_t(width); };
  const auto q = normal_numbers(size(kChunk, Dk), 1), k = normal_numbers(size(kChunk, Dk), 2),
             v = normal_numbers(size(kChunk, columns), 3), s = normal_numbers(size(Dk, columns), 4),
             p = normal_numbers(size(kChunk, kSubChunk), 5);
  std::vector<float> decays(size(kSubChunks, Dk)), scores(p.size());
  for (std::size_t i = 0; i < decays.size(); ++i) decays[i] = i % 7 == 3 ? 0 : float(i % 11) / 10;
  for (int t = 0; t < kChunk; ++t) {  // P_ti in row i, column t of the sub-chunk
    for (int i = 0; i <= t % kSubChunk; ++i) {
      scores[size(t / kSubChunk * kSubChunk + i, kSubChunk) + std::size_t(t % kSubChunk)] =
          p[size(t, kSubChunk) + std::size_t(i)];
    }
  }
  const DeviceBuffer<__nv_bfloat16> q_in(as_bf16(q)), k_in(as_bf16(k)), v_in(as_bf16(v)), scores_in(as_bf16(scores));
  const DeviceBuffer<float> decays_in(decays);
  DeviceBuffer<float> state(s);
  DeviceBuffer<__nv_bfloat16> o(size(kChunk, columns));
  const auto map = [](const __nv_bfloat16* data, int width) {
    return tile_map(packed(data, 1, kChunk, width), {.L = kChunk, .D = width}, kChunk);
  };
  const TensorSizes decay_sizes{.L = kSubChunks, .D = Dk};
  const View<const float> decay_view = packed(decays_in.data(), 1, kSubChunks, Dk);
  EXPECT_EQ(why_floats_are_not_mapped(decay_view, decay_sizes, kSubChunks), "");
  const Maps maps{map(q_in.data(), Dk), map(k_in.data(), Dk), map(v_in.data(), columns),
                  map(scores_in.data(), kSubChunk), float_tile_map(decay_view, decay_sizes, kSubChunks)};
  constexpr std::size_t kBytes =
      4 * PanelTile<kDk>::kPanelBytes + 3 * PanelTile<64>::kPanelBytes + FloatPanels<kSubChunks, kDk>::kBytes;
  launch(one_chunk, {1, kWarpgroup, kBytes}, maps, Dk, columns, state.data(), o.data());

  Matrix S(Dk, columns, s), O(kChunk, columns);
  for (int t = 0; t < kChunk; ++t) {
    const int first = t / kSubChunk * kSubChunk;
    for (int j = 0; j < columns; ++j) {
      double sum = 0;
      for (int d = 0; d < Dk; ++d) sum += double(q[size(t, Dk) + std::size_t(d)]) * S(d, j);
      for (int i = first; i <= t; ++i) {
        sum += double(p[size(t, kSubChunk) + std::size_t(i - first)]) * v[size(i, columns) + std::size_t(j)];
      }
      O(t, j) = 2 * sum;
    }
    if (t % kSubChunk < kSubChunk - 1) continue;
    for (int d = 0; d < Dk; ++d) {
      for (int j = 0; j < columns; ++j) {
        S(d, j) *= double(decays[size(t / kSubChunk, Dk) + std::size_t(d)]);
        for (int i = first; i <= t; ++i) {
          S(d, j) += double(k[size(i, Dk) + std::size_t(d)]) * v[size(i, columns) + std::size_t(j)];
        }
      }
    }
  }
  std::vector<float> outputs;
  for (const __nv_bfloat16 x : o.download()) outputs.push_back(__bfloat162float(x));
  EXPECT_LT(relative_error(Matrix(kChunk, columns, outputs), O), 4e-3);  // S and o are rounded to bf16 once each
  EXPECT_LT(relative_error(Matrix(Dk, columns, state.download()), S), 1e-6);
}

TEST(WarpgroupSubChunkTest, IsTheRecurrenceOfSubChunks) {
  if (const std::string reason = warpgroup_products_missing(); !reason.empty()) GTEST_SKIP() << reason;
  expect_recurrence(128, 64);
  expect_recurrence(80, 24);
}

TEST(FloatPanelsTest, SaysWhatCannotBeMapped) {
  const TensorSizes sizes{.L = 8, .D = 6};
  alignas(16) static const float data[64] = {};
  EXPECT_EQ(why_floats_are_not_mapped({data, 0, 0, 8}, sizes, 4), "");
  EXPECT_NE(why_floats_are_not_mapped({data, 0, 0, 6}, sizes, 4), "") << "rows of 24 bytes";
  EXPECT_NE(why_floats_are_not_mapped({data + 1, 0, 0, 8}, sizes, 4), "");
  EXPECT_NE(why_floats_are_not_mapped({data, 0, 0, 0}, sizes, 4), "") << "one row for all";
}

}  // namespace
}  // namespace tutorial::tile
