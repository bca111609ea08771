/// @file
/// What the stages 6 to 9 must know of a problem before they start a kernel: whether the tensor-core kernels take it,
/// and how it is cut into blocks.

#include <algorithm>
#include <cstdint>

#include "02_chunkwise/spread.hpp"
#include "common/device/device.hpp"

namespace tutorial::linear_attention {
namespace {

constexpr int kChunkLength = 64;
constexpr int kMaxKeyDim = 256, kMaxValueDim = 512;

// Shared memory of a block of stage 7 with the normaliser, in KB, where the tiles are largest.
constexpr int kSharedOfWideTile = 112;  // Dk = 128, 128 columns
constexpr int kSharedOfWideKeys = 160;  // Dk = 256, 64 columns

bool block_may_have(int kilobytes) {
  return shared_memory_per_block() >= kilobytes * 1024;
}

int divided_up(std::int64_t count, int by) {
  return int((count - 1) / by + 1);
}

constexpr double kTwoMoreLaunches = 6;  // microseconds
constexpr double kCarryStep = 0.1;      // microseconds a segment
constexpr double kStateBytesPerMicrosecond = 3.5e6;
constexpr int kStateTrips = 3;  // of the four, one is under a walk

template <class T>
bool has_aligned_rows(const View<T>& view) {
  constexpr int kElements = 16 / int(sizeof(T));
  return reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0 && view.stride_b % kElements == 0 &&
         view.stride_h % kElements == 0 && view.stride_l % kElements == 0;
}

}  // namespace

std::string tensor_core_limits(const HalfArguments& a) {
  if (a.Dk % 16 != 0 || a.Dv % 16 != 0) return "Dk or Dv is no multiple of 16, the width of a fragment";
  if (a.Dk > kMaxKeyDim) return "Dk > 256: the state would not fit into a block's registers";
  if (a.Dk > 128 && !block_may_have(kSharedOfWideKeys)) {
    return "Dk > 128: two sets of tiles do not fit into a block's shared memory on this GPU";
  }
  if (a.Dv > kMaxValueDim) return "Dv > 512: not tested";
  if (a.B > 65535 || a.H > 65535) return "B or H > 65535: the grid";
  if (std::int64_t(a.B) * a.H > INT32_MAX) return "B H > 2^31 - 1: heads are counted in int";
  if (a.L > INT32_MAX - 2 * kChunkLength) return "L > 2^31 - 129: positions are counted in int";
  if (!has_aligned_rows(a.q) || !has_aligned_rows(a.k) || !has_aligned_rows(a.v) || !has_aligned_rows(a.o)) {
    return "rows are not aligned to 16 bytes";
  }
  return "";
}

std::int64_t tensor_core_memory(const HalfArguments&) {
  return 0;
}

Spread make_spread(int L, int columns, int segments) {
  const int chunks = divided_up(L, kChunkLength), each = divided_up(chunks, std::min(segments, chunks));
  return {columns, divided_up(chunks, each), each * kChunkLength, nullptr};
}

int widest_tile(const HalfArguments& a) {
  if (a.Dv <= 64 || a.Dk > 128) return 64;
  return a.Dk <= 64 || block_may_have(kSharedOfWideTile) ? 128 : 64;
}

int block_columns(const HalfArguments& a) {
  const bool fills_the_gpu = std::int64_t(a.B) * a.H * divided_up(a.Dv, 128) >= multiprocessor_count();
  return fills_the_gpu ? widest_tile(a) : 64;
}

Spread one_wave(const HalfArguments& a) {
  const int columns = widest_tile(a);
  const std::int64_t blocks = std::int64_t(a.B) * a.H * divided_up(a.Dv, columns);
  return make_spread(a.L, columns, int(std::max<std::int64_t>(multiprocessor_count() / blocks, 1)));
}

std::int64_t spread_memory(const HalfArguments& a, const Spread& spread) {
  return std::int64_t(sizeof(float)) * a.B * a.H * (spread.segments - 1) * a.Dk * a.Dv;
}

double estimated_time(const HalfArguments& a, const WalkTimes& times, const Spread& spread) {
  const int multiprocessors = multiprocessor_count(), resident = a.Dk <= 128 ? 2 : 1;
  const std::int64_t blocks = std::int64_t(a.B) * a.H * divided_up(a.Dv, spread.columns) * spread.segments;
  const double rounds = divided_up(blocks, resident * multiprocessors);
  const bool alone = blocks <= multiprocessors || resident == 1;
  const double chunks = rounds * (spread.length / kChunkLength) * (0.3 + 0.7 * a.Dk / 128);
  const TileTimes& tile = spread.columns == 64 ? times.narrow : times.wide;
  double time = chunks * (alone ? tile.walk.alone : tile.walk.shared);
  if (spread.segments > 1) {
    time += chunks * (alone ? tile.states.alone : tile.states.shared) + kTwoMoreLaunches +
            kCarryStep * spread.segments + kStateTrips * double(spread_memory(a, spread)) / kStateBytesPerMicrosecond;
  }
  return time;
}

Spread fastest_spread(const HalfArguments& a, const WalkTimes& times) {
  Spread best;
  double least = 0;
  for (const int columns : {64, 128}) {
    if (columns > widest_tile(a)) continue;
    const std::int64_t blocks = std::int64_t(a.B) * a.H * divided_up(a.Dv, columns);
    const int most =
        int(std::clamp<std::int64_t>(2 * multiprocessor_count() / blocks, 1, divided_up(a.L, kChunkLength)));
    for (int segments = 1; segments <= most; ++segments) {
      const Spread spread = make_spread(a.L, columns, segments);
      const double time = estimated_time(a, times, spread);
      if (best.length == 0 || time < least) {
        best = spread;
        least = time;
      }
    }
  }
  return best;
}

}  // namespace tutorial::linear_attention
