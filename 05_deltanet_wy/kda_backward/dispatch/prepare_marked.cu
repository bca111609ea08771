/// @file
/// The kernel of kda/prepare_decayed.cuh, with marks for chunks where many keys are alike (alike_scores.cuh).

#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/chunk/block_rows.cuh"
#include "05_deltanet_wy/chunk/fragments.cuh"
#include "05_deltanet_wy/kda/prepare_chunk.cuh"
#include "05_deltanet_wy/kda/prepare_decayed.cuh"
#include "05_deltanet_wy/kda_backward/dispatch/alike_scores.cuh"
#include "05_deltanet_wy/kda_backward/dispatch/prepare_marked.hpp"
#include "common/device/memory.cuh"

namespace tutorial::kda {
namespace {

static_assert(AlikeSlice::kBytes <= 2 * ChunkMemory<64>::kScores,
              "columns of a marked chunk come where own scores were");

class Marks {
 public:
  static constexpr bool kExist = true;

  explicit Marks(const RoundingErrors& errors) : errors_(errors) {}

  static __device__ __forceinline__ bool are_alike(const BlockRow& A, int r, const float* factors) {
    return __syncthreads_or(kda::are_alike(A, r, factors)) != 0;
  }

  /// P and A of a marked chunk in fp32, with what they are multiplied by, and what rounding leaves out of K-, which each
  /// thread has stored its part of before.
  /// @param memory of an AlikeSlice, which no warp has used since a barrier
  __device__ __forceinline__ void replace_scores(BlockRow& P, BlockRow& A, const Bf16Arguments& a, const Prepared& out,
                                                 float* memory, int b, int h, int t, std::int64_t chunk, int warp,
                                                 int r, const float* beta, const float* factors) const {
    const std::int64_t first = chunk * kChunk * a.Dk;
    scores_of_alike_keys(
        P, A, a, b, h, t, warp, r, factors, memory,
        [&](int row, int d) { return __bfloat162float(load_for_update(out.K_end + first + row * a.Dk + d)); },
        [&](int row, int d, float x) { store_global(errors_.K + first + row * a.Dk + d, __nv_bfloat16(x)); });
    for_each_element(P, r, [&](int t, int i, float& x) {
      if (i > t) x = 0;
    });
    for_each_element(A, r, [&](int t, int i, float& x) { x = i < t ? beta[t] * x : 0.0f; });
  }

  /// @param P what is left of it when it has been stored once
  __device__ __forceinline__ void store_errors(std::int64_t chunk, BlockRow& P, int r) const {
    store_flipped_blocks(errors_.P + chunk * kBlockUnits, P, r);
  }

 private:
  RoundingErrors errors_;
};

}  // namespace

Prepared prepare_marked(const Bf16Arguments& a, const ForGradients& also, const RoundingErrors& errors) {
  return prepare(a, also, Marks(errors));
}

Prepared prepare_marked(const PackedSequences<Bf16Arguments>& p, const ForGradients& also,
                        const RoundingErrors& errors) {
  return prepare(p, also, Marks(errors));
}

}  // namespace tutorial::kda
