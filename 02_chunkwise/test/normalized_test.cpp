/// @file
/// The operator with the normaliser, `--normalize`.

#include "02_chunkwise/normalized.hpp"
#include "01_linear_attention/attention.hpp"
#include "02_chunkwise/test/stages.hpp"
#include "common/feature_map.hpp"
#include "common/test/split.hpp"

namespace tutorial {
namespace {

const Operator& normalized_operator() {
  return find_operator("linear_attention", "normalize");
}

Problem problem_of(std::int64_t H, std::int64_t L, std::int64_t Dk, std::int64_t Dv) {
  return make_problem(normalized_operator(),
                      {.sizes = {{"B", 2}, {"H", H}, {"L", L}, {"Dk", Dk}, {"Dv", Dv}}, .seed = 4});
}

void expect_all_match(const Problem& problem, const Layout& layout = {}) {
  for (const Stage& stage : normalized_operator().stages()) {
    SCOPED_TRACE(stage.name);
    ASSERT_EQ(why_not(normalized_operator(), stage, problem, layout), "");
    expect_close(evaluate(normalized_operator(), stage, problem, layout),
                 evaluate_reference(normalized_operator(), problem, stage.dtype), tolerance_of(stage, problem.sizes));
  }
}

TEST(NormalizedTest, Small) {
  expect_all_match(problem_of(1, 66, 16, 32));
}

TEST(NormalizedTest, Lengths) {
  for (const std::int64_t L : {1, 63, 64, 65, 130, 1000}) {
    for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{64, 64}, {128, 128}, {48, 80}, {256, 96}}) {
      SCOPED_TRACE("L " + std::to_string(L) + ", Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
      expect_all_match(problem_of(1, L, Dk, Dv));
    }
  }
}

TEST(NormalizedTest, WidthsAndRowsThatTensorCoresDoNotTake) {
  expect_all_match(problem_of(3, 67, 40, 65));
  expect_all_match(problem_of(2, 67, 64, 64), {.heads_inside = true, .row_padding = 3});
  expect_all_match(problem_of(2, 67, 64, 64), {.heads_inside = true, .row_padding = 8});
}

TEST(NormalizedTest, NoInitialStates) {
  Problem problem = problem_of(2, 200, 32, 48);
  problem.inputs.erase("initial_state");
  problem.inputs.erase("initial_z");
  expect_all_match(problem);
}

// Chapter 01 puts its feature map into the operator; here it has been applied to q and k before.
TEST(NormalizedTest, IsChapter01sCausalAttention) {
  constexpr int B = 2, H = 3, L = 150, Dk = 32, Dv = 48;
  Problem problem = problem_of(H, L, Dk, Dv);
  problem.inputs.erase("initial_state");
  problem.inputs.erase("initial_z");
  problem.scale = 1;
  Tensor q(Dtype::fp32, {B, H, L, Dk}), k(Dtype::fp32, {B, H, L, Dk}), o(Dtype::fp32, {B, H, L, Dv});
  for (auto& [name, raw] : {std::pair<const char*, Tensor&>{"q", q}, {"k", k}}) {
    auto mapped = problem.inputs.at(name).elements<float>();
    for (std::size_t i = 0; i < mapped.size(); ++i) {  // phi's inverse
      raw.elements<float>()[i] = mapped[i] > 1 ? mapped[i] - 1 : std::log(mapped[i]);
    }
  }
  const Tensor& v = problem.inputs.at("v");
  causal_attention::quadratic_double({B, H, L, L, Dk, Dv, packed<const float>(q.elements<float>().data(), H, L, Dk),
                                      packed<const float>(k.elements<float>().data(), H, L, Dk),
                                      packed<const float>(v.elements<float>().data(), H, L, Dv), nullptr, 1e-6f,
                                      packed(o.elements<float>().data(), H, L, Dv)});
  for (const Stage& stage : normalized_operator().stages()) {
    SCOPED_TRACE(stage.name);
    const Comparison c = compare(evaluate(normalized_operator(), stage, problem).at("o"), o);
    EXPECT_TRUE(c.within(tolerance_of(stage, problem.sizes))) << "error " << c.error;
  }
}

TEST(NormalizedTest, TwoCallsAreOne) {
  const Problem whole = problem_of(2, 200, 48, 80);
  for (const std::int64_t middle : {1, 64, 90, 199}) {
    for (const Stage& stage : normalized_operator().stages()) {
      SCOPED_TRACE(stage.name + " at " + std::to_string(middle));
      const auto run = [&](std::int64_t begin, std::int64_t end, const Tensor& S, const Tensor& z) {
        Problem part = part_of(whole, begin, end, S);
        part.inputs.insert_or_assign("initial_z", z.to(Dtype::fp32));
        return evaluate(normalized_operator(), stage, part);
      };
      const Outputs first = run(0, middle, whole.inputs.at("initial_state"), whole.inputs.at("initial_z"));
      const Outputs second = run(middle, 200, first.at("final_state"), first.at("final_z"));
      const Outputs at_once = evaluate(normalized_operator(), stage, whole);
      const double tolerance = tolerance_of(stage, whole.sizes);
      EXPECT_TRUE(compare(first.at("o"), slice(at_once.at("o"), 0, middle)).within(tolerance));
      EXPECT_TRUE(compare(second.at("o"), slice(at_once.at("o"), middle, 200)).within(tolerance));
      EXPECT_TRUE(compare(second.at("final_state"), at_once.at("final_state")).within(tolerance));
      EXPECT_TRUE(compare(second.at("final_z"), at_once.at("final_z")).within(tolerance));
    }
  }
}

}  // namespace
}  // namespace tutorial
