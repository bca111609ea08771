/// @file
/// The bytes that the kernels of the stages read from global memory or write to it.

#include "04_fused_chunk/gla/intermediates.hpp"
#include "04_fused_chunk/gla/one_kernel.hpp"
#include "common/ceil_div.hpp"

namespace tutorial::fused_gla {
namespace {

/// Positions of all heads.
std::int64_t positions(const Bf16Arguments& a) {
  return std::int64_t(a.B) * a.H * a.L;
}

/// Of reading the initial state and writing the final state.
std::int64_t state_bytes(const Bf16Arguments& a) {
  const int states = (a.initial_state.data != nullptr) + (a.final_state.data != nullptr);
  return std::int64_t(4) * states * a.B * a.H * a.Dk * a.Dv;
}

std::int64_t decay_cumsum_bytes(const Bf16Arguments& a) {
  return (4 + 4) * positions(a) * a.Dk;  // g; sums
}

std::int64_t prepare_qg_kg_bytes(const Bf16Arguments& a) {
  return (4 + 2 + 2 + 2 + 2) * positions(a) * a.Dk;  // sums, q, k; q_g, k_g
}

std::int64_t prepare_bytes(const Bf16Arguments& a) {
  return (4 + 2 + 2 + 4 + 2 + 2) * positions(a) * a.Dk;  // g, q, k; sums, q_g, k_g
}

/// What a walk reads of q_g, k_g and the last rows of sums, once for each slice of Dv.
std::int64_t prepared_key_bytes(const Bf16Arguments& a) {
  const std::int64_t last_rows = std::int64_t(a.B) * a.H * sub_chunks(a.L);
  return ((2 + 2) * positions(a) + 4 * last_rows) * a.Dk * slices(a.Dv);
}

std::int64_t fused_chunk_bytes(const Bf16Arguments& a) {
  const std::int64_t values = 2 * positions(a) * a.Dv * slices(a.Dk);
  return prepared_key_bytes(a) + values + partial_bytes(a) + state_bytes(a);
}

std::int64_t inner_chunk_bytes(const Bf16Arguments& a) {
  return (2 + 2 + 4) * positions(a) * a.Dk + score_bytes(a);  // q, k, sums; scores
}

std::int64_t combine_bytes(const Bf16Arguments& a) {
  return score_bytes(a) * slices(a.Dv) + partial_bytes(a) + (2 + 2) * positions(a) * a.Dv;  // v; o
}

}  // namespace

std::int64_t chapter_03_bytes_moved(const Bf16Arguments& a) {
  return gla::dispatch_bytes_moved(a);
}

std::int64_t five_steps_bytes_moved(const Bf16Arguments& a) {
  return decay_cumsum_bytes(a) + prepare_qg_kg_bytes(a) + fused_chunk_bytes(a) + inner_chunk_bytes(a) +
         combine_bytes(a);
}

std::int64_t prepare_fused_bytes_moved(const Bf16Arguments& a) {
  return prepare_bytes(a) + fused_chunk_bytes(a) + inner_chunk_bytes(a) + combine_bytes(a);
}

std::int64_t combine_fused_bytes_moved(const Bf16Arguments& a) {
  const std::int64_t values = (2 + 2) * positions(a) * a.Dv;  // v; o
  return prepare_bytes(a) + inner_chunk_bytes(a) + prepared_key_bytes(a) + score_bytes(a) * slices(a.Dv) + values +
         state_bytes(a);
}

std::int64_t intra_fused_bytes_moved(const Bf16Arguments& a) {
  const std::int64_t keys = (2 + 2 + 2 + 2 + 4) * positions(a) * a.Dk * slices(a.Dv);  // q, k, q_g, k_g, sums
  return prepare_bytes(a) + keys + (2 + 2) * positions(a) * a.Dv + state_bytes(a);     // v; o
}

std::int64_t one_kernel_bytes_moved(const Bf16Arguments& a) {
  // The preparing warps read whole chunks and all columns of their shape, and at the end kAhead rows too many.
  constexpr int kChunkLength = kSubChunk * tile::kSubChunks;
  const std::int64_t rows = std::int64_t(kChunkLength) * ceil_div(a.L, kChunkLength) + tile::kSubChunks * kAhead;
  const std::int64_t columns = a.Dk <= 64 ? 64 : a.Dk <= 128 ? 128 : 256;
  const std::int64_t keys = rows * columns * (2 + 2 + 4) * ceil_div(a.Dv, one_kernel_columns(a));
  return std::int64_t(a.B) * a.H * (keys + (2 + 2) * std::int64_t(a.L) * a.Dv) + state_bytes(a);  // v; o
}

std::int64_t warp_specialized_bytes_moved(const Bf16Arguments& a) {
  // Bulk copies move what exists.
  const std::int64_t keys = (2 + 2 + 4) * positions(a) * a.Dk * ceil_div(a.Dv, one_kernel_columns(a));
  return keys + (2 + 2) * positions(a) * a.Dv + state_bytes(a);  // v; o
}

}  // namespace tutorial::fused_gla
