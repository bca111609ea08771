#include "05_deltanet_wy/delta_rule_backward/dispatch/segments.hpp"

#include <algorithm>

#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/estimate/card.hpp"

namespace tutorial::delta_rule {
namespace {

constexpr int kChunk = 64, kPair = 2;  // positions of a chunk; chunks from one state that is left to the next
constexpr int kColumns = 64;

constexpr double kLinkClocks = 1980;    // from one segment to the next
constexpr double kTwoMoreLaunches = 8;  // microseconds

}  // namespace

BackwardSegments BackwardSegments::one_wave(const Bf16BackwardArguments& g) {
  const int pairs = ceil_div(g.L, kPair * kChunk);
  const std::int64_t blocks = std::int64_t(g.B) * g.H * 2 * ceil_div(g.Dv, kColumns);
  const int most = int(std::clamp<std::int64_t>(multiprocessor_count() / blocks, 1, std::min(pairs, kMost)));
  const int length = ceil_div(pairs, most);
  return {ceil_div(pairs, length), kPair * length};
}

bool segments_are_faster(const Bf16BackwardArguments& g, double chunk_clocks, bool has_gates) {
  const BackwardSegments cut = BackwardSegments::one_wave(g);
  if (cut.count == 1) return false;
  const estimate::Card card = estimate::card();
  const auto walk = [&](double chunks) { return card.microseconds(chunks * chunk_clocks); };
  const std::int64_t tiles = ceil_div(g.Dv, kColumns), of_keys = ceil_div(g.Dk, kColumns);
  const std::int64_t maps = std::int64_t(g.B) * g.H * ((cut.count - 1) * 2 * tiles + (cut.count - 2) * of_keys);
  const double walks = walk(cut.chunks) + kTwoMoreLaunches;
  const double exact =
      walks + walk(double(card.rounds(maps)) * cut.chunks) + card.microseconds((cut.count - 2) * kLinkClocks);
  const double from_zeros = walks + walk(1);
  return (has_gates ? (exact + from_zeros) / 2 : exact) < walk(ceil_div(g.L, kChunk));
}

std::int64_t backward_segments_memory(const Bf16BackwardArguments& g, const BackwardSegments& segments, int rates) {
  if (segments.count == 1) return 0;
  const std::int64_t heads = std::int64_t(g.B) * g.H, Dk = g.Dk <= 64 ? 64 : 128;
  const std::int64_t states = 2 * 4 * Dk * ceil_div(g.Dv, kColumns) * kColumns, transition = 2 * Dk * Dk;
  const std::int64_t of_segment = states + transition + 4 * rates;
  return heads * ((segments.count - 1) * of_segment + (rates > 0 ? 4 * ceil_div(g.L, kChunk) : 0));
}

}  // namespace tutorial::delta_rule
