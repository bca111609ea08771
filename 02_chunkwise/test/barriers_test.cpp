/// @file
/// Every barrier of the chapter's kernels is needed: common/test/barriers.hpp.

#if TUTORIAL_EMULATOR

#include "common/test/barriers.hpp"

namespace tutorial {
namespace {

constexpr KernelWithBarriers kKernels[] = {
    {"linear_attention", "materialized", "02_chunkwise/linear_attention/4_materialized.cu", 128, 16},
    {"linear_attention", "fused", "02_chunkwise/linear_attention/5_fused.cu", 128, 16},
    {"linear_attention", "tensor_core", "02_chunkwise/linear_attention/6_tensor_core.cu", 64, 64},
    {"linear_attention", "pipelined", "02_chunkwise/linear_attention/7_pipelined.cu", 64, 64},
    {"linear_attention", "sequence_parallel", "02_chunkwise/linear_attention/8_sequence_parallel.cu", 64, 64},
};

INSTANTIATE_TEST_SUITE_P(Kernels, BarriersTest, testing::ValuesIn(kKernels), name_of_kernel);

}  // namespace
}  // namespace tutorial

#endif
