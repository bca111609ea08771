#include "05_deltanet_wy/gated_delta_rule/prepare_gated_tiles.hpp"

#include "05_deltanet_wy/chunk/tile_rows.cuh"
#include "05_deltanet_wy/gated_delta_rule/prepare_gated.cuh"

namespace tutorial::gated_delta_rule {

static __device__ __forceinline__ void store_scores(const PreparedTiles& out, const ForGradients&, std::int64_t chunk,
                                                    BlockRow& P, int r) {
  store_rows(out.tiles + (chunk * kPreparedRows + 2 * kChunk) * kChunk, P, r);
}
static __device__ __forceinline__ void store_T(const PreparedTiles& out, const ForGradients&, std::int64_t chunk,
                                               BlockRow& T, int r, const AlikeRows& alike) {
  for_each_element(T, r, [](int, int, float& x) { x = -x; });
  mark(T, r, alike);
  __nv_bfloat16* rows = out.tiles + chunk * kPreparedRows * kChunk;
  store_rows(rows, T, r);
  store_rows(rows + kChunk * kChunk, T, r);
}

PreparedTiles prepare_tiles(const Bf16Arguments& a, const ForGradients& also) {
  const int N = ceil_div(a.L, kChunk);
  auto* tiles = workspace<__nv_bfloat16>("gated_delta_rule: tiles of T and P",
                                         std::size_t(a.B) * a.H * N * kPreparedRows * kChunk);
  return filled(a, PreparedTiles{{N, tiles}, reserve_decays(a)}, also);
}

std::int64_t prepared_tiles_memory(const Bf16Arguments& a) {
  return delta_rule::prepared_tiles_memory(a) +
         std::int64_t(a.B) * a.H * ceil_div(a.L, kChunk) * kDecays * std::int64_t(sizeof(float));
}

}  // namespace tutorial::gated_delta_rule
