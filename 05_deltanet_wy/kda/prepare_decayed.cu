/// @file
/// The kernel of prepare_decayed.cuh, without marks.

#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/chunk/fragments.cuh"
#include "05_deltanet_wy/kda/prepare_decayed.cuh"
#include "05_deltanet_wy/kda/prepare_decayed.hpp"
#include "common/ceil_div.hpp"

namespace tutorial::kda {

Prepared prepare(const Bf16Arguments& a, const ForGradients& also) {
  return prepare(a, also, NoMarks());
}

Prepared prepare(const PackedSequences<Bf16Arguments>& p, const ForGradients& also) {
  return prepare(p, also, NoMarks());
}

std::int64_t prepared_memory(const Bf16Arguments& a) {
  return prepared_memory(a, ceil_div(a.L, kChunk));
}

std::int64_t prepared_memory(const Bf16Arguments& a, int N) {
  const std::int64_t of_chunk =
      (3 * kChunk * 2 + 4) * std::int64_t(a.Dk) + 3 * kBlockUnits * std::int64_t(sizeof(uint4));
  return std::int64_t(a.B) * a.H * N * of_chunk;
}

}  // namespace tutorial::kda
