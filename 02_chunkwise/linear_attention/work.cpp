/// @file
/// The operations of the stages.

#include <algorithm>
#include <cstdint>

#include "02_chunkwise/operators.hpp"
#include "common/chapter/attention.hpp"

namespace tutorial::linear_attention {
namespace {

constexpr int kChunkLength = 64;  // of the GPU stages

/// Operations with a state: at each position k_t^T v_t is added to it and q_t S is read from it, or the same for whole
/// chunks.
double state_flops(const Sizes& s) {
  return positions(s) * 4 * double(s.at("Dk") * s.at("Dv"));
}

/// Operations on scores where a query sees the keys of its chunk up to its own: (C + 1) / 2 on average, each a
/// product with a row of Dk and a sum of rows of Dv.
double score_flops(const Sizes& s, std::int64_t C) {
  return positions(s) * double(std::min(C, s.at("L")) + 1) * double(s.at("Dk") + s.at("Dv"));
}

/// The operations of all stages in chunks of C, a multiply-add counting as two.
double chunk_flops(const Sizes& s, std::int64_t C) {
  return score_flops(s, C) + state_flops(s);
}

}  // namespace

Work gpu_work(const Sizes& s) {
  return {.fma_flops = chunk_flops(s, kChunkLength)};
}

Work recurrent_work(const Sizes& s) {
  return {.fma_flops = state_flops(s)};
}

Work parallel_work(const Sizes& s) {
  return {.fma_flops = chunk_flops(s, s.at("L"))};  // one chunk
}

Work chunkwise_work(const Sizes& s) {
  return {.fma_flops = chunk_flops(s, s.at("C"))};
}

Work tensor_work(const Sizes& s) {
  return {.tensor_flops = chunk_flops(s, kChunkLength)};
}

}  // namespace tutorial::linear_attention
