/// @file
/// The form `--key-heads`: heads of values that share their queries and keys.

#include <algorithm>
#include <array>
#include <cctype>
#include <ostream>
#include <string>

#include "05_deltanet_wy/test/stages.hpp"

namespace tutorial {
namespace {

struct HeadsCase {
  const char* name;
  const char* form;  // of the operator without groups
};

void PrintTo(const HeadsCase& c, std::ostream* out) {
  *out << c.name << " " << c.form;
}

std::string text_of(const testing::TestParamInfo<HeadsCase>& info) {
  std::string text = std::string(info.param.name) + "_" + info.param.form;
  std::replace_if(
      text.begin(), text.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return text;
}

class KeyHeadsTest : public testing::TestWithParam<HeadsCase> {
 protected:
  static const Operator& plain() { return find_operator(GetParam().name, GetParam().form); }
  static const Operator& grouped() { return find_operator(GetParam().name, with_option(GetParam().form, "key-heads")); }
  static Problem drawn_groups(std::int64_t B, std::int64_t H, std::int64_t Hk, std::int64_t L, std::int64_t Dk,
                              std::int64_t Dv) {
    return make_problem(
        grouped(), {.sizes = {{"B", B}, {"H", H}, {"Hk", Hk}, {"L", L}, {"Dk", Dk}, {"Dv", Dv}, {"C", 64}}, .seed = 5});
  }
};

// Each head with queries and keys of its own, copies of those that it shares.
Tensor repeated(const Tensor& shared, std::int64_t times) {
  Shape shape = shared.shape();
  const std::int64_t of_head = shape[2] * shape[3], heads = shape[0] * shape[1];
  shape[1] *= times;
  Tensor all(Dtype::fp32, shape);
  for (std::int64_t i = 0; i < heads * times; ++i) {
    std::copy_n(shared.elements<float>().data() + i / times * of_head, of_head,
                all.elements<float>().data() + i * of_head);
  }
  return all;
}

// The sum over the heads that share one.
Tensor added_up(const Tensor& all, std::int64_t heads) {
  Shape shape = all.shape();
  const std::int64_t of_head = shape[2] * shape[3];
  shape[1] /= heads;
  Tensor sums(Dtype::fp32, shape);
  sums.fill_bytes(0);
  for (std::int64_t i = 0; i < all.size(); ++i) {
    sums.elements<float>()[std::size_t(i / of_head / heads * of_head + i % of_head)] +=
        all.elements<float>()[std::size_t(i)];
  }
  return sums;
}

TEST_P(KeyHeadsTest, IsTheOperatorOnRepeatedHeads) {
  constexpr std::int64_t kHeads = 3;  // that share one
  const Problem problem = drawn_groups(2, 2 * kHeads, 2, 70, 24, 40);
  Problem by_hand = make_problem(plain(), {.sizes = problem.sizes, .seed = 1});
  for (const auto& [name, tensor] : problem.inputs) {
    by_hand.inputs.insert_or_assign(name,
                                    name == "q" || name == "k" ? repeated(tensor, kHeads) : tensor.to(Dtype::fp32));
  }
  Outputs expected = evaluate_reference(plain(), by_hand);
  for (auto& [name, tensor] : expected) {
    if (name.starts_with("dq") || name.starts_with("dk")) tensor = added_up(tensor, kHeads);
  }
  expect_close(evaluate_reference(grouped(), problem), expected, 1e-6);
}

TEST_P(KeyHeadsTest, Shapes) {
  for (const auto& [B, H, Hk, L, D] :
       {std::array<std::int64_t, 5>{2, 4, 2, 130, 64}, {1, 3, 1, 65, 128}, {1, 2, 2, 17, 36}}) {
    SCOPED_TRACE(std::to_string(H) + " heads, " + std::to_string(Hk) + " of keys, L " + std::to_string(L));
    EXPECT_GE(expect_supporting_stages_match(grouped(), drawn_groups(B, H, Hk, L, D, D)), 3);
  }
  expect_supporting_stages_match(grouped(), drawn_groups(1, 4, 2, 66, 64, 64),
                                 {.heads_inside = true, .row_padding = 8});
}

INSTANTIATE_TEST_SUITE_P(KeyHeads, KeyHeadsTest,
                         testing::Values(HeadsCase{"gated_delta_rule", ""}, HeadsCase{"gated_delta_rule", "backward"},
                                         HeadsCase{"gated_delta_rule", "normalize-keys"}, HeadsCase{"kda", ""},
                                         HeadsCase{"kda", "backward"}, HeadsCase{"kda", "backward+normalize-keys"}),
                         text_of);

// A group of heads takes no step from one to the next.
TEST(KeyHeads, StridesOfAGroup) {
  Call call({{"B", 2}, {"H", 6}, {"Hk", 2}, {"L", 5}, {"Dk", 4}}, 1);
  call.add("q", {nullptr, Dtype::fp32, false, 40, 20, 4});
  call.add("v", {nullptr, Dtype::fp32, false, 90, 15, 3});
  const Call groups = call.grouped({"q", "k"});
  EXPECT_EQ(groups.size("B"), 4);
  EXPECT_EQ(groups.size("H"), 3);
  EXPECT_EQ(groups.find("q")->stride_b, 20);
  EXPECT_EQ(groups.find("q")->stride_h, 0);
  EXPECT_EQ(groups.find("v")->stride_b, 45);
  EXPECT_EQ(groups.find("v")->stride_h, 15);
}

}  // namespace
}  // namespace tutorial
