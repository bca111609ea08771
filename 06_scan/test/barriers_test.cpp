/// @file
/// Every barrier of the chapter's kernels is needed: common/test/barriers.hpp. (That of look_back.cuh, at which a program
/// hardly arrives in the emulator: look_back_test.cu fails without it.)

#if TUTORIAL_EMULATOR

#include "common/test/barriers.hpp"

namespace tutorial {
namespace {

constexpr KernelWithBarriers kKernels[] = {
    {"scan", "blelloch_gpu", "06_scan/scan/5_blelloch_gpu.cu", 0, 1, 1100},
    {"scan", "warp_shuffle", "06_scan/scan/6_warp_shuffle.cu", 0, 1, 1100},
    {"scan", "single_pass", "06_scan/scan/7_single_pass.cu", 0, 1, 9000, "time_kernel"},
    {"scan", "single_pass", "06_scan/scan/7_single_pass.cu", 0, 8, 300, "channels_kernel"},
    {"simple_gla", "scan_states", "06_scan/simple_gla/5_scan_states.cu", 64, 128, 2, "outputs_kernel"},
    {"simple_gla", "scan_fused", "06_scan/simple_gla/6_scan_fused.cu", 16, 16, 130, "tiles_kernel"},
    {"delta_rule", "scan_affine", "06_scan/delta_rule/3_scan_affine.cu", 16, 16, 100, "leaves_kernel"},
    {"delta_rule", "scan_affine", "06_scan/delta_rule/3_scan_affine.cu", 80, 16, 100, "outputs_kernel"},
    {"decode --delta-rule", "step", "06_scan/decode/3_step.cu", 64, 20, 2},  // this rule has all of them
};

INSTANTIATE_TEST_SUITE_P(Kernels, BarriersTest, testing::ValuesIn(kKernels), name_of_kernel);

}  // namespace
}  // namespace tutorial

#endif
