/// @file
/// Every barrier of the chapter's kernels is needed: common/test/barriers.hpp.

#if TUTORIAL_EMULATOR

#include "common/test/barriers.hpp"

namespace tutorial {
namespace {

constexpr KernelWithBarriers kKernels[] = {
    {"causal_dot_product", "lmha", "01_linear_attention/causal_dot_product/5_lmha.cu", 64, 64},   // a thread a column
    {"causal_dot_product", "lmha", "01_linear_attention/causal_dot_product/5_lmha.cu", 128, 64},  // two, and shuffles
    {"causal_dot_product", "lmha", "01_linear_attention/causal_dot_product/5_lmha.cu", 64, 256},  // a wide block
    {"causal_dot_product", "lmha_low_occupancy", "01_linear_attention/causal_dot_product/6_lmha_low_occupancy.cu", 64,
     2},
    {"bidirectional_attention", "gpu", "01_linear_attention/bidirectional_attention/3_gpu.cu", 64, 64},
};

INSTANTIATE_TEST_SUITE_P(Kernels, BarriersTest, testing::ValuesIn(kKernels), name_of_kernel);

}  // namespace
}  // namespace tutorial

#endif
