/// @file
/// Every barrier of decode's kernel is needed: common/test/barriers.hpp. The delta rule has all of them.

#if TUTORIAL_EMULATOR

#include "common/test/barriers.hpp"

namespace tutorial {
namespace {

constexpr KernelWithBarriers kKernels[] = {
    {"decode --delta-rule", "step", "06_scan/decode/3_step.cu", 64, 20, 2},
};

INSTANTIATE_TEST_SUITE_P(Kernels, BarriersTest, testing::ValuesIn(kKernels), name_of_kernel);

}  // namespace
}  // namespace tutorial

#endif
