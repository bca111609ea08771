/// @file
/// What dispatch picks, and that either choice is right. The emulator lets a test choose the number of
/// multiprocessors.

#include <cstdlib>

#include "03_gla/gla.hpp"
#include "03_gla/test/stages.hpp"

namespace tutorial::gla {
namespace {

FloatArguments sizes(int B, int H, int L, int Dk, int Dv) {
  FloatArguments a{};
  a.B = B;
  a.H = H;
  a.L = L;
  a.Dk = Dk;
  a.Dv = Dv;
  return a;
}

TEST(DispatchTest, TakesWhatTheRegistersCannotHold) {
  EXPECT_EQ(dispatch_note(sizes(1000, 1000, 1, 257, 64)), "chunk_gpu");
  EXPECT_NE(dispatch_note(sizes(1000, 1000, 1, 256, 64)), "chunk_gpu");
}

#if TUTORIAL_EMULATOR
TEST(DispatchTest, FollowsTheNumberOfHeadsAndPositions) {
  setenv("EMULATOR_MULTIPROCESSORS", "132", 1);
  EXPECT_EQ(dispatch_note(sizes(1, 1, 1, 128, 128)), "recurrent_gpu") << "a step";
  EXPECT_EQ(dispatch_note(sizes(1, 1, 4096, 128, 128)), "chunk_gpu") << "chunks for idle multiprocessors";
  EXPECT_EQ(dispatch_note(sizes(32, 32, 4096, 128, 128)), "recurrent_gpu") << "there are none";
  unsetenv("EMULATOR_MULTIPROCESSORS");
}

TEST(DispatchTest, IsRightWhateverItPicks) {
  const Problem problem = gla_problem(1, 2, 300, 64, 40);
  const Stage& stage = find_stage(gla_operator(), "dispatch");
  const auto picked = [&](const char* multiprocessors) {
    setenv("EMULATOR_MULTIPROCESSORS", multiprocessors, 1);
    expect_close(evaluate(gla_operator(), stage, problem), evaluate_reference(gla_operator(), problem), 1e-5);
    return dispatch_note(sizes(1, 2, 300, 64, 40));
  };
  EXPECT_EQ(picked("1"), "recurrent_gpu");
  EXPECT_EQ(picked("1000"), "chunk_gpu");
  unsetenv("EMULATOR_MULTIPROCESSORS");
}
#endif

}  // namespace
}  // namespace tutorial::gla
