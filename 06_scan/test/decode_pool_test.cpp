/// @file
/// `decode --pool`: states in slots, in place and through prompts; idle entries; and what the indices may be.

#include <algorithm>
#include <filesystem>
#include <vector>

#include "06_scan/test/decode_stages.hpp"
#include "common/error.hpp"
#include "common/safetensors.hpp"
#include "common/test/temporary_folder.hpp"

namespace tutorial {
namespace {

constexpr const char* kPoolLabels[] = {"decode --pool", "decode --gla --pool", "decode --delta-rule --pool",
                                       "decode --gated-delta-rule --pool", "decode --kda --pool"};

void expect_match(const Problem& problem, const Operator& definition, const Layout& layout = {}) {
  EXPECT_EQ(expect_supporting_stages_match(definition, problem, layout), 3);
}

TEST(DecodePoolTest, Small) {
  const Operator& definition = decode_operator("decode --delta-rule --pool");
  expect_match(drawn_tokens(definition, 2, 1, 2, 0, 20, 12), definition);
}

// From no prompt to a prompt alone; widths and strides that are not aligned.
TEST(DecodePoolShapesTest, PromptsAndTokens) {
  for (const char* label : kPoolLabels) {
    SCOPED_TRACE(label);
    const Operator& definition = decode_operator(label);
    for (const auto& [L, P] : {std::pair<std::int64_t, std::int64_t>{3, 0}, {66, 64}, {1, 1}}) {
      expect_match(drawn_tokens(definition, 5, 1, L, P, 32, 32), definition);
    }
    expect_match(drawn_tokens(definition, 4, 1, 5, 2, 33, 31), definition);
    expect_match(drawn_tokens(definition, 4, 3, 5, 2, 32, 48), definition, {.heads_inside = true, .row_padding = 3});
  }
}

// One batch after the other, in place: what is not named stays bit for bit, and a state goes on wherever its entry stands.
TEST(DecodePoolShapesTest, OtherSlotsStayAndStatesGoOn) {
  const Operator& definition = decode_operator("decode --pool");
  const Stage& stage = find_stage(definition, "dispatch");
  Problem problem = drawn_tokens(definition, 3, 2, 4, 0, 32, 32);
  const auto set = [&](std::vector<std::int32_t> indices) {
    std::ranges::copy(indices, problem.inputs.at("state_indices").elements<std::int32_t>().begin());
  };
  const std::int64_t state = 2 * 32 * 32;
  const auto slot = [&](const Tensor& pool, std::int64_t n) {
    return pool.elements<float>().subspan(n * state, state);
  };
  set({4, -1, 0});
  const Outputs first = evaluate(definition, stage, problem);
  const Tensor& before = problem.inputs.at("state_pool");
  for (const std::int64_t n : {1, 2, 3})
    EXPECT_TRUE(std::ranges::equal(slot(before, n), slot(first.at("final_pool"), n)));
  for (const std::int64_t n : {0, 4})
    EXPECT_FALSE(std::ranges::equal(slot(before, n), slot(first.at("final_pool"), n)));
  // The same tokens for the second entry, on the state that slot 4 had: the same outputs and the same state.
  for (const char* name : {"q", "k", "v", "g"}) {
    const auto elements = problem.inputs.at(name).elements<float>();
    const auto size = std::ptrdiff_t(elements.size() / 3);
    std::copy_n(elements.begin(), size, elements.begin() + size);
  }
  set({-1, 4, -1});
  const Outputs second = evaluate(definition, stage, problem);
  EXPECT_TRUE(std::ranges::equal(slot(first.at("final_pool"), 4), slot(second.at("final_pool"), 4)));
  const auto o = [](const Outputs& outputs, std::ptrdiff_t b) {
    const auto elements = outputs.at("o").elements<float>();
    return elements.subspan(elements.size() / 3 * std::size_t(b), elements.size() / 3);
  };
  EXPECT_TRUE(std::ranges::equal(o(first, 0), o(second, 1)));
  EXPECT_TRUE(std::ranges::all_of(o(second, 0), [](float x) { return x == 0; })) << "an idle entry";
}

TEST(DecodePoolTest, IndicesAreSlots) {
  const Operator& definition = decode_operator("decode --pool");
  const Problem problem = drawn_tokens(definition, 3, 1, 2, 0, 4, 4);  // five slots
  const TemporaryFolder folder;
  const std::string path = folder / "pool.safetensors";
  const auto error_of = [&](std::vector<std::int32_t> indices) -> std::string {
    Tensor given(Dtype::int32, {3});
    std::ranges::copy(indices, given.elements<std::int32_t>().begin());
    std::vector<NamedTensor> tensors;
    for (const auto& [name, tensor] : problem.inputs) {
      tensors.push_back({name, name == "state_indices" ? &given : &tensor});
    }
    write_safetensors(path, tensors, {});
    try {
      make_problem(definition, {.sizes = {{"P", 0}}, .input_file = path});
    } catch (const UsageError& error) {
      return std::string(error.what()).substr(path.size() + 2);
    }
    return "accepted";
  };
  EXPECT_EQ(error_of({4, -1, 0}), "accepted");
  EXPECT_EQ(error_of({-1, -1, -1}), "accepted");
  EXPECT_EQ(error_of({0, 5, 1}), "state_indices[1] = 5: must be a slot of the pool, or -1");
  EXPECT_EQ(error_of({0, -2, 1}), "state_indices[1] = -2: must be a slot of the pool, or -1");
  EXPECT_EQ(error_of({3, 1, 3}), "state_indices[2] = 3: is also state_indices[0]");
}

}  // namespace
}  // namespace tutorial
