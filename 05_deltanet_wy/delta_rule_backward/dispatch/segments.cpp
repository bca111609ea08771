#include "05_deltanet_wy/delta_rule_backward/dispatch/segments.hpp"

#include <algorithm>

#include "common/ceil_div.hpp"
#include "common/device/device.hpp"

namespace tutorial::delta_rule {
namespace {

constexpr int kChunk = 64, kPair = 2;  // positions of a chunk; chunks from one state that is left to the next
constexpr int kColumns = 64;

}  // namespace

BackwardSegments BackwardSegments::one_wave(const Bf16BackwardArguments& g) {
  const int pairs = ceil_div(g.L, kPair * kChunk);
  const std::int64_t blocks = std::int64_t(g.B) * g.H * 2 * ceil_div(g.Dv, kColumns);
  const int most = int(std::clamp<std::int64_t>(multiprocessor_count() / blocks, 1, std::min(pairs, kMost)));
  const int length = ceil_div(pairs, most);
  return {ceil_div(pairs, length), kPair * length};
}

std::int64_t backward_segments_memory(const Bf16BackwardArguments& g, const BackwardSegments& segments,
                                      bool has_gates) {
  if (segments.count == 1) return 0;
  const std::int64_t heads = std::int64_t(g.B) * g.H, Dk = g.Dk <= 64 ? 64 : 128;
  const std::int64_t states = 2 * 4 * Dk * ceil_div(g.Dv, kColumns) * kColumns, transition = 2 * Dk * Dk;
  const std::int64_t of_segment = states + transition + (has_gates ? 4 : 0);
  return heads * ((segments.count - 1) * of_segment + (has_gates ? 4 * ceil_div(g.L, kChunk) : 0));
}

}  // namespace tutorial::delta_rule
