/// @file
/// Every barrier of the chapter's kernels is needed: common/test/barriers.hpp.

#if TUTORIAL_EMULATOR

#include "common/test/barriers.hpp"

namespace tutorial {
namespace {

// The fence of `bulk_copies` keeps ordinary stores to V from coming after the bulk load that overwrites them. On the
// emulator a load writes both images of shared memory at once. The wait of the last three stages for a tile of outputs
// keeps the state from getting two chunks ahead of the warps that store. No order of the emulator's lets it. Nor does
// it notice a load over a tile of K that the normaliser's warps have read by ordinary loads.
constexpr KernelWithBarriers kKernels[] = {
    {"linear_attention", "materialized", "02_chunkwise/linear_attention/3_materialized.cu", 128, 16},
    {"linear_attention", "fused", "02_chunkwise/linear_attention/4_fused.cu", 128, 16},
    {"linear_attention", "mma_products", "02_chunkwise/linear_attention/5_mma_products.cu", 64, 64},
    {"linear_attention", "register_state", "02_chunkwise/linear_attention/6_register_state.cu", 64, 64},
    {"linear_attention", "tensor_core", "02_chunkwise/linear_attention/7_tensor_core.cu", 64, 64},
    {"linear_attention", "pipelined", "02_chunkwise/linear_attention/8_pipelined.cu", 64, 64},
    {"linear_attention", "segments", "02_chunkwise/linear_attention/9_segments.cu", 64, 64},
    {"linear_attention", "bulk_copies", "02_chunkwise/linear_attention/10_bulk_copies.cu", 64, 64, 200, "", "",
     "fence_async_proxy"},
    {"linear_attention", "warpgroup_mma", "02_chunkwise/linear_attention/11_warpgroup_mma.cu", 64, 64, 200},
    {"linear_attention", "specialized", "02_chunkwise/linear_attention/12_specialized.cu", 64, 64, 390},
    {"linear_attention", "balanced_roles", "02_chunkwise/linear_attention/13_balanced_roles.cu", 64, 64, 390, "", "",
     "output_empty"},
    {"linear_attention", "queued_products", "02_chunkwise/linear_attention/14_queued_products.cu", 64, 64, 390, "", "",
     "output_empty"},
    {"linear_attention", "cluster", "02_chunkwise/linear_attention/dispatch/cluster.cu", 64, 128, 390, "", "",
     "output_empty"},
    {"linear_attention --normalize", "dispatch", "02_chunkwise/linear_attention/dispatch/hopper_walk.cuh", 64, 64, 390,
     "walk_segment", "", "output_empty|kNormalized. fence_async_proxy"},
    {"linear_attention --normalize", "dispatch", "02_chunkwise/linear_attention/dispatch/walk.cuh", 64, 64, 390, "",
     "EMULATOR_DEVICE=a100"},
    // It has two loaders, common/tile/loading_warps.cuh. Chapter 04 takes out their barriers.
    {"linear_attention", "dispatch", "02_chunkwise/linear_attention/dispatch/roles_walk.cuh", 64, 64, 390, "",
     "EMULATOR_DEVICE=rtx5090,multiprocessors=1"},
    {"linear_attention", "dispatch", "02_chunkwise/linear_attention/dispatch/roles_walk.cuh", 64, 64, 390, "",
     "EMULATOR_DEVICE=rtx4090,multiprocessors=1", "kWaitsTogether"},
    {"linear_attention --lengths", "packed", "02_chunkwise/linear_attention_packed/1_packed.cu", 64, 64, 1200, "",
     "EMULATOR_DEVICE=h200,multiprocessors=4"},
    {"linear_attention --lengths", "packed", "common/tile/packed_segments.cuh", 64, 64},
    {"linear_attention --lengths", "dispatch", "common/tile/rows_of_sequence.cuh", 64, 64},
    {"linear_attention --backward", "materialized", "02_chunkwise/linear_attention_backward/dispatch/materialized.cu",
     64, 64},
    {"linear_attention --backward", "walks", "02_chunkwise/linear_attention_backward/3_walks.cu", 64, 64},
};

INSTANTIATE_TEST_SUITE_P(Kernels, BarriersTest, testing::ValuesIn(kKernels), name_of_kernel);
INSTANTIATE_TEST_SUITE_P(Kernels, WholeKernelsTest, testing::ValuesIn(distinct_runs(kKernels)), name_of_kernel);

#if defined(EMULATOR_RACES_BUILD)
TEST(BarriersTable, HasEachFileThatHandsOver) {
  // It has the init() of a barrier that one thread arrives at; hopper_walk.cuh has what hands over.
  const std::vector<std::string> others = {"02_chunkwise/linear_attention_packed/dispatch/hopper_walk.cu"};
  EXPECT_EQ(files_without_mutants({kKernels}), others);
}
#endif

}  // namespace
}  // namespace tutorial

#endif
