/// @file
/// simple_gla and delta_rule: memory is stated, and where there is not enough a stage says so and the others run.

#include <cstdio>
#include <regex>
#include <stdexcept>

#include "06_scan/delta_rule/requirements.hpp"
#include "06_scan/simple_gla/requirements.hpp"
#include "06_scan/test/states.hpp"

namespace tutorial::scan {
namespace {

template <class Arguments>
Arguments sizes(int B, int H, int L, int Dk, int Dv) {
  Arguments a{};
  a.B = B, a.H = H, a.L = L, a.Dk = Dk, a.Dv = Dv;
  return a;
}
constexpr auto simple = sizes<simple_gla::FloatArguments>;
constexpr auto delta = sizes<delta_rule::FloatArguments>;

TEST(StatesMemoryTest, GrowsWithL) {
  EXPECT_EQ(scan_states_memory(simple(4, 8, 32, 128, 128)), 2ll * 4 * 32 * 32 * 128 * 128);
  EXPECT_EQ(scan_states_memory(simple(1, 1, 10, 3, 5)), 2 * 4 * 10 * 64 * 32) << "rows and columns are filled up";
  EXPECT_EQ(scan_tiles_memory(simple(4, 8, 2048, 128, 128)), 4ll * 32 * 32 * (2 * 128 * 128 + 1));
  EXPECT_EQ(scan_fused_memory(simple(4, 8, 64, 128, 128)), 0) << "a sequence of one tile publishes nothing";
  EXPECT_EQ(scan_fused_memory(simple(4, 8, 2048, 128, 128)),
            2ll * 4 * 32 * 32 * 128 * 128 + 256 + 32 * 32 * 4 * 4 * 16);
  EXPECT_EQ(affine_chain_memory(delta(4, 8, 2048, 128, 128)), 4ll * 32 * 63 * (3 * 128 * 128));
  EXPECT_EQ(scan_affine_memory(delta(4, 8, 32, 128, 128)), 0) << "one leaf";
  EXPECT_EQ(scan_affine_memory(delta(4, 8, 2048, 128, 128)), 4ll * 32 * 63 * (3 * 128 * 128));
}

TEST(StatesMemoryTest, WhatDoesNotFitIsRefusedInASentence) {
  const std::regex sentence("it needs [0-9.]+ [TP]B of memory beside inputs and outputs, [0-9.]+ [MGT]B are free");
  for (const std::string& reason : {scan_states_unsupported(simple(4, 8, 1 << 16, 256, 256)),
                                    scan_tiles_unsupported(simple(64, 64, 1 << 16, 256, 256)),
                                    scan_fused_unsupported(simple(64, 64, 1 << 20, 256, 256)),
                                    scan_affine_unsupported(delta(64, 64, 1 << 18, 256, 256))}) {
    EXPECT_TRUE(std::regex_match(reason, sentence)) << reason;
  }
}

TEST(StatesMemoryTest, OtherLimits) {
  EXPECT_EQ(scan_fused_unsupported(simple(1, 1, 100, 256, 1000)), "");
  EXPECT_NE(scan_fused_unsupported(simple(1, 1, 100, 257, 16)), "");
  EXPECT_NE(scan_fused_unsupported(simple(1 << 20, 1 << 12, 1, 16, 16)), "");
  EXPECT_NE(scan_fused_unsupported(simple(1, 1, 2147483647, 16, 16)), "");
  EXPECT_NE(scan_states_unsupported(simple(1 << 20, 1 << 12, 1, 16, 16)), "");
  EXPECT_NE(scan_affine_unsupported(delta(1, 1, 100, 257, 16)), "");
  EXPECT_NE(scan_affine_unsupported(delta(1 << 20, 1 << 12, 1, 16, 16)), "");
  EXPECT_NE(scan_affine_unsupported(delta(1, 1, 2147483647, 16, 16)), "");
  auto normalized = delta(1, 1, 100, 16, 16);
  EXPECT_EQ(scan_affine_unsupported(normalized), "");
  normalized.normalize_keys = true;
  EXPECT_NE(scan_affine_unsupported(normalized), "");
}

#if TUTORIAL_EMULATOR
// As a user sees it: the stage is skipped, the others run.
TEST(StatesMemoryTest, TheOthersRun) {
  const char* command = "EMULATOR_MEMORY=2000000 '" CHAPTER_EXECUTABLE
                        "' --operator simple_gla -B 1 -H 1 -L 256 --key-dim 32 --value-dim 64 --repeat 1 "
                        "--variants 2>&1";
  std::string text;
  FILE* pipe = popen(command, "r");
  if (!pipe) throw std::runtime_error("cannot run the chapter");
  for (int c; (c = std::fgetc(pipe)) != EOF;) text += char(c);
  EXPECT_EQ(pclose(pipe), 0) << text;
  EXPECT_NE(text.find("it needs 8.39 MB of memory beside inputs and outputs"), std::string::npos) << text;
  EXPECT_NE(text.find("6 stages checked, all passed"), std::string::npos) << text;
}
#endif

}  // namespace
}  // namespace tutorial::scan
