/// @file
/// The gradients of the chunks that have no anchor, for `warpgroups` of `--backward`: the kernel of `tensor_core`, on what
/// the walks of `warpgroups` leave. As many blocks as run at once take such chunks in turn; where there is none, they
/// look at the sign of each chunk's decay and end.

#include <cuda_runtime.h>

#include <algorithm>

#include "05_deltanet_wy/kda_backward/dispatch/sub_chunk_gradients.cuh"
#include "05_deltanet_wy/kda_backward/dispatch/sub_chunk_gradients.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/device/early_start.cuh"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/warp.cuh"
#include "common/tile/select_shape.cuh"

namespace tutorial::kda {
namespace {

using namespace tile;
using sub_chunks::kColumns;

/// The gradients of the chunks that have no anchor, all but dv. Starts early. Grid (at least a block
/// for every 256 chunks).
/// @tparam Shape its keys are the columns of Dv
/// @param chunks of all heads
template <class Shape>
__global__ void __launch_bounds__(sub_chunks::kGradientThreads, 2)
    sub_chunks_kernel(Bf16BackwardArguments g, PreparedChunks prepared, WalkedChunks x, int chunks) {
  __shared__ int is_left[sub_chunks::kGradientThreads];
  wait_for_previous_kernel();
  const int first = int(blockIdx.x), own = first + int(threadIdx.x) * int(gridDim.x);
  is_left[threadIdx.x] = own < chunks && !(load_for_update(prepared.decays + std::int64_t(own) * g.Dk) < 0);
  __syncthreads();
  for (int i = 0; i < sub_chunks::kGradientThreads; ++i) {
    if (!is_left[i]) continue;
    const int chunk = first + i * int(gridDim.x), head = chunk / prepared.N, n = chunk % prepared.N;
    const std::int64_t state = std::int64_t(chunk) * state_rows(g.Dv) * g.Dk;
    const auto fragments = [&](const __nv_bfloat16* states) {
      return sub_chunks::StateFragments{reinterpret_cast<const uint4*>(states + state) + lane_index(), g.Dk / 16 * 32};
    };
    const float* factors = prepared.factors ? prepared.factors + std::int64_t(chunk) * kChunk : nullptr;
    // What the chunk before is read for after its last barrier is written again after the first one of this chunk.
    for (int column = 0; column < g.Dk; column += kColumns) {
      sub_chunks::gradients_of_chunk<Shape>(g, {head / g.H, head % g.H, n, column, x.v_new, factors}, fragments(x.S),
                                            fragments(x.dS));
    }
  }
}

}  // namespace

void gradients_by_sub_chunks(const Bf16BackwardArguments& g, const PreparedChunks& prepared, const WalkedChunks& x) {
  const int chunks = g.B * g.H * prepared.N;
  const int blocks = std::max(2 * multiprocessor_count(), ceil_div(chunks, sub_chunks::kGradientThreads));
  select_shape(g.Dv, [&]<class Shape>(Shape) {
    if constexpr (Shape::kDk <= 128) {
      LaunchConfig config(unsigned(std::min(chunks, blocks)), unsigned(sub_chunks::kGradientThreads),
                          sizeof(sub_chunks::ChunkMemory<Shape>));
      config.starts_early = true;
      launch(sub_chunks_kernel<Shape>, config, g, prepared, x, chunks);
    }
  });
}

}  // namespace tutorial::kda
