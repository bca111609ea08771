/// @file
/// Every barrier of the chapter's kernels is needed: common/test/barriers.hpp.

#if TUTORIAL_EMULATOR

#include "common/test/barriers.hpp"

namespace tutorial {
namespace {

constexpr const char* kDispatched = "01_linear_attention/causal_dot_product/dispatch/lmha.cu";
constexpr const char* kOne = "EMULATOR_MULTIPROCESSORS=1";

constexpr KernelWithBarriers kKernels[] = {
    {"causal_dot_product", "registers", "01_linear_attention/causal_dot_product/4_registers.cu", 64, 64},
    {"causal_dot_product", "lmha", "01_linear_attention/causal_dot_product/5_lmha.cu", 64, 64},
    {"causal_dot_product", "lmha_low_occupancy", "01_linear_attention/causal_dot_product/6_lmha_low_occupancy.cu", 64,
     2},
    // On a GPU of one multiprocessor: two threads per column, two and shuffles, a wide block.
    {"causal_dot_product", "dispatch", kDispatched, 64, 64, 70, "", kOne},
    {"causal_dot_product", "dispatch", kDispatched, 128, 64, 70, "", kOne},
    {"causal_dot_product", "dispatch", kDispatched, 64, 256, 70, "", kOne},
    {"bidirectional_attention", "gpu", "01_linear_attention/bidirectional_attention/1_gpu.cu", 64, 64},
    {"bidirectional_attention --backward", "dispatch",
     "01_linear_attention/bidirectional_attention_backward/dispatch/dispatch.cu", 64, 64},
};

INSTANTIATE_TEST_SUITE_P(Kernels, BarriersTest, testing::ValuesIn(kKernels), name_of_kernel);
INSTANTIATE_TEST_SUITE_P(Kernels, WholeKernelsTest, testing::ValuesIn(distinct_runs(kKernels)), name_of_kernel);

}  // namespace
}  // namespace tutorial

#endif
