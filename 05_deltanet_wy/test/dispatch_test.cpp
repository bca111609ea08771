/// @file
/// What dispatch chooses, and that every choice is right. The emulator lets a test choose the number of
/// multiprocessors.

#include <cstdlib>

#include "05_deltanet_wy/chunk/prepare_inverses.hpp"
#include "05_deltanet_wy/delta_rule.hpp"
#include "05_deltanet_wy/delta_rule/dispatch/requirements.hpp"
#include "05_deltanet_wy/packed_delta_rule.hpp"
#include "05_deltanet_wy/test/stages.hpp"
#include "common/device/device.hpp"
#include "common/test/on_card.hpp"

namespace tutorial::delta_rule {
namespace {

Bf16Arguments sizes(int B, int H, int L, int Dk, int Dv) {
  Bf16Arguments a{};
  a.B = B;
  a.H = H;
  a.L = L;
  a.Dk = Dk;
  a.Dv = Dv;
  return a;
}

std::string choice(int B, int H, int L, int Dk, int Dv) {
  return dispatch_note(sizes(B, H, L, Dk, Dv));
}

// The sizes of these tests come without strides: bulk copies could not take such tensors.
TEST(DispatchTest, TakesWarpgroupsOnHopper) {
  if (const std::string reason = warpgroup_products_missing(); !reason.empty()) GTEST_SKIP() << reason;
  if (!is_an_h200()) GTEST_SKIP() << "the choices are an H200's";
  const auto mapped = [](int Dk, int Dv, int B = 8, int L = 2048) {
    Bf16Arguments a = sizes(B, 8, L, Dk, Dv);
    a.q = a.k = packed<const __nv_bfloat16>(nullptr, a.H, a.L, Dk);
    a.v = packed<const __nv_bfloat16>(nullptr, a.H, a.L, Dv);
    a.o = packed<__nv_bfloat16>(nullptr, a.H, a.L, Dv);
    return a;
  };
  EXPECT_EQ(dispatch_note(mapped(128, 128)), "clusters of two blocks, 64 columns per block");
  EXPECT_EQ(dispatch_memory(mapped(128, 128)), 0);
  EXPECT_EQ(dispatch_note(mapped(128, 128, 4, 16384)), "clusters of three blocks, 64 columns per block") << "32 heads";
  EXPECT_EQ(dispatch_note(mapped(128, 128, 5, 16384)), "clusters of two blocks, 64 columns per block") << "40 heads";
  EXPECT_EQ(dispatch_note(mapped(128, 128, 9, 4096)), "clusters of three blocks, 64 columns per block") << "72 heads";
  EXPECT_EQ(dispatch_note(mapped(128, 128, 16, 8192)), "one kernel, 128 columns per block") << "128 heads";
  EXPECT_EQ(dispatch_note(mapped(128, 128, 24)), "clusters of two blocks, 64 columns per block") << "192 heads";
  EXPECT_EQ(dispatch_note(mapped(128, 128, 32)), "one kernel, 128 columns per block") << "256 heads";
  EXPECT_EQ(dispatch_memory(mapped(128, 128, 32)), 0);
  EXPECT_EQ(dispatch_note(mapped(128, 128, 1, 512)), "warpgroups, 64 columns per block") << "short";
  EXPECT_EQ(dispatch_note(mapped(128, 128, 4, 128)), "one kernel, 64 columns per block") << "two chunks";
  EXPECT_EQ(dispatch_memory(mapped(128, 128, 4, 128)), 0);
  EXPECT_EQ(dispatch_note(mapped(128, 128, 4, 256)), "warpgroups, 64 columns per block") << "four chunks";
  EXPECT_EQ(dispatch_memory(mapped(128, 128, 4, 256)), prepared_inverses_memory(mapped(128, 128, 4, 256)));
  EXPECT_EQ(dispatch_note(mapped(128, 128, 8, 512)), "clusters of two blocks, 64 columns per block") << "64 heads";
  EXPECT_EQ(dispatch_note(mapped(128, 128, 1, 16384)), "warpgroups, 8 segments, 64 columns per block");
  EXPECT_EQ(dispatch_memory(mapped(128, 128, 1, 16384)), segments_memory(mapped(128, 128, 1, 16384)));
  EXPECT_EQ(dispatch_note(mapped(144, 128)).find("specialized warps, "), 0u) << "a state of 144 rows";
  EXPECT_EQ(dispatch_note(mapped(64, 65)).find("recurrent_gpu in fp32"), 0u) << "odd rows";
  Bf16Arguments normalized = mapped(128, 128);
  normalized.normalize_keys = true;
  EXPECT_EQ(dispatch_note(normalized).find("specialized warps, "), 0u);
}

// Maps and walk are three times the operations, so there must be six multiprocessors for each head.
TEST(DispatchTest, CutsPackedSequencesOfFewHeads) {
  if (const std::string reason = warpgroup_products_missing(); !reason.empty()) GTEST_SKIP() << reason;
  if (!is_an_h200()) GTEST_SKIP() << "the choices are an H200's";
  const auto mapped = [](int H, int L) {
    Bf16Arguments a = sizes(1, H, L, 128, 128);
    a.q = a.k = a.v = packed<const __nv_bfloat16>(nullptr, H, L, 128);
    a.o = packed<__nv_bfloat16>(nullptr, H, L, 128);
    return PackedBf16Arguments{a, nullptr, 4};
  };
  const char* whole = "two chains per block, the longest sequences first";
  EXPECT_EQ(dispatch_packed_note(mapped(8, 32768)), "two chains per block, segments of 2048 positions at most");
  EXPECT_EQ(dispatch_packed_note(mapped(8, 1024)), whole) << "no sequence is longer than a segment";
  EXPECT_EQ(dispatch_packed_note(mapped(22, 8192)), "two chains per block, segments of 1408 positions at most");
  EXPECT_EQ(dispatch_packed_note(mapped(23, 8192)), whole);
}

TEST(DispatchTest, TakesWhatTheTensorCoresDoNot) {
  EXPECT_EQ(choice(4, 8, 2048, 128, 128).find("specialized warps, "), 0u);
  EXPECT_EQ(choice(1, 1, 1, 256, 512), "specialized warps, 32 columns per block");
  EXPECT_EQ(choice(1, 1, 1, 24, 64), "recurrent_gpu in fp32: " + tensor_core_unsupported(sizes(1, 1, 1, 24, 64)));
  EXPECT_EQ(choice(1, 1, 1, 64, 528).find("recurrent_gpu in fp32: Dv > 512"), 0u);
  EXPECT_EQ(dispatch_unsupported(sizes(1, 1, 1, 64, 528)), "");
  EXPECT_EQ(choice(1, 1, 1, 272, 64).find("wide_keys in fp32: Dk > 256"), 0u);
  EXPECT_EQ(dispatch_unsupported(sizes(1, 1, 1, 1024, 64)), "");
  EXPECT_NE(dispatch_unsupported(sizes(1, 1, 1, 1025, 64)), "") << "no kernel has room for so many rows of the state";
}

TEST(DispatchTest, MemoryIsThatOfTheChoice) {
  EXPECT_EQ(dispatch_memory(sizes(2, 3, 100, 64, 64)), fused_memory(sizes(2, 3, 100, 64, 64)));
  EXPECT_EQ(dispatch_memory(sizes(2, 3, 1, 5, 7)), 4 * 6 * 2 * (5 + 7)) << "recurrent_gpu: the copies alone";
}

#if TUTORIAL_EMULATOR
class MultiprocessorsTest : public testing::Test {
 protected:
  static void set(const char* multiprocessors) { setenv("EMULATOR_MULTIPROCESSORS", multiprocessors, 1); }
  void TearDown() override { unsetenv("EMULATOR_MULTIPROCESSORS"); }
};

TEST_F(MultiprocessorsTest, ColumnsFollowTheNumberOfHeads) {
  set("132");
  EXPECT_EQ(choice(4, 8, 2048, 128, 128), "specialized warps, 32 columns per block");
  EXPECT_EQ(choice(8, 8, 2048, 128, 128), "specialized warps, 64 columns per block");
  EXPECT_EQ(choice(8, 8, 2048, 144, 128), "specialized warps, 32 columns per block") << "shared memory";
}

TEST_F(MultiprocessorsTest, ChoicesFollowTheNumberOfHeadsAndPositions) {
  set("132");
  const auto picked = [](int B, int H, int L) {
    const std::string note = choice(B, H, L, 120, 120);
    return note.substr(0, note.find(' '));
  };
  EXPECT_EQ(picked(1, 1, 1), "recurrent_gpu") << "a step";
  EXPECT_EQ(picked(1, 1, 4096), "chunk_gpu") << "chunks for idle multiprocessors";
  EXPECT_EQ(picked(32, 32, 4096), "recurrent_gpu") << "there are none";
}

// A width for the tensor cores, one that goes through fp32, and rows that are not aligned; chunks of 64 whatever C is.
TEST_F(MultiprocessorsTest, EveryChoiceIsRight) {
  for (const Operator* definition : {&delta_rule_operator(), &normalized_operator()}) {
    const Stage& stage = find_stage(*definition, "dispatch");
    for (const auto& [Dk, layout] : {std::pair<std::int64_t, Layout>{64, {}}, {120, {}}, {64, {.row_padding = 3}}}) {
      const Problem problem = drawn(1, 2, 500, Dk, 48, 100, *definition);
      const Outputs truth = evaluate_reference(*definition, problem, Dtype::bf16);
      for (const char* multiprocessors : {"1", "1000"}) {
        SCOPED_TRACE(definition->label() + " Dk " + std::to_string(Dk) + ", multiprocessors " + multiprocessors);
        set(multiprocessors);
        expect_close(evaluate(*definition, stage, problem, layout), truth, tolerance_of(stage, problem.sizes));
      }
    }
  }
  set("1");
  EXPECT_EQ(choice(1, 2, 500, 120, 48).find("recurrent_gpu"), 0u);
  set("1000");
  EXPECT_EQ(choice(1, 2, 500, 120, 48).find("chunk_gpu"), 0u);
}
#endif

}  // namespace
}  // namespace tutorial::delta_rule
