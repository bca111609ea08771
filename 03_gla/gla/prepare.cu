/// @file
/// The kernel in front of the stages 7 and 8: the gates of each sub-chunk, in q, in k, and in the scores of its own
/// pairs. prepared.hpp has the formulas, decay_sub_chunk.cuh the loop.
///
/// Idea: a pair's decay is a product of gates, and a product of numbers between 0 and 1 needs no logarithm to be
/// stable: what is not stable is to divide one by another. So nothing is divided. A key starts as k_i, and with each
/// position t that passes it is multiplied by a_t, once for all of the sub-chunk's queries that are still to come: 16
/// keys in 16 registers for each element d, that fade like rows of a state. A query's score is the product with what
/// is left of the key, and what is left of it in the end is what goes into the state. This takes one exponential for
/// each gate, where stage 6 has one for each pair; and no sum of gates exists that could lose a weak gate behind a
/// strong one.
///
///     t = 1:   k_1
///     t = 2:   k_1 a_2        k_2                      P_2i = sum_d q_2d (row t = 2, column i)_d
///     t = 3:   k_1 a_2 a_3    k_2 a_3    k_3
///      ...
///
/// Shapes: q, k, g [B, H, L, Dk] in; Prepared out.
/// Who does what: block (n, h, b) has chunk n of head (b, h), each of its 4 warps a sub-chunk, without any barrier. A
/// lane has 4 neighbouring elements d of each row (2 where Dk <= 64); slices of 128 elements follow one another. The 16
/// sums of a query are added up over the lanes in 16 shuffles: with each step a lane hands half of its sums to its
/// partner and takes the other half of the partner's, until lane l has that of key l / 2.
/// All 16 rows are asked for before the first is used: that is what the multiprocessor has of memory requests under
/// way.
/// Resources: 168 registers, three blocks a multiprocessor; no shared memory.
/// Operations for each q_td: 17 / 2 multiply-adds, 15 / 2 multiplications and one exponential, and the shuffles.
/// Bytes for each q_td: q, k and g read once, 8; q~ and k~ written, 4; decays and scores, 1 / 4 + 32 / Dk.
/// Limit: the memory's bandwidth. Needs: Dk a multiple of 16, rows aligned to 16 bytes.
/// Weakness: q and k make another trip through memory.
/// Sources: arXiv 2312.06635, section 4.3, for the two levels; products instead of differences of sums are ours.

#include <cuda_runtime.h>

#include "03_gla/gla/decay_sub_chunk.cuh"
#include "03_gla/gla/prepared.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/warp.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::gla {
namespace {

constexpr int kChunkLength = 64;
constexpr int kPrepareThreads = 32 * kChunkLength / kSubChunk;

/// Writes a lane's elements of the rows of a sub-chunk.
template <int kElements>
struct ToMemory {
  __nv_bfloat16 *q, *k;  ///< the lane's elements of the first row
  float* decays;
  int stride;        ///< from row to row
  bool has_columns;  ///< the lane's elements exist

  using Half = decltype(Row<kElements>::q);
  using Float = decltype(Row<kElements>::g);

  __device__ __forceinline__ void query(int t, const float (&row)[kElements]) const {
    if (has_columns) store_global(reinterpret_cast<Half*>(q + std::int64_t(t) * stride), packed_row(row));
  }
  __device__ __forceinline__ void key(int i, const float (&row)[kElements]) const {
    if (has_columns) store_global(reinterpret_cast<Half*>(k + std::int64_t(i) * stride), packed_row(row));
  }
  __device__ __forceinline__ void decay(const float (&row)[kElements]) const {
    if (has_columns) store_global(reinterpret_cast<Float*>(decays), float_row(row));
  }
};

/// Grid (N, H, B).
template <int kElements>
__global__ void __launch_bounds__(kPrepareThreads, 3) prepare_kernel(HalfArguments a, Prepared out) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), lane = int(lane_index());
  const int sub_chunk = int(blockIdx.x) * (kChunkLength / kSubChunk) + int(threadIdx.x) / 32;
  const int first = sub_chunk * kSubChunk;
  const std::int64_t head = std::int64_t(b) * a.H + h;
  const std::int64_t at = head * out.N * (kChunkLength / kSubChunk) + sub_chunk;  // among all sub-chunks

  float scores[8] = {};
#pragma unroll 1
  for (int slice = 0; slice < a.Dk; slice += 32 * kElements) {
    const int d = slice + lane * kElements;
    Row<kElements> all[kSubChunk];
#pragma unroll
    for (int t = 0; t < kSubChunk; ++t) all[t] = load_row<kElements>(a, b, h, first + t, d);
    const auto no_more = [](int) { return Row<kElements>{}; };
    const std::int64_t row = at * kSubChunk * a.Dk + d;
    const ToMemory<kElements> rows{out.q + row, out.k + row, out.decays + at * a.Dk + d, a.Dk, d < a.Dk};
    decay_sub_chunk<kElements, true>(all, a.L - first, d < a.Dk, no_more, rows, scores);
  }
  auto* units = reinterpret_cast<uint4*>(out.scores + at * kSubChunk * kSubChunk);
  store_global(units + score_unit(), packed_scores(scores));
}

int chunk_count(const HalfArguments& a) {
  return (a.L - 1) / kChunkLength + 1;
}

/// Elements of the four tensors, each a multiple of 256 bytes.
struct Sizes {
  std::int64_t rows, decays, scores;

  explicit Sizes(const HalfArguments& a) {
    const std::int64_t sub_chunks = std::int64_t(a.B) * a.H * chunk_count(a) * (kChunkLength / kSubChunk);
    rows = sub_chunks * kSubChunk * a.Dk;
    decays = sub_chunks * a.Dk;
    scores = sub_chunks * kSubChunk * kSubChunk;
  }
};

}  // namespace

Prepared prepare(const HalfArguments& a) {
  const Sizes sizes(a);
  auto* rows = workspace<__nv_bfloat16>("gla: decayed q and k", std::size_t(2 * sizes.rows));
  const Prepared prepared{chunk_count(a), rows, rows + sizes.rows,
                          workspace<float>("gla: decays of sub-chunks", std::size_t(sizes.decays)),
                          workspace<__nv_bfloat16>("gla: scores in sub-chunks", std::size_t(sizes.scores))};
  const auto kernel = a.Dk <= 64 ? prepare_kernel<2> : prepare_kernel<4>;
  launch(kernel, {dim3(unsigned(prepared.N), unsigned(a.H), unsigned(a.B)), kPrepareThreads}, a, prepared);
  return prepared;
}

std::int64_t prepared_memory(const HalfArguments& a) {
  const Sizes sizes(a);
  return 2 * (2 * sizes.rows + sizes.scores) + 4 * sizes.decays;
}

}  // namespace tutorial::gla
