/// @file
/// `--backward`: the double references are gradients, and every stage agrees with them.

#include <cstdlib>

#include "01_linear_attention/attention.hpp"
#include "01_linear_attention/causal_dot_product.hpp"
#include "01_linear_attention/causal_dot_product_backward.hpp"
#include "01_linear_attention/test/stages.hpp"
#include "common/test/gradients.hpp"

namespace tutorial {
namespace {

Problem drawn(const Operator& definition, std::int64_t B, std::int64_t H, std::int64_t L, std::int64_t Dk,
              std::int64_t Dv) {
  return make_problem(definition, {.sizes = {{"B", B}, {"H", H}, {"L", L}, {"Dk", Dk}, {"Dv", Dv}}, .seed = 4});
}

/// The operators of the chapter as they are written in linear_attention.hpp, in double, pair after pair.
struct Loops {
  const Sizes& sizes;
  bool has_features;
  bool is_causal;
  const std::int32_t* key_lengths = nullptr;  ///< [B], or null

  std::int64_t size(const char* symbol) const { return sizes.at(symbol); }

  Doubles operator()(const Doubles& inputs) const {
    const std::int64_t L = size("L"), Lk = has_features ? size("Lk") : L, Dk = size("Dk"), Dv = size("Dv");
    const auto &q = inputs.at("q"), &k = inputs.at("k"), &v = inputs.at("v");
    const auto feature = [&](double x) { return !has_features ? x : x > 0 ? x + 1 : std::exp(x); };
    std::vector<double> o(std::size_t(size("B") * size("H") * L * Dv));
    for (std::int64_t bh = 0; bh < size("B") * size("H"); ++bh) {
      const std::int64_t keys = key_lengths ? std::min<std::int64_t>(key_lengths[bh / size("H")], Lk) : Lk;
      for (std::int64_t t = 0; t < L; ++t) {
        double normaliser = 1e-6f;
        double* o_t = &o[std::size_t((bh * L + t) * Dv)];
        for (std::int64_t i = 0; i < (is_causal ? std::min(t + 1, keys) : keys); ++i) {
          double weight = 0;
          for (std::int64_t d = 0; d < Dk; ++d) {
            weight += feature(q[std::size_t((bh * L + t) * Dk + d)]) * feature(k[std::size_t((bh * Lk + i) * Dk + d)]);
          }
          normaliser += weight;
          for (std::int64_t j = 0; j < Dv; ++j) o_t[j] += weight * v[std::size_t((bh * Lk + i) * Dv + j)];
        }
        for (std::int64_t j = 0; has_features && j < Dv; ++j) o_t[j] /= normaliser;
      }
    }
    return {{"o", o}};
  }
};

constexpr const char* kLayers[] = {"causal_attention", "bidirectional_attention"};

TEST(BackwardTest, CausalDotProductIsTheGradient) {
  const Operator& definition = find_operator("causal_dot_product", "backward");
  const Problem problem = drawn(definition, 2, 2, 17, 5, 3);
  expect_gradients(definition, problem, Loops{problem.sizes, false, true});
}

TEST(BackwardTest, TheLayersAreTheGradient) {
  for (const char* name : kLayers) {
    const Operator& definition = find_operator(name, "backward");
    for (const std::int64_t keys : {17, 9, 23}) {
      SCOPED_TRACE(std::string(name) + ", keys " + std::to_string(keys));
      const Problem problem = make_problem(
          definition, {.sizes = {{"B", 2}, {"H", 2}, {"L", 17}, {"Lk", keys}, {"Dk", 5}, {"Dv", 3}}, .seed = 6});
      const std::int32_t* key_lengths = problem.inputs.at("key_lengths").elements<std::int32_t>().data();
      expect_gradients(definition, problem, Loops{problem.sizes, true, *name == 'c', key_lengths});
    }
  }
}

/// Expects a reference for long sequences, which no short problem reaches, to agree with the other one.
template <class Arguments>
void expect_agrees(const char* name, void (*long_reference)(const Arguments&)) {
  SCOPED_TRACE(name);
  const Operator& definition = find_operator(name, "backward");
  const Problem problem = drawn(definition, 2, 2, 70, 6, 9);
  Operator with_long = definition;
  with_long.reference(long_reference);
  const Outputs outputs = evaluate_reference(with_long, problem), expected = evaluate_reference(definition, problem);
  EXPECT_EQ(outputs.size(), expected.size());
  expect_close(outputs, expected, 1e-7);
}

TEST(BackwardTest, LongReferencesAgree) {
  expect_agrees("causal_dot_product", causal_dot_product_backward::recurrent_double);
  expect_agrees("causal_attention", causal_attention_backward::recurrent_double);
  expect_agrees("bidirectional_attention", bidirectional_attention_backward::state_double);
}

class BackwardShapesTest : public testing::TestWithParam<const char*> {
 protected:
  const Operator& definition() const { return find_operator(GetParam(), "backward"); }
  void expect_match(std::int64_t B, std::int64_t H, std::int64_t L, std::int64_t Dk, std::int64_t Dv,
                    const Layout& layout = {}) const {
    SCOPED_TRACE("L " + std::to_string(L) + ", Dk " + std::to_string(Dk) + ", Dv " + std::to_string(Dv));
    expect_stages_match(definition(), drawn(definition(), B, H, L, Dk, Dv), 1e-5, layout);
  }
};

// Few threads, odd everything: for ThreadSanitizer, too.
TEST_P(BackwardShapesTest, Small) {
  expect_match(1, 2, 19, 5, 3);
  expect_match(2, 1, 9, 3, 33, {.heads_inside = true, .row_padding = 1});
}

TEST_P(BackwardShapesTest, Lengths) {
  for (const std::int64_t L : {1, 2, 31, 33, 64, 65, 200}) {
    expect_match(2, 1, L, 64, 63);
    expect_match(1, 2, L, 33, 65);
  }
  expect_match(1, 1, 1000, 40, 24);
}

TEST_P(BackwardShapesTest, Widths) {
  for (const auto& [Dk, Dv] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 128}, {130, 40}, {256, 256}, {256, 1}, {300, 24}, {7, 400}}) {
    expect_match(1, 1, 20, Dk, Dv);
  }
  expect_match(10, 7, 9, 40, 33);
}

TEST_P(BackwardShapesTest, Strides) {
  for (const bool heads_inside : {false, true}) {
    for (const std::int64_t padding : {0, 3, 4}) {
      for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{64, 64}, {40, 65}}) {
        expect_match(2, 2, 19, Dk, Dv, {.heads_inside = heads_inside, .row_padding = padding});
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, BackwardShapesTest,
                         testing::Values("causal_dot_product", "causal_attention", "bidirectional_attention"),
                         [](const auto& info) { return std::string(info.param); });

TEST(BackwardTest, ZeroGradientsStayZero) {
  for (const char* name : {"causal_dot_product", "causal_attention", "bidirectional_attention"}) {
    const Operator& definition = find_operator(name, "backward");
    Problem problem = drawn(definition, 1, 2, 40, 16, 24);
    fill(problem.inputs.at("do"), 0);
    for (const Stage& stage : definition.stages()) {
      for (const auto& [output, gradient] : evaluate(definition, stage, problem)) {
        for (const float x : gradient.elements<float>()) ASSERT_EQ(x, 0) << definition.label() << " " << stage.name;
      }
    }
  }
}

TEST(BackwardTest, KeysThatDoNotCountHaveNoGradient) {
  for (const char* name : kLayers) {
    const Operator& definition = find_operator(name, "backward");
    for (const std::int64_t keys : {45, 1, 30, 60}) {
      SCOPED_TRACE(std::string(name) + ", keys " + std::to_string(keys));
      Problem problem = make_problem(
          definition, {.sizes = {{"B", 4}, {"H", 2}, {"L", 45}, {"Lk", keys}, {"Dk", 20}, {"Dv", 12}}, .seed = 3});
      const auto lengths = problem.inputs.at("key_lengths").elements<std::int32_t>();
      lengths[0] = 0;  // no key at all: eps alone is the normaliser
      lengths[1] = 1;
      lengths[2] = std::int32_t(keys);
      expect_stages_match(definition, problem);
      for (const Stage& stage : definition.stages()) {
        const Outputs outputs = evaluate(definition, stage, problem);
        for (const char* output : {"dk", "dv"}) {
          const Tensor& gradient = outputs.at(output);
          const auto elements = gradient.elements<float>().subspan(0, gradient.elements<float>().size() / 4);
          for (const float x : elements) ASSERT_EQ(x, 0) << stage.name << " " << output;
        }
      }
    }
  }
}

// Equal values: their mean does not depend on the weights, so dq and dk are what rounding leaves of terms that cancel.
TEST(BackwardTest, GradientsThatCancelAreJudgedByTheirTerms) {
  for (const char* name : kLayers) {
    const Operator& definition = find_operator(name, "backward");
    Problem problem = drawn(definition, 2, 1, 40, 16, 4);
    fill(problem.inputs.at("v"), 2.5f);
    expect_stages_match(definition, problem);
    const Outputs reference = evaluate_reference(definition, problem);
    const Tensor zero = [&] {
      Tensor tensor(Dtype::fp32, reference.at("dq").shape());
      tensor.fill_bytes(0);
      return tensor;
    }();
    EXPECT_LT(compare(reference.at("dq"), zero).error, 1e-5 * compare(reference.at("dq_subtracted"), zero).error);
  }
}

TEST(BackwardTest, OnesCountThePairs) {  // q = k = v = do = 1: dq_t = Dv (t + 1), dk_i = Dv (L - i), dv_i = Dk (L - i)
  const Operator& definition = find_operator("causal_dot_product", "backward");
  Problem problem = drawn(definition, 1, 2, 70, 5, 3);
  for (const char* name : {"q", "k", "v", "do"}) fill(problem.inputs.at(name), 1);
  for (const Stage& stage : definition.stages()) {
    SCOPED_TRACE(stage.name);
    const Outputs outputs = evaluate(definition, stage, problem);
    for (std::int64_t t = 0; t < 70; ++t) {
      ASSERT_EQ(outputs.at("dq").value(t * 5), 3.0 * double(t + 1));
      ASSERT_EQ(outputs.at("dk").value(t * 5), 3.0 * double(70 - t));
      ASSERT_EQ(outputs.at("dv").value(t * 3), 5.0 * double(70 - t));
    }
  }
}

#if TUTORIAL_EMULATOR
TEST(BackwardTest, DispatchIsRightOnAnyNumberOfMultiprocessors) {
  const Operator& definition = find_operator("causal_dot_product", "backward");
  for (const char* multiprocessors : {"1", "30", "1000"}) {
    setenv("EMULATOR_MULTIPROCESSORS", multiprocessors, 1);
    for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{64, 64}, {40, 130}, {256, 256}}) {
      SCOPED_TRACE(std::string(multiprocessors) + " multiprocessors, Dk " + std::to_string(Dk));
      const Problem problem = drawn(definition, 1, 6, 37, Dk, Dv);
      expect_close(evaluate(definition, find_stage(definition, "dispatch"), problem),
                   evaluate_reference(definition, problem), 1e-5);
    }
    unsetenv("EMULATOR_MULTIPROCESSORS");
  }
}

TEST(BackwardTest, DispatchSaysWhatItPicks) {
  const auto pick = [](int heads, int Dk, int Dv) {
    causal_dot_product_backward::Arguments a{};
    a.B = 1;
    a.H = heads;
    a.L = 100;
    a.Dk = Dk;
    a.Dv = Dv;
    return causal_dot_product_backward::dispatch_note(a);
  };
  setenv("EMULATOR_MULTIPROCESSORS", "132", 1);
  EXPECT_EQ(pick(1, 64, 64), "dq, dk, dv at once: lmha_low_occupancy");
  EXPECT_EQ(pick(32, 64, 64), "dq, dk, dv at once: lmha, 2 blocks per head, two threads per column");
  EXPECT_EQ(pick(64, 64, 64), "dq, dk, dv at once: lmha, 2 blocks per head, two threads per column");
  EXPECT_EQ(pick(67, 64, 64), "dq, dk, dv at once: lmha, 1 block per head, two threads per column");
  EXPECT_EQ(pick(32, 128, 128), "dq, dk, dv at once: lmha, 4 blocks per head");
  EXPECT_EQ(pick(64, 128, 128), "dq, dk, dv at once: lmha, 1 block per head");
  EXPECT_EQ(pick(8, 64, 128), "dq, dk at once: lmha_low_occupancy\ndv: lmha_low_occupancy");
  EXPECT_EQ(pick(32, 300, 64), "dq, dk at once: lmha, 4 blocks per head\ndv: atomic");
  unsetenv("EMULATOR_MULTIPROCESSORS");
}
#endif

}  // namespace
}  // namespace tutorial
