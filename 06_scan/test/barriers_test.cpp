/// @file
/// Every barrier of the chapter's kernels is needed: common/test/barriers.hpp. (That of look_back_search.cuh, at which
/// a program hardly arrives in the emulator: look_back_test.cu fails without it.)

#if TUTORIAL_EMULATOR

#include "common/test/barriers.hpp"

namespace tutorial {
namespace {

constexpr KernelWithBarriers kKernels[] = {
    {"scan", "blelloch_gpu", "06_scan/scan/5_blelloch_gpu.cu", 0, 1, 1100},
    {"scan", "warp_shuffle", "06_scan/scan/6_warp_shuffle.cu", 0, 1, 1100},
    {"scan", "single_pass", "06_scan/scan/7_single_pass.cu", 0, 1, 2100},
    {"scan", "warp_look_back", "06_scan/scan/8_warp_look_back.cu", 0, 1, 2100},
    {"scan", "wide_tiles", "06_scan/scan/9_wide_tiles.cu", 0, 1, 9000},
    {"scan", "channel_lanes", "06_scan/scan/10_channel_lanes.cu", 0, 8, 300},
    {"scan", "dispatch", "06_scan/scan/dispatch/single_pass.cu", 0, 1, 9000, "time_kernel"},
    {"scan", "dispatch", "06_scan/scan/dispatch/single_pass.cu", 0, 8, 300, "channels_kernel"},
    {"simple_gla", "scan_states", "06_scan/simple_gla/1_scan_states.cu", 16, 16, 2},
    {"simple_gla", "scan_tiles", "06_scan/simple_gla/dispatch/scan_tiles.cu", 16, 16, 130},
    {"simple_gla", "scan_fused", "06_scan/simple_gla/2_scan_fused.cu", 16, 16, 130},
    {"delta_rule", "affine_chain", "06_scan/delta_rule/1_affine_chain.cu", 16, 16, 100},
    {"delta_rule", "scan_affine", "06_scan/delta_rule/2_scan_affine.cu", 16, 16, 100, "leaves_kernel"},
    {"delta_rule", "scan_affine", "06_scan/delta_rule/2_scan_affine.cu", 80, 16, 100, "outputs_kernel"},
    {"delta_rule --devices 4", "all_gather", "06_scan/over_devices/maps.cuh", 16, 16, 8, "compose_products_kernel",
     "EMULATOR_DEVICES=4"},
    {"simple_gla --devices 2", "states_alone", "06_scan/over_devices/dispatch/segment_maps.cuh", 16, 16, 400, "",
     "EMULATOR_MULTIPROCESSORS=1"},
    // The delta rule has all barriers of decode's kernels.
    {"decode --delta-rule", "step", "06_scan/decode/3_step.cu", 64, 20, 2},
    {"decode --delta-rule", "step_in_registers", "06_scan/decode/4_step_in_registers.cu", 64, 20, 2},
    {"decode --delta-rule", "replay", "06_scan/decode/5_replay.cu", 64, 20, 4},
    {"decode --delta-rule", "dispatch", "06_scan/decode/dispatch/step.cu", 64, 20, 2},
};

INSTANTIATE_TEST_SUITE_P(Kernels, BarriersTest, testing::ValuesIn(kKernels), name_of_kernel);
INSTANTIATE_TEST_SUITE_P(Kernels, WholeKernelsTest, testing::ValuesIn(distinct_runs(kKernels)), name_of_kernel);

#if defined(EMULATOR_RACES_BUILD)
// Under the detector alone, which takes one order of threads.
constexpr KernelWithBarriers kMore[] = {
    {"delta_rule", "affine_chain", "06_scan/delta_rule/affine_steps.cuh", 80, 16, 100},
};

INSTANTIATE_TEST_SUITE_P(More, BarriersTest, testing::ValuesIn(kMore), name_of_kernel);

TEST(BarriersTable, HasEachFileThatHandsOver) {
  // cuFFT is for GPUs. In the emulator the tile before is done when a block looks back, so that it need not search:
  // look_back_test.cu does.
  const std::vector<std::string> others = {"06_scan/convolution/dispatch/cufft.cu",
                                           "06_scan/scan/dispatch/look_back_search.cuh"};
  EXPECT_EQ(files_without_mutants({kKernels, kMore}), others);
}
#endif

}  // namespace
}  // namespace tutorial

#endif
