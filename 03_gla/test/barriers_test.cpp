/// @file
/// Every barrier of the chapter's kernels is needed: common/test/barriers.hpp.

#if TUTORIAL_EMULATOR

#include "common/test/barriers.hpp"

namespace tutorial {
namespace {

// The wait of `warpgroup_walk` for a tile of outputs keeps the state from getting two chunks ahead of the warps that
// store. No order of the emulator's lets it. Nor does it notice a load over what was read by ordinary loads: decays here
// and in the walks for states, a state in `warpgroup_gradients`. There kKeysAreRead keeps a warp from writing over keys
// that another warp's part of a product still reads; in the emulator a product is one event. (In `anchored_pairs` there
// are two more of this kind, for v and do. There dv leaves before B takes its place, by ordinary stores, which bulk
// stores do not see in the emulator.) `warpgroup_states` does not use the bulk stores of the file that it shares with
// `warpgroup_gradients`, and the steps of whole chunks (wgmma_ behind six spaces) not at all; `one_anchor` uses nothing
// but these. In the kernel that prepares a chunk, a sum that is not there yet is no number, and the chunk goes through
// sub-chunks, as it may.
constexpr KernelWithBarriers kKernels[] = {
    {"gla", "recurrent_gpu", "03_gla/gla/5_recurrent_gpu.cu", 128, 16},
    {"gla", "chunk_gpu", "03_gla/gla/6_chunk_gpu.cu", 128, 16},
    {"gla", "subchunk_tensor_core", "03_gla/gla/7_subchunk_tensor_core.cu", 64, 64},
    {"gla", "subchunk_walk", "03_gla/gla/8_subchunk_walk.cu", 64, 64},
    {"gla", "sequence_parallel", "03_gla/gla/9_sequence_parallel.cu", 64, 64, 400},
    {"gla", "warpgroup_walk", "03_gla/gla/10_warpgroup_walk.cu", 64, 64, 390, "", "", "output_empty|fence_async_proxy"},
    {"gla --backward", "subchunk_walks", "03_gla/gla_backward/4_subchunk_walks.cu", 80, 64},
    {"gla --backward", "materialized", "03_gla/gla_backward/5_materialized.cu", 80, 64},
    {"gla --backward", "materialized", "03_gla/gla_backward/gradients_of_chunks.cu", 80, 64},
    {"gla --backward", "warpgroup_states", "03_gla/gla_backward/warpgroup_states.cuh", 64, 64, 390, "", "",
     "fence_async_proxy|_stores|__syncwarp|^      wgmma_"},
    {"gla --backward", "warpgroup_gradients", "03_gla/gla_backward/warpgroup_states.cuh", 64, 64, 390, "", "",
     "fence_async_proxy|^      wgmma_"},
    {"gla --backward", "one_anchor", "03_gla/gla_backward/warpgroup_states.cuh", 64, 64, 390, "", "",
     "fence_async_proxy|^        wgmma_"},
    {"gla --backward", "warpgroup_gradients", "03_gla/gla_backward/7_warpgroup_gradients.cu", 64, 64, 130, "", "",
     "fence_async_proxy|kKeysAreRead"},
    {"gla --backward", "anchored_pairs", "03_gla/gla_backward/anchored_pairs.cuh", 64, 64, 130, "", "",
     "fence_async_proxy|AreRead|fresh_lane.*_stores|^  commit_stores|^    __syncwarp"},
    {"gla --backward", "one_anchor", "03_gla/gla_backward/9_one_anchor.cu", 64, 64, 130, "", "",
     "fence_async_proxy|AreRead|fresh_lane.*_stores|^    __syncwarp|sums are there"},
};

INSTANTIATE_TEST_SUITE_P(Kernels, BarriersTest, testing::ValuesIn(kKernels), name_of_kernel);

}  // namespace
}  // namespace tutorial

#endif
