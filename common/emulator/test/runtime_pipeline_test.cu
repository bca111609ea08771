// A kernel with all that warps with different tasks need. Each of its barriers, waits, arrivals, commits and fences is
// needed, and the emulator shows it.

#include <gtest/gtest.h>
#include <emulator/barrier.hpp>
#include <emulator/schedule.hpp>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "common/device/bulk_copy.cuh"
#include "common/device/memory.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/wgmma.cuh"
#include "common/test/barrier_lines.hpp"
#include "common/tile/swizzled_tile.cuh"
#include "runtime_support.hpp"

namespace tutorial {
namespace {

constexpr int kTiles = 5;
constexpr int kTile = 64 * 64;  // elements
constexpr int kStages = 2;
constexpr unsigned kBytes = 2 * kTile;

/// For each tile X [64, 64]: T = X X^T, rounded to bf16, and O = T X. Warp 4 loads X, warps 0 to 3 compute. T goes to
/// device memory from shared memory, O from registers.
__global__ void multiply_tiles(const TensorMap x, const TensorMap t, float* o) {
  __shared__ Barrier full[kStages], empty[kStages];
  auto* tiles = dynamic_shared<__nv_bfloat16, kTileAlignment>();
  __nv_bfloat16* scores = tiles + kStages * kTile;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) full[i].init(1), empty[i].init(128);
    fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x >= 128) {
    if (threadIdx.x > 128) return;
    auto ring = Ring<kStages>::producer();
    for (int n = 0; n < kTiles; ++n, ring.advance()) {
      ring.wait(empty);
      full[ring.stage()].arrive_expect(kBytes);
      load_tile(x, tiles + ring.stage() * kTile, full[ring.stage()], {.position = n * 64});
    }
    return;
  }
  auto ring = Ring<kStages>::consumer();
  for (int n = 0; n < kTiles; ++n, ring.advance()) {
    const __nv_bfloat16* tile = tiles + ring.stage() * kTile;
    const SharedFactor<Major::kK> rows(tile, kBytes), left(scores, kBytes);
    const SharedFactor<Major::kMn> right(tile, kBytes);
    float d[32], e[32];
    ring.wait(full);
    wgmma_fence(d);
    for (int k = 0; k < 64; k += 16) {
      wgmma<64>(d, rows.along_k(k), rows.along_k(k), k > 0);
    }
    wgmma_commit();
    wgmma_wait<0>(d);

    if (n > 0) {
      if (threadIdx.x == 0) wait_stores_read<0>();
      wait_at_named_barrier(2, 128);
    }
    for (int i = 0; i < 32; i += 2) {
      const int unit = tile::SwizzledTile<64>::unit(wgmma_row(i), wgmma_column(i) / 8 * 8) + wgmma_column(i) % 8;
      store_for_copies(reinterpret_cast<std::uint32_t*>(scores + unit), pack(d[i], d[i + 1]));
    }
    fence_async_proxy();
    wait_at_named_barrier(1, 128);
    if (threadIdx.x == 0) {
      store_tile(t, scores, {.position = n * 64});
      commit_stores();
    }

    wgmma_fence(e);
    for (int k = 0; k < 64; k += 16) {
      wgmma<64>(e, left.along_k(k), right.along_k(k), k > 0);
    }
    wgmma_commit();
    wgmma_wait<0>(e);
    empty[ring.stage()].arrive();
    for (int i = 0; i < 32; ++i) o[(n * 64 + wgmma_row(i)) * 64 + wgmma_column(i)] = e[i];
  }
  if (threadIdx.x == 0) wait_stores<0>();
}
constexpr std::size_t kLines = 17;  // of this kernel that can be taken out

/// -1, 0 and 1, so that all sums are exact, and different in each tile.
float number(int tile, int row, int column) {
  return static_cast<float>((row * 7 + column * 3 + row * column * (tile + 1) + tile) % 3 - 1);
}

/// Runs the kernel. Returns whether it has ended without an error and both results are right.
bool is_right() {
  std::vector<__nv_bfloat16> x(kTiles * kTile + 8), t(x.size());
  std::vector<float> o(kTiles * kTile);
  const auto aligned = [](std::vector<__nv_bfloat16>& memory) {
    return reinterpret_cast<__nv_bfloat16*>((reinterpret_cast<std::uintptr_t>(memory.data()) + 15) / 16 * 16);
  };
  const auto map = [&](std::vector<__nv_bfloat16>& memory) {
    return tile_map(packed(aligned(memory), 1, kTiles * 64, 64), {.B = 1, .H = 1, .L = kTiles * 64, .D = 64}, 64);
  };
  for (int i = 0; i < kTiles * kTile; ++i) aligned(x)[i] = number(i / kTile, i / 64 % 64, i % 64);
  const cudaError_t error =
      emulator::test::run(1, 160, (kStages + 1) * kBytes, [&] { multiply_tiles(map(x), map(t), o.data()); });
  (void)cudaGetLastError();
  if (error != cudaSuccess) return false;
  for (int n = 0; n < kTiles; ++n) {
    for (int i = 0; i < 64; ++i) {
      float O[64] = {};
      for (int j = 0; j < 64; ++j) {
        float T = 0;
        for (int d = 0; d < 64; ++d) T += number(n, i, d) * number(n, j, d);
        if (static_cast<float>(aligned(t)[(n * 64 + i) * 64 + j]) != T) return false;
        for (int d = 0; d < 64; ++d) O[d] += T * number(n, j, d);
      }
      for (int d = 0; d < 64; ++d) {
        if (o[static_cast<std::size_t>((n * 64 + i) * 64 + d)] != O[d]) return false;
      }
    }
  }
  return true;
}

TEST(Pipeline, IsRight) {
  EXPECT_TRUE(is_right());
}

TEST(Pipeline, NeedsEachOfItsBarriersWaitsCommitsAndFences) {
#ifdef EMULATOR_TSAN
  GTEST_SKIP() << "ThreadSanitizer would report them";
#endif
  const emulator::test::Environment late("EMULATOR_ASYNC", "late");
  std::ifstream source(__FILE__);
  const std::vector<BarrierLine> lines = barrier_lines(source, "multiply_tiles");
  EXPECT_EQ(lines.size(), kLines);
  for (const BarrierLine& line : lines) {
    bool is_found = false;
    for (const char* schedule : {"forward", "reverse", "warps", "warps-reverse", "random:1", "random:2"}) {
      emulator::set_schedule(schedule);
      emulator::skip_barrier("runtime_pipeline_test.cu", line.number);
      is_found = is_found || !is_right();
      emulator::skip_no_barrier();
    }
    emulator::set_schedule("");
    EXPECT_TRUE(is_found) << "without line " << line.number;
  }
}

}  // namespace
}  // namespace tutorial
