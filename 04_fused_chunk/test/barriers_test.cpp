/// @file
/// Every barrier of the chapter's kernels is needed: common/test/barriers.hpp.

#if TUTORIAL_EMULATOR

#include "common/test/barriers.hpp"

namespace tutorial {
namespace {

// The wait of the stages on products of warpgroups for a tile of outputs keeps the walk from getting ahead of the warps
// that store; that of `register_scores` and `bounded_start` for a tile of Q S, of those with scores; that of the states of segments for
// their decay, of the warp that adds up the gates. wgmma_wait<1>(S) of `hopper_gradients` is there for the compiler
// alone. No order of the emulator's lets it. In gla's walk over packed sequences the fence behind cleared values matters where
// values of the next sequence are not finite: its keys are zeros.
constexpr KernelWithBarriers kKernels[] = {
    {"gla", "five_steps", "04_fused_chunk/gla/1_five_steps.cu", 80, 16},
    {"gla", "intra_fused", "04_fused_chunk/gla/2_intra_fused.cu", 80, 16},
    {"gla", "one_kernel", "common/device/block_barrier.cuh", 80, 16},
    {"gla", "specialized", "04_fused_chunk/gla/4_specialized.cu", 64, 64, 390, "", "", "output_empty"},
    {"gla", "score_levels", "04_fused_chunk/gla/5_score_levels.cu", 64, 64, 390, "", "", "output_empty"},
    // Three segments of eight chunks; one segment.
    {"gla", "segments", "04_fused_chunk/gla/segment_starts.cuh", 64, 64, 1500, "", "EMULATOR_MULTIPROCESSORS=3"},
    {"gla", "segments", "04_fused_chunk/gla/6_segments.cu", 64, 64, 390, "walk_kernel", "EMULATOR_MULTIPROCESSORS=1",
     "output_empty"},
    {"gla --lengths", "dispatch", "04_fused_chunk/gla_packed/dispatch/hopper_walk.cu", 64, 64, 600, "", "",
     "output_empty|^ {10}fence_async_proxy"},
    {"simple_gla", "fused", "04_fused_chunk/simple_gla/3_fused.cu", 64, 64},
    {"simple_gla", "two_kernels", "04_fused_chunk/simple_gla/dispatch/two_kernels.cu", 80, 16},
    {"simple_gla", "segments", "04_fused_chunk/simple_gla/dispatch/segment_walk.cuh", 64, 64},
    {"simple_gla", "specialized", "04_fused_chunk/simple_gla/4_specialized.cu", 64, 64, 390, "", "", "output_empty"},
    {"simple_gla", "register_scores", "04_fused_chunk/simple_gla/5_register_scores.cu", 64, 64, 390, "", "",
     "output_empty|wait.state_empty"},
    // Two segments of ten chunks, and a warm-up as long.
    {"simple_gla --gates weak", "bounded_start", "04_fused_chunk/simple_gla/6_bounded_start.cu", 64, 64, 1230, "",
     "EMULATOR_MULTIPROCESSORS=2", "output_empty|wait.state_empty"},
    // Eight segments of nine chunks, more than there are sets of tiles, and more than warm-ups go over.
    {"simple_gla --gates open", "dispatch", "04_fused_chunk/simple_gla/segment_state.cuh", 64, 64, 4200, "",
     "EMULATOR_MULTIPROCESSORS=8", "whole_full"},
    {"simple_gla --gates open", "dispatch", "04_fused_chunk/simple_gla/chunk_loads.cuh", 64, 64, 4200, "",
     "EMULATOR_MULTIPROCESSORS=8"},
    // Both loaders, which chapter 02 shares. The functions that pass on where they are called cannot be taken out; their
    // calls can.
    {"simple_gla", "dispatch", "04_fused_chunk/simple_gla/dispatch/roles_walk.cuh", 64, 64, 390, "",
     "EMULATOR_DEVICE=rtx5090 EMULATOR_MULTIPROCESSORS=1"},
    {"simple_gla", "dispatch", "common/tile/loading_warps.cuh", 64, 64, 390, "",
     "EMULATOR_DEVICE=rtx5090 EMULATOR_MULTIPROCESSORS=1", "where\\)|kAll|cp_async"},
    {"simple_gla", "dispatch", "04_fused_chunk/simple_gla/dispatch/roles_walk.cuh", 64, 64, 390, "",
     "EMULATOR_DEVICE=rtx4090 EMULATOR_MULTIPROCESSORS=1", "kWaitsTogether"},
    {"simple_gla", "dispatch", "common/tile/loading_warps.cuh", 64, 64, 390, "",
     "EMULATOR_DEVICE=rtx4090 EMULATOR_MULTIPROCESSORS=1", "where\\)|empty_|full_|fence_|__syncthreads"},
    {"simple_gla --lengths", "dispatch", "04_fused_chunk/simple_gla_packed/dispatch/hopper_walk.cu", 64, 64, 1500, "",
     "", "output_empty|wait.state_empty"},
    {"simple_gla --backward", "walks", "04_fused_chunk/simple_gla_backward/3_walks.cu", 64, 16},
    {"simple_gla --backward", "segments", "04_fused_chunk/simple_gla_backward/segments.cuh", 64, 16, 300},
    {"simple_gla --backward", "segments", "04_fused_chunk/simple_gla_backward/4_segments.cu", 64, 16},
    {"simple_gla --backward", "pipelined", "04_fused_chunk/simple_gla_backward/dispatch/pipelined_walk.cuh", 64, 16,
     130},
    {"simple_gla --backward", "hopper_gradients", "04_fused_chunk/simple_gla_backward/5_hopper_gradients.cu", 64, 64,
     390, "", "", "wait.state_empty|wgmma_wait<1>.S."},
    // One block that has all runs, each of one chunk, so that the loading thread gets ahead by runs.
    {"simple_gla --backward", "hopper_gradients", "04_fused_chunk/simple_gla_backward/chained_runs.cuh", 64, 64, 50, "",
     "EMULATOR_MULTIPROCESSORS=1"},
};

INSTANTIATE_TEST_SUITE_P(Kernels, BarriersTest, testing::ValuesIn(kKernels), name_of_kernel);
INSTANTIATE_TEST_SUITE_P(Kernels, WholeKernelsTest, testing::ValuesIn(distinct_runs(kKernels)), name_of_kernel);

#if defined(EMULATOR_RACES_BUILD)
// Under the detector alone, which takes one order of threads.
constexpr KernelWithBarriers kMore[] = {
    {"gla", "one_kernel", "04_fused_chunk/gla/3_one_kernel.cu", 80, 16},
};

INSTANTIATE_TEST_SUITE_P(More, BarriersTest, testing::ValuesIn(kMore), name_of_kernel);

TEST(BarriersTable, HasEachFileThatHandsOver) {
  EXPECT_EQ(files_without_mutants({kKernels, kMore}), std::vector<std::string>());
}
#endif

}  // namespace
}  // namespace tutorial

#endif
