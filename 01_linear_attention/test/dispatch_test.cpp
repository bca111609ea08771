/// @file
/// What dispatch picks, and that every branch of it is right. The emulator lets a test choose the number of
/// multiprocessors.

#include <cstdlib>

#include "01_linear_attention/causal_dot_product.hpp"
#include "01_linear_attention/test/stages.hpp"

namespace tutorial::causal_dot_product {
namespace {

std::string pick(int heads, int Dk, int Dv) {
  Arguments a{};
  a.B = 1;
  a.H = heads;
  a.L = 100;
  a.Dk = Dk;
  a.Dv = Dv;
  return dispatch_note(a);
}

TEST(DispatchTest, TakesWhatTheRegisterKernelsCannotHold) {
  EXPECT_EQ(pick(1000000, 257, 64), "atomic");
  EXPECT_NE(pick(1000000, 256, 64), "atomic");
}

#if TUTORIAL_EMULATOR
class MultiprocessorsTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { setenv("EMULATOR_MULTIPROCESSORS", std::to_string(GetParam()).c_str(), 1); }
  void TearDown() override { unsetenv("EMULATOR_MULTIPROCESSORS"); }
};

TEST_P(MultiprocessorsTest, DispatchIsRight) {
  const Operator& definition = find_operator("causal_dot_product");
  for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{64, 64}, {40, 130}, {128, 96}, {256, 256}}) {
    const Problem problem =
        make_problem(definition, {.sizes = {{"B", 1}, {"H", 6}, {"L", 37}, {"Dk", Dk}, {"Dv", Dv}}, .seed = 2});
    const Comparison c = compare(evaluate(definition, find_stage(definition, "dispatch"), problem).at("o"),
                                 evaluate_reference(definition, problem).at("o"));
    EXPECT_TRUE(c.within(1e-5)) << "Dk " << Dk << ", Dv " << Dv << ": " << describe(c, "o");
  }
}

INSTANTIATE_TEST_SUITE_P(From1To1000, MultiprocessorsTest, testing::Values(1, 2, 12, 30, 132, 1000));

TEST(DispatchTest, FollowsTheNumberOfMultiprocessors) {
  setenv("EMULATOR_MULTIPROCESSORS", "132", 1);
  EXPECT_EQ(pick(1, 64, 64), "lmha_low_occupancy");
  EXPECT_EQ(pick(32, 64, 64), "lmha, 2 blocks per head, two threads per column");
  EXPECT_EQ(pick(128, 64, 64), "lmha, 1 block per head, two threads per column");
  EXPECT_EQ(pick(32, 128, 128), "lmha, 4 blocks per head");
  EXPECT_EQ(pick(33, 64, 130), "lmha, 3 blocks per head, two threads per column")
      << "4 tiles of whole warps would overlap";
  setenv("EMULATOR_MULTIPROCESSORS", "1", 1);
  EXPECT_EQ(pick(1, 64, 64), "lmha, 1 block per head, two threads per column");
  EXPECT_EQ(pick(1, 256, 256), "lmha, 2 blocks per head") << "one block would have 1024 threads";
  setenv("EMULATOR_MULTIPROCESSORS", "1000", 1);
  EXPECT_EQ(pick(32, 64, 64), "lmha_low_occupancy");
  unsetenv("EMULATOR_MULTIPROCESSORS");
}
#endif

}  // namespace
}  // namespace tutorial::causal_dot_product
