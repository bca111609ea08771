/// @file
/// What dispatch chooses.

#include "06_scan/scan.hpp"
#include "06_scan/scan/requirements.hpp"
#include "06_scan/scan_backward.hpp"
#include "06_scan/test/stages.hpp"

namespace tutorial::scan {
namespace {

Arguments sizes(int B, int H, int L, int D) {
  Arguments a{};
  a.B = B;
  a.H = H;
  a.L = L;
  a.D = a.Dg = D;
  return a;
}

TEST(DispatchTest, LoopsOverAFewSteps) {
  EXPECT_EQ(dispatch_note(sizes(8, 1536, 1, 1)), "sequential_gpu");
  EXPECT_EQ(dispatch_note(sizes(8, 1536, 8, 1)), "sequential_gpu");
  EXPECT_EQ(dispatch_note(sizes(8, 1536, 9, 1)), "single pass, tiles of 512 steps");
  EXPECT_EQ(dispatch_note(sizes(8, 1, 15, 1536)), "sequential_gpu");
  EXPECT_EQ(dispatch_note(sizes(8, 1, 16, 1536)), "single pass, tiles of 256 steps");
  EXPECT_EQ(dispatch_note(sizes(1, 1, 1 << 28, 1)), "single pass, tiles of 8192 steps");
}

TEST(DispatchTest, MemoryIsThatOfTheChoice) {
  EXPECT_EQ(dispatch_memory(sizes(8, 1536, 32, 1)), 0);
  EXPECT_EQ(dispatch_memory(sizes(8, 1536, 4096, 1)), 0) << "a sequence of one tile publishes nothing";
  EXPECT_EQ(dispatch_memory(sizes(8, 1536, 65536, 1)), 256 + 16 * 8 * 1536 * 8);
  EXPECT_EQ(dispatch_memory(sizes(8, 1, 65536, 1536)), 256 + 16 * 8 * 1536 * 256);
}

TEST(DispatchTest, TheAdjointKeepsYAndHasItsOwnLimits) {
  BackwardArguments a{};
  a.B = a.H = a.D = a.Dg = 1;
  a.L = 65536;
  EXPECT_EQ(dispatch_backward_memory(a), 4 * 65536 + dispatch_memory(sizes(1, 1, 65536, 1)));
  EXPECT_EQ(dispatch_backward_unsupported(a), "");
  a.L = 2147483647;
  EXPECT_NE(dispatch_backward_unsupported(a), "");
  a.B = a.H = 1 << 15;
  a.L = 1 << 14;
  EXPECT_NE(dispatch_backward_unsupported(a), "") << "2^34 blocks";
}

TEST(DispatchTest, TheGridIsTheLimit) {
  EXPECT_EQ(dispatch_unsupported(sizes(1, 1, 1 << 30, 1)), "");
  EXPECT_NE(dispatch_unsupported(sizes(1 << 20, 1 << 12, 64, 1)), "");
  EXPECT_NE(dispatch_unsupported(sizes(1, 1, 2147483647, 1)), "");
}

}  // namespace
}  // namespace tutorial::scan
