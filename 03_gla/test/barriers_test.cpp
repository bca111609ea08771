/// @file
/// Every barrier of the chapter's kernels is needed: common/test/barriers.hpp.

#if TUTORIAL_EMULATOR

#include "common/test/barriers.hpp"

namespace tutorial {
namespace {

// The wait of `warpgroup_walk` for a tile of outputs keeps the state from getting two chunks ahead of the warps that
// store. No order of the emulator's lets it. Nor does it notice a load over what was read by ordinary loads: decays here
// and in the walks for states, a state where gradients are computed. There kKeysAreRead keeps a warp from writing over
// keys that another warp's part of a product still reads; in the emulator a product is one event. (There are two more of
// this kind, for v and do. dv leaves before B takes its place, by ordinary stores, which bulk stores do not see in the
// emulator.) `one_anchor` takes the steps of sub-chunks where a chunk forgets too much, as no chunk does here. In its
// kernel that prepares a chunk, a sum that is not there yet is no number, and the chunk goes through sub-chunks, as it
// may.
constexpr KernelWithBarriers kKernels[] = {
    {"gla", "recurrent_gpu", "03_gla/gla/dispatch/recurrent_gpu.cu", 128, 16},
    {"gla", "chunk_gpu", "03_gla/gla/5_chunk_gpu.cu", 128, 16},
    {"gla", "subchunk_tensor_core", "03_gla/gla/6_subchunk_tensor_core.cu", 64, 64},
    {"gla", "subchunk_walk", "03_gla/gla/7_subchunk_walk.cu", 64, 64},
    {"gla", "segments", "03_gla/gla/8_segments.cu", 64, 64, 400},
    {"gla", "warpgroup_walk", "03_gla/gla/9_warpgroup_walk.cu", 64, 64, 390, "", "", "output_empty|fence_async_proxy"},
    // A sequence of two segments.
    {"gla --lengths", "dispatch", "03_gla/gla_packed/dispatch/dispatch.cu", 64, 64, 3000},
    {"gla --backward", "subchunk_walks", "03_gla/gla_backward/dispatch/subchunk_walks.cu", 80, 64},
    {"gla --backward", "materialized", "03_gla/gla_backward/dispatch/materialized.cu", 80, 64},
    {"gla --backward", "anchored_pairs", "03_gla/gla_backward/states_walk.cuh", 64, 64, 390, "", "",
     "fence_async_proxy"},
    {"gla --backward", "anchored_pairs", "03_gla/gla_backward/4_anchored_pairs.cu", 64, 64, 390},
    {"gla --backward", "anchored_pairs", "03_gla/gla_backward/chunk_gradients.cuh", 64, 64, 130, "", "",
     "fence_async_proxy|AreRead|^  commit_stores"},
    {"gla --backward", "anchored_pairs", "03_gla/gla_backward/by_sub_chunks.cuh", 64, 64, 130, "", "",
     "AreRead|fresh_lane.*_stores|^    __syncwarp"},
    {"gla --backward", "one_anchor", "03_gla/gla_backward/5_one_anchor.cu", 64, 64, 390, "", "",
     "AreRead|fresh_lane.*_stores|^    __syncwarp\\(\\);$|sums are there"},
};

INSTANTIATE_TEST_SUITE_P(Kernels, BarriersTest, testing::ValuesIn(kKernels), name_of_kernel);
INSTANTIATE_TEST_SUITE_P(Kernels, WholeKernelsTest, testing::ValuesIn(distinct_runs(kKernels)), name_of_kernel);

#if defined(EMULATOR_RACES_BUILD)
// Under the detector alone, which takes one order of threads.
constexpr KernelWithBarriers kMore[] = {
    {"gla_layer", "gpu", "03_gla/gla_layer/2_gpu.cu", 16, 16, 40},
};

INSTANTIATE_TEST_SUITE_P(More, BarriersTest, testing::ValuesIn(kMore), name_of_kernel);

TEST(BarriersTable, HasEachFileThatHandsOver) {
  EXPECT_EQ(files_without_mutants({kKernels, kMore}), std::vector<std::string>());
}
#endif

}  // namespace
}  // namespace tutorial

#endif
