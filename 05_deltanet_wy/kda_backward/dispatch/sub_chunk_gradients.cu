/// @file
/// The gradients of the chunks that have no anchor, for `warpgroups` of `--backward`: the kernel of `tensor_core`, on what
/// the walks of `warpgroups` leave. A block whose chunk has one ends at once.

#include <cuda_runtime.h>

#include "05_deltanet_wy/kda_backward/dispatch/sub_chunk_gradients.cuh"
#include "05_deltanet_wy/kda_backward/dispatch/sub_chunk_gradients.hpp"
#include "common/device/early_start.cuh"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/warp.cuh"
#include "common/tile/select_shape.cuh"

namespace tutorial::kda {
namespace {

using namespace tile;
using sub_chunks::kColumns;

/// The gradients of the chunks that have no anchor, all but dv. Grid (chunks, H, B).
/// @tparam Shape its keys are the columns of Dv
/// @tparam kNormalize whether there are factors of keys
template <class Shape, bool kNormalize>
__global__ void __launch_bounds__(sub_chunks::kGradientThreads, 2)
    sub_chunks_kernel(Bf16BackwardArguments g, PreparedChunks prepared, WalkedChunks x) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), n = int(blockIdx.x);
  const std::int64_t chunk = (std::int64_t(b) * g.H + h) * prepared.N + n;
  let_next_kernel_start();
  if (load_for_update(prepared.anchors + chunk)) return;
  const auto fragments = [&](const __nv_bfloat16* states) {
    const auto* of_chunk = reinterpret_cast<const uint4*>(states + chunk * state_rows(g.Dv) * g.Dk);
    return sub_chunks::StateFragments{of_chunk + lane_index(), g.Dk / 16 * 32};
  };
  const float* factors = kNormalize ? prepared.factors + chunk * kChunk : nullptr;
  // What is read of a tile of columns after its last barrier is written again after the next one's first barrier.
  for (int column = 0; column < g.Dk; column += kColumns) {
    sub_chunks::gradients_of_chunk<Shape>(
        g, {b, h, n, column, x.v_new, factors, x.v_errors, prepared.matrices + chunk * kMatrixRows * kChunk + 14},
        fragments(x.S), fragments(x.dS));
  }
}

}  // namespace

void gradients_by_sub_chunks(const Bf16BackwardArguments& g, const PreparedChunks& prepared, const WalkedChunks& x) {
  select_shape(g.Dv, [&]<class Shape>(Shape) {
    if constexpr (Shape::kDk <= 128) {
      launch(prepared.factors ? sub_chunks_kernel<Shape, true> : sub_chunks_kernel<Shape, false>,
             {dim3(unsigned(prepared.N), unsigned(g.H), unsigned(g.B)), unsigned(sub_chunks::kGradientThreads),
              sizeof(sub_chunks::ChunkMemory<Shape>)},
             g, prepared, x);
    }
  });
}

}  // namespace tutorial::kda
