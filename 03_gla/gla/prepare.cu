/// @file
/// The kernel that runs first in the tensor-core stages. It multiplies the gates of each sub-chunk into q, into k, and
/// into the scores of the sub-chunk with itself. prepare.hpp has the formulas, common/tile/decay_sub_chunk.cuh the
/// loop.
///
/// Idea: a pair's decay is a product of gates. A product of numbers between 0 and 1 needs no logarithm to be stable;
/// only dividing one by another is unstable. So nothing is divided. Key i starts as k_i, and at each later position t
/// it is multiplied by exp(g_t), once for all later queries of the sub-chunk. These are 16 keys in 16 registers per
/// element d, which fade like the rows of a state. The score of query t is its product with the decayed key. The key as
/// decayed after position 16 goes into the state. This takes one exponential per gate, where `chunk_gpu` takes one per
/// pair and element; and there is no sum of g in which a small |g| could be lost beside a large one.
///
///     t = 1:   k_1
///     t = 2:   k_1 exp(g_2)             k_2                     P_ti = sum_d q_td (row t, column i)_d
///     t = 3:   k_1 exp(g_2) exp(g_3)    k_2 exp(g_3)    k_3
///      ...
///
/// Shapes: q, k, g [B, H, L, Dk] in; Prepared out.
/// Thread mapping: block (n, h, b) has chunk n of head (b, h), and each of its 4 warps has one sub-chunk. No barrier is
/// needed. A lane has 4 neighbouring elements d of each row (2 if Dk <= 64); slices of 128 elements follow one another.
/// The 16 sums of a query are added up over the lanes by 16 shuffles: in each step a lane gives half of its sums to its
/// partner and receives the other half of the partner's, until lane l has the sum of key l / 2. All 16 rows are loaded
/// before the first is used, so that enough loads are in flight.
/// Resources: 168 registers, three blocks per multiprocessor; no shared memory.
/// Work: per element of q 17 / 2 multiply-adds, 15 / 2 multiplications and one exponential; and the shuffles.
/// Bytes: per element of q 8 for q, k and g; 4 for q~ and k~; 1 / 4 + 32 / Dk for decays and scores.
/// Bound by: the memory's bandwidth.
/// Requires: Dk a multiple of 16, rows aligned to 16 bytes.
/// Weakness: q and k pass through device memory once more.
/// Sources: arXiv 2312.06635, section 4.3, for the two levels; products instead of differences of sums are ours.

#include <cuda_runtime.h>

#include "03_gla/gla/prepare.hpp"
#include "03_gla/gla/prepare_sub_chunk.cuh"
#include "common/device/launch.cuh"

namespace tutorial::gla {
namespace {

using namespace tile;

constexpr int kPrepareThreads = 32 * kSubChunks;

/// Grid (N, H, B).
template <int kElements>
__global__ void __launch_bounds__(kPrepareThreads, 3) prepare_kernel(Bf16Arguments a, Prepared out) {
  const int b = int(blockIdx.z), h = int(blockIdx.y);
  const int sub_chunk = int(blockIdx.x) * kSubChunks + int(threadIdx.x) / 32;
  const std::int64_t head = std::int64_t(b) * a.H + h;
  prepare_sub_chunk<kElements>(a, out, b, h, sub_chunk * kSubChunk, head * out.N * kSubChunks + sub_chunk);
}

}  // namespace

Prepared prepare(const Bf16Arguments& a) {
  const Prepared prepared = reserve_prepared(a);
  const auto kernel = a.Dk <= 64 ? prepare_kernel<2> : prepare_kernel<4>;
  launch(kernel, {dim3(unsigned(prepared.N), unsigned(a.H), unsigned(a.B)), kPrepareThreads}, a, prepared);
  return prepared;
}

}  // namespace tutorial::gla
