#include "common/chapter/problem.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/chapter/chapter.hpp"
#include "common/chapter/stage_tensors.hpp"
#include "common/error.hpp"
#include "common/safetensors.hpp"
#include "common/small_float.hpp"
#include "common/test/files.hpp"

namespace tutorial {
namespace {

// q [B, H, L, Dk], k [B, H, Lk, Dk], optional int32 lengths [B] and a state that only files give.
Operator attention() {
  return Operator("attention", "for the tests of problems")
      .input({.name = "q", .dims = {"B", "H", "L", "Dk"}, .draw = normal()})
      .input({.name = "k", .dims = {"B", "H", "Lk", "Dk"}, .draw = normal()})
      .input({.name = "g",
              .dims = {"B", "H", "L"},
              .draw = logsigmoid(),
              .gate = true,
              .bf16 = false,
              .valid = [](double g, const Sizes&) { return g <= 0; },
              .requirement = "must be at most 0"})
      .input({.name = "lengths",
              .dims = {"B"},
              .dtype = Dtype::int32,
              .optional = true,
              .valid = [](double n, const Sizes& s) { return n >= 0 && n <= static_cast<double>(s.at("Lk")); },
              .requirement = "must be between 0 and the number of keys"})
      .output({.name = "o", .dims = {"B", "H", "L", "Dk"}})
      .sizes({{"B", 2}, {"H", 3}, {"L", 100}, {"Dk", 8}})
      .modest_sizes({{"B", 1}, {"L", 10}})
      .derived_size("Lk", [](const Sizes& s) { return s.at("L"); })
      .scale([](const Sizes& s) { return 1 / std::sqrt(static_cast<double>(s.at("Dk"))); });
}

// A file of tensors filled with one value.
class InputFile {
 public:
  // The other tensors without which attention() has no problem.
  InputFile& add_rest(std::int64_t B, std::int64_t H, std::int64_t L, std::int64_t Dk) {
    const auto add_if_missing = [&](const std::string& name, const Shape& shape, double value) {
      if (std::find(names_.begin(), names_.end(), name) == names_.end()) add(name, Dtype::fp32, shape, value);
    };
    add_if_missing("q", {B, H, L, Dk}, 0.25);
    add_if_missing("k", {B, H, L, Dk}, 0.25);
    add_if_missing("g", {B, H, L}, -0.25);
    return *this;
  }
  InputFile& add(const std::string& name, Dtype dtype, const Shape& shape, double value = 0.25) {
    Tensor tensor(Dtype::fp64, shape);
    for (double& x : tensor.elements<double>()) x = value;
    if (dtype == Dtype::int32 || dtype == Dtype::int64) {
      tensor = Tensor(Dtype::int64, shape);
      for (std::int64_t& x : tensor.elements<std::int64_t>()) x = static_cast<std::int64_t>(value);
    }
    names_.push_back(name);
    tensors_.push_back(tensor.to(dtype));
    return *this;
  }
  Tensor& first() { return tensors_.front(); }
  std::filesystem::path write(const Metadata& metadata = {}) {
    std::vector<NamedTensor> named;
    for (std::size_t i = 0; i < names_.size(); ++i) named.push_back({names_[i], &tensors_[i]});
    write_safetensors(folder_ / "in", named, metadata);
    return folder_ / "in";
  }
  std::string path() const { return (folder_ / "in").string(); }

 private:
  TemporaryFolder folder_;
  std::vector<std::string> names_;
  std::vector<Tensor> tensors_;
};

std::string error_of(const ProblemRequest& request) {
  try {
    make_problem(attention(), request);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Problem, DefaultSizes) {
  const Problem problem = plan_problem(attention(), {});
  EXPECT_EQ(problem.sizes, (Sizes{{"B", 2}, {"H", 3}, {"L", 100}, {"Lk", 100}, {"Dk", 8}}));
  EXPECT_DOUBLE_EQ(problem.scale, 1 / std::sqrt(8));
  EXPECT_EQ(plan_problem(attention(), {.modest = true}).sizes,
            (Sizes{{"B", 1}, {"H", 3}, {"L", 10}, {"Lk", 10}, {"Dk", 8}}));
  EXPECT_EQ(plan_problem(attention(), {.sizes = {{"L", 7}, {"Dk", 3}}}).sizes,
            (Sizes{{"B", 2}, {"H", 3}, {"L", 7}, {"Lk", 7}, {"Dk", 3}}));
}

TEST(Problem, DrawnInputsDependOnTheSeedAlone) {
  const Problem a = make_problem(attention(), {.seed = 5, .modest = true});
  const Problem b = make_problem(attention(), {.seed = 5, .modest = true});
  const Problem c = make_problem(attention(), {.seed = 6, .modest = true});
  EXPECT_EQ(a.inputs.find("q")->second.value(17), b.inputs.find("q")->second.value(17));
  EXPECT_NE(a.inputs.find("q")->second.value(17), c.inputs.find("q")->second.value(17));
  EXPECT_FALSE(a.inputs.contains("lengths"));
}

TEST(Problem, DrawnInputsAreRoundedToBf16WhereStagesTakeThemSo) {
  const Problem problem = make_problem(attention(), {.seed = 5});
  const Tensor& q = problem.inputs.find("q")->second;
  for (const float x : q.elements<float>()) ASSERT_EQ(x, float_from_bf16(bf16_from_float(x)));
  const Tensor& g = problem.inputs.find("g")->second;
  int rounded = 0;
  for (const float x : g.elements<float>()) rounded += x == float_from_bf16(bf16_from_float(x));
  EXPECT_LT(rounded, g.size() / 10);
}

TEST(Problem, FilesSetSizesAndValues) {
  InputFile file;
  file.add("q", Dtype::fp16, {1, 2, 4, 3}, 0.3).add("k", Dtype::fp64, {1, 2, 6, 3}).add("other", Dtype::fp32, {99});
  file.add("lengths", Dtype::int64, {1}, 5).add("g", Dtype::fp32, {1, 2, 4}, -1);
  const Problem problem = make_problem(attention(), {.seed = 1, .input_file = file.write({{"scale", "0.125"}})});
  EXPECT_EQ(problem.sizes, (Sizes{{"B", 1}, {"H", 2}, {"L", 4}, {"Lk", 6}, {"Dk", 3}}));
  EXPECT_TRUE(problem.from_file);
  EXPECT_EQ(problem.scale, 0.125);
  EXPECT_EQ(problem.inputs.find("q")->second.value(0), float_from_fp16(fp16_from_float(0.3f)));
  EXPECT_EQ(problem.inputs.find("lengths")->second.elements<std::int32_t>()[0], 5);
  EXPECT_FALSE(problem.inputs.contains("other"));
  EXPECT_EQ(make_problem(attention(), {.scale = 2, .input_file = file.path()}).scale, 2);
}

TEST(Problem, GatesByName) {
  const Problem open = make_problem(attention(), {.seed = 1, .gates = "open", .modest = true});
  const Problem usual = make_problem(attention(), {.seed = 1, .gates = "usual", .modest = true});
  const Problem drawn = make_problem(attention(), {.seed = 1, .modest = true});
  EXPECT_EQ(open.inputs.find("g")->second.value(5), 0);
  EXPECT_EQ(usual.inputs.find("g")->second.value(5), drawn.inputs.find("g")->second.value(5));
  EXPECT_EQ(open.inputs.find("q")->second.value(5), drawn.inputs.find("q")->second.value(5));
  InputFile file;
  file.add("q", Dtype::fp32, {1, 2, 4, 3}).add("k", Dtype::fp32, {1, 2, 6, 3}).add("g", Dtype::fp32, {1, 2, 4}, -1);
  EXPECT_EQ(error_of({.gates = "weak", .input_file = file.write()}), "--gates: " + file.path() + " has g");
}

TEST(Problem, ShapesMustAgree) {
  {
    InputFile file;
    file.add("q", Dtype::fp32, {1, 2, 4, 3}).add("k", Dtype::fp32, {1, 2, 4, 5});
    EXPECT_EQ(error_of({.input_file = file.write()}), file.path() + ": k [1, 2, 4, 5] has Dk = 5, but q has 3");
  }
  {
    InputFile file;
    file.add("q", Dtype::fp32, {1, 2, 4, 3}).add("lengths", Dtype::int32, {2});
    EXPECT_EQ(error_of({.input_file = file.write()}), file.path() + ": lengths [2] has B = 2, but q has 1");
  }
  {
    InputFile file;
    file.add("q", Dtype::fp32, {2, 4, 3});
    EXPECT_EQ(error_of({.input_file = file.write()}),
              file.path() + ": q [2, 4, 3] has 3 dimensions, not the 4 of [B, H, L, Dk]");
  }
  {
    InputFile file;
    file.add("q", Dtype::fp32, {1, 2, 0, 3});
    EXPECT_EQ(error_of({.input_file = file.write()}), file.path() + ": q [1, 2, 0, 3] has L = 0");
  }
  {
    InputFile file;
    file.add_rest(1, 2, 4, 3);
    EXPECT_EQ(error_of({.sizes = {{"L", 5}}, .input_file = file.write()}), "L = 5 was asked for, but q has 4");
    EXPECT_EQ(error_of({.sizes = {{"L", 4}}, .input_file = file.path()}), "accepted");
  }
}

TEST(Problem, ValuesAreChecked) {
  {
    InputFile file;
    file.add_rest(1, 2, 4, 3);
    file.first().elements<float>()[17] = std::nanf("");
    file.first().elements<float>()[20] = std::numeric_limits<float>::infinity();
    EXPECT_EQ(error_of({.input_file = file.write()}), file.path() + ": q[0, 1, 1, 2] = nan: is not finite");
  }
  {
    InputFile file;
    file.add("k", Dtype::fp64, {1, 1, 1, 1}, 1e300).add_rest(1, 1, 1, 1);
    EXPECT_EQ(error_of({.input_file = file.write()}), file.path() + ": k[0, 0, 0, 0] = 1e+300: is beyond fp32");
  }
  {
    InputFile file;
    file.add("g", Dtype::bf16, {1, 1, 2}, 0.5).add_rest(1, 1, 2, 1);
    EXPECT_EQ(error_of({.input_file = file.write()}), file.path() + ": g[0, 0, 0] = 0.5: must be at most 0");
  }
  for (const auto& [value, text] : {std::pair(-1, "-1"), {7, "7"}}) {
    InputFile file;
    file.add("lengths", Dtype::int32, {1}, value).add_rest(1, 1, 6, 1);
    EXPECT_EQ(error_of({.input_file = file.write()}),
              file.path() + ": lengths[0] = " + text + ": must be between 0 and the number of keys");
  }
}

TEST(Problem, TypesAreChecked) {
  {
    InputFile file;
    file.add("lengths", Dtype::fp32, {1}).add_rest(1, 1, 1, 1);
    EXPECT_EQ(error_of({.input_file = file.write()}), file.path() + ": lengths is fp32, but has to be int32 or int64");
  }
  {
    InputFile file;
    file.add("q", Dtype::int32, {1, 1, 1, 1}).add_rest(1, 1, 1, 1);
    EXPECT_EQ(error_of({.input_file = file.write()}), file.path() + ": q is int32, but has to be floating-point");
  }
  {
    InputFile file;
    file.add("lengths", Dtype::int64, {1}, 5e9).add_rest(1, 1, 1, 1);
    EXPECT_EQ(error_of({.input_file = file.write()}), file.path() + ": lengths: 5000000000 does not fit in 32 bits");
  }
}

TEST(Problem, FilesMustHoldSomething) {
  InputFile file;
  file.add("other", Dtype::fp32, {1});
  EXPECT_EQ(error_of({.input_file = file.write()}),
            file.path() + ": holds none of the inputs of attention: q, k, g, lengths");
}

// What a file lacks is not drawn beside what it has.
TEST(Problem, FilesMustHoldEveryInput) {
  InputFile file;
  file.add("q", Dtype::fp32, {1, 1, 1, 1}).add("K", Dtype::fp32, {1, 1, 1, 1});
  EXPECT_EQ(error_of({.input_file = file.write()}), file.path() + ": lacks inputs of attention: k, g; it has K, q");
  for (int i = 10; i < 30; ++i) file.add(fmt::format("a{}", i), Dtype::fp32, {1});
  EXPECT_EQ(error_of({.input_file = file.write()}),
            file.path() +
                ": lacks inputs of attention: k, g; it has K, a10, a11, a12, a13, a14, a15, a16, a17, a18, "
                "a19, a20, ...");
  file.add_rest(1, 1, 1, 1);
  EXPECT_EQ(error_of({.input_file = file.write()}), "accepted") << "lengths is optional";
}

TEST(Problem, TensorsThatAreNotUsedAreNamed) {
  InputFile file;
  file.add("other", Dtype::fp32, {99}).add("o", Dtype::fp32, {1}).add_rest(1, 1, 1, 1);
  EXPECT_EQ(plan_problem(attention(), {.input_file = file.write()}).warnings,
            (std::vector<std::string>{"not used of " + file.path() + ": o, other"}));
  InputFile exact;
  exact.add_rest(1, 1, 1, 1);
  EXPECT_EQ(plan_problem(attention(), {.input_file = exact.write()}).warnings, std::vector<std::string>{});
  // An input that --weights gives, and all else of that file, is not used of the other.
  const Operator definition = attention().input({.name = "w", .dims = {"Dk"}, .weight = true});
  file.add("w", Dtype::fp32, {1});
  InputFile weights;
  weights.add("w", Dtype::fp32, {1}).add("k", Dtype::fp32, {9});
  EXPECT_EQ(plan_problem(definition, {.input_file = file.write(), .weights_file = weights.write()}).warnings,
            (std::vector<std::string>{"not used of " + weights.path() + ": k",
                                      "not used of " + file.path() + ": o, other, w"}));
}

// They would change the results, and be ignored.
TEST(Problem, InputsOfOtherLibrariesAreRefused) {
  for (const auto& [name, reason] : {std::pair("cu_seqlens", "the sequences that it tells apart would run as one"),
                                     {"attention_mask", "the positions that it masks would count"},
                                     {"dt_bias", "the state would not decay by it; the logarithm"},
                                     {"state_indices", "states would not be those that it chooses of a pool"},
                                     {"h0", "it would be ignored; the state before the first position"}}) {
    InputFile file;
    file.add(name, Dtype::int32, {4}).add_rest(1, 1, 1, 1);
    const std::string error = error_of({.input_file = file.write()});
    EXPECT_TRUE(error.starts_with(fmt::format("{}: {} is of no use to attention: {}", file.path(), name, reason)))
        << error;
    const Operator with_it = attention().input({.name = name, .dims = {"N"}, .dtype = Dtype::int32});
    EXPECT_EQ(plan_problem(with_it, {.input_file = file.path()}).sizes.at("N"), 4);
  }
}

Operator packed_attention() {
  return Operator("attention", "")
      .input({.name = "q", .dims = {"B", "H", "L", "Dk"}, .draw = normal()})
      .input({.name = "initial_state", .dims = {"B", "H", "Dk", "Dk"}, .optional = true})
      .output({.name = "o", .dims = {"B", "H", "L", "Dk"}})
      .output({.name = "final_state", .dims = {"B", "H", "Dk", "Dk"}})
      .sizes({{"B", 2}, {"H", 1}, {"L", 9}, {"Dk", 2}})
      .packed();
}

std::vector<std::int32_t> offsets_of(const ProblemRequest& request) {
  const Problem problem = make_problem(packed_attention(), request);
  const auto offsets = problem.inputs.at("cu_seqlens").elements<std::int32_t>();
  return {offsets.begin(), offsets.end()};
}

TEST(Problem, LengthsPackSequences) {
  EXPECT_EQ(packed_attention().label(), "attention --lengths");
  EXPECT_EQ(plan_problem(packed_attention(), {}).sizes, (Sizes{{"N", 5}, {"B", 1}, {"H", 1}, {"L", 9}, {"Dk", 2}}));
  EXPECT_EQ(plan_problem(packed_attention(), {.lengths = {3, 0, 4}}).sizes,
            (Sizes{{"N", 3}, {"B", 1}, {"H", 1}, {"L", 7}, {"Dk", 2}}));
  EXPECT_EQ(offsets_of({.lengths = {3, 0, 4}}), (std::vector<std::int32_t>{0, 3, 3, 7}));
  const std::vector<std::int32_t> drawn = offsets_of({.seed = 3});
  EXPECT_EQ(drawn.size(), 6u);
  EXPECT_EQ(drawn.front(), 0);
  EXPECT_EQ(drawn.back(), 9);
  EXPECT_TRUE(std::is_sorted(drawn.begin(), drawn.end()));
}

// What --lengths or a file says of a problem of packed sequences, if it is wrong.
std::string error_of_packed(const ProblemRequest& request) {
  try {
    make_problem(packed_attention(), request);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Problem, LengthsMustAgree) {
  EXPECT_EQ(error_of_packed({.sizes = {{"L", 8}}, .lengths = {3, 4}}), "L = 8 was asked for, but --lengths has 7");
  EXPECT_EQ(error_of_packed({.sizes = {{"B", 2}}, .lengths = {3, 4}}), "attention: B = 2: packed sequences have B = 1");
  EXPECT_EQ(error_of_packed({.lengths = {0, 0}}), "L = 0: must be between 1 and 2147483647");
  InputFile file;
  file.add("q", Dtype::fp32, {1, 1, 7, 2});
  EXPECT_EQ(error_of_packed({.input_file = file.write()}),
            file.path() + ": lacks inputs of attention: cu_seqlens; it has q");
  EXPECT_EQ(offsets_of({.lengths = {5, 2}, .input_file = file.path()}), (std::vector<std::int32_t>{0, 5, 7}));
  EXPECT_EQ(error_of_packed({.lengths = {5, 3}, .input_file = file.path()}), "--lengths has L = 8, but q has 7");
  file.add("initial_state", Dtype::fp32, {3, 1, 2, 2});
  EXPECT_EQ(error_of_packed({.lengths = {5, 2}, .input_file = file.write()}),
            "--lengths has N = 2, but initial_state has 3");
}

TEST(Problem, OffsetsOfAFileTellSequencesApart) {
  const TemporaryFolder folder;
  const std::string path = (folder / "in").string();
  const auto with = [&](const std::vector<std::int64_t>& offsets, Dtype dtype = Dtype::int32, std::int64_t B = 1) {
    Tensor q(Dtype::fp32, {B, 1, 7, 2});
    q.fill_bytes(0);
    Tensor cu_seqlens(dtype, {std::int64_t(offsets.size())});
    for (std::size_t n = 0; n < offsets.size(); ++n) {
      if (dtype == Dtype::int64) cu_seqlens.elements<std::int64_t>()[n] = offsets[n];
      if (dtype == Dtype::int32) cu_seqlens.elements<std::int32_t>()[n] = std::int32_t(offsets[n]);
    }
    write_safetensors(path, {{"q", &q}, {"cu_seqlens", &cu_seqlens}});
    return ProblemRequest{.input_file = path};
  };
  EXPECT_EQ(offsets_of(with({0, 3, 3, 7})), (std::vector<std::int32_t>{0, 3, 3, 7}));
  EXPECT_EQ(offsets_of(with({0, 7}, Dtype::int64)), (std::vector<std::int32_t>{0, 7}));
  EXPECT_EQ(plan_problem(packed_attention(), with({0, 3, 3, 7})).sizes.at("N"), 3);
  const auto error = [&](const ProblemRequest& request) { return error_of_packed(request).substr(path.size() + 2); };
  EXPECT_EQ(error(with({1, 3, 7})), "cu_seqlens[0] = 1: must be 0, where the first sequence begins");
  EXPECT_EQ(error(with({-1, 3, 7})), "cu_seqlens[0] = -1: must be 0, where the first sequence begins");
  EXPECT_EQ(error(with({0, 5, 3, 7})), "cu_seqlens[2] = 3: falls, 5 comes before it");
  EXPECT_EQ(error(with({0, 8, 7})), "cu_seqlens[1] = 8: is beyond L = 7");
  EXPECT_EQ(error(with({0, 3, 6})), "cu_seqlens[2] = 6: must be L = 7, where the last one ends");
  EXPECT_EQ(error(with({0, 3, 8})), "cu_seqlens[2] = 8: must be L = 7, where the last one ends");
  EXPECT_EQ(error(with({0})), "cu_seqlens [1] has N+1 = 1");
  EXPECT_EQ(error(with({})), "cu_seqlens [0] has N+1 = 0");
  EXPECT_TRUE(error(with({0, std::int64_t{1} << 32}, Dtype::int64)).starts_with("cu_seqlens: "));
  EXPECT_EQ(error_of_packed(with({0, 7}, Dtype::int32, 2)), "attention: B = 2: packed sequences have B = 1");
  EXPECT_EQ(error_of_packed({.lengths = {7}, .input_file = path}), "--lengths: " + path + " has cu_seqlens");
  Tensor q(Dtype::fp32, {1, 1, 7, 2});
  q.fill_bytes(0);
  write_safetensors(path, {{"q", &q}, {"cu_seqlens", &q}});
  EXPECT_EQ(error_of_packed({.input_file = path}),
            path + ": cu_seqlens [1, 1, 7, 2] has 4 dimensions, not the 1 of [N+1]");
}

TEST(Problem, FilesMayHaveHeadsInside) {
  Tensor q(Dtype::fp32, {2, 3, 4, 5});  // B, L, H, Dk
  for (std::int64_t i = 0; i < q.size(); ++i) q.elements<float>()[i] = static_cast<float>(i);
  Tensor g(Dtype::fp32, {2, 3, 4});
  for (std::int64_t i = 0; i < g.size(); ++i) g.elements<float>()[i] = static_cast<float>(-i);
  const TemporaryFolder folder;
  const std::string path = (folder / "in").string();
  write_safetensors(path, {{"q", &q}, {"k", &q}, {"g", &g}});
  const ProblemRequest request{.input_file = path, .heads_inside = true};
  const Problem problem = make_problem(attention(), request);
  EXPECT_EQ(problem.sizes, (Sizes{{"B", 2}, {"H", 4}, {"L", 3}, {"Lk", 3}, {"Dk", 5}}));
  EXPECT_TRUE(problem.heads_inside);
  EXPECT_EQ(problem.warnings, std::vector<std::string>{});
  const Tensor& read = problem.inputs.find("q")->second;
  EXPECT_EQ(read.shape(), (Shape{2, 4, 3, 5}));
  EXPECT_EQ(read.value(((1 * 4 + 3) * 3 + 2) * 5 + 1), ((1 * 3 + 2) * 4 + 3) * 5 + 1);
  EXPECT_EQ(problem.inputs.find("g")->second.value((1 * 4 + 3) * 3 + 2), -((1 * 3 + 2) * 4 + 3));
  // Read in the other layout there are fewer heads than positions, and nothing is to be said.
  EXPECT_EQ(plan_problem(attention(), {.input_file = path}).warnings, std::vector<std::string>{});
}

TEST(Problem, MoreHeadsThanPositionsAreDoubted) {
  const auto warnings = [](std::int64_t H, std::int64_t L, bool heads_inside) {
    InputFile file;
    file.add_rest(1, heads_inside ? L : H, heads_inside ? H : L, 1);
    const Problem problem = plan_problem(attention(), {.input_file = file.write(), .heads_inside = heads_inside});
    return fmt::format("{}", fmt::join(problem.warnings, "; "));
  };
  EXPECT_NE(warnings(20, 2, false)
                .find("is read as H = 20 heads of L = 2 positions; if it has [B, L, H, D], give "
                      "--layout blhd"),
            std::string::npos);
  EXPECT_EQ(warnings(20, 2, true), "");
  EXPECT_EQ(warnings(2, 20, false), "");
  EXPECT_EQ(warnings(2, 2, false), "");
  EXPECT_EQ(warnings(1, 1, false), "");
  EXPECT_EQ(plan_problem(attention(), {.sizes = {{"H", 20}, {"L", 2}}}).warnings, std::vector<std::string>{});
}

TEST(Problem, ScaleInMetadataMustBeANumber) {
  InputFile file;
  file.add_rest(1, 1, 1, 1);
  for (const std::string scale : {"", "abc", "1x", "nan", "1e999"}) {
    EXPECT_EQ(error_of({.input_file = file.write({{"scale", scale}})}),
              file.path() + ": the scale in its metadata, '" + scale + "', is not a number");
  }
  for (const std::string scale : {"1e300", "-3.5e38"}) {
    EXPECT_EQ(error_of({.input_file = file.write({{"scale", scale}})}),
              file.path() + ": the scale in its metadata, " + scale + ", is no number of type float");
  }
}

TEST(Problem, RequiredInputsWithoutADrawMustBeInTheFile) {
  const Operator definition = attention().input({.name = "w", .dims = {"Dk"}});
  EXPECT_THROW(plan_problem(definition, {}), UsageError);
}

TEST(Problem, WeightsComeFromTheirOwnFile) {
  const Operator definition = attention().input({.name = "w", .dims = {"Dk"}, .weight = true});
  InputFile weights;
  weights.add("w", Dtype::fp32, {5}, 0.75).add("q", Dtype::fp32, {1, 1, 1, 7});  // q is not a weight: ignored
  const Problem problem = make_problem(definition, {.weights_file = weights.write()});
  EXPECT_EQ(problem.sizes.at("Dk"), 5);
  EXPECT_EQ(problem.inputs.find("w")->second.value(4), 0.75);
}

TEST(Problem, SomeSizesMayBeZero) {
  const auto prompt = [](const Sizes& sizes) -> std::string {
    Operator definition("decode", "for the tests of sizes");
    definition.input({.name = "x", .dims = {"B", "H", "L"}, .draw = normal()})
        .sizes({{"B", 1}, {"H", 1}, {"L", 9}})
        .derived_size("P", [](const Sizes& s) { return s.at("L") / 3; })
        .may_be_zero("P");
    try {
      return std::to_string(plan_problem(definition, {.sizes = sizes}).sizes.at("P"));
    } catch (const UsageError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(prompt({}), "3");
  EXPECT_EQ(prompt({{"L", 2}}), "0");
  EXPECT_EQ(prompt({{"P", 0}}), "0");
  EXPECT_EQ(prompt({{"P", -1}}), "P = -1: must be between 0 and 2147483647");
  EXPECT_EQ(prompt({{"B", 0}}), "B = 0: must be between 1 and 2147483647");
}

// A layer of H heads: w [D, D], bias [D], and D = 4 H unless a file says otherwise.
Operator layer() {
  return Operator("layer", "for the tests of metadata")
      .input({.name = "x", .dims = {"L", "D"}, .draw = normal()})
      .input({.name = "w", .dims = {"D", "D"}, .draw = normal(), .weight = true})
      .input({.name = "bias", .dims = {"D"}, .draw = normal(), .weight = true})
      .output({.name = "y", .dims = {"L", "D"}})
      .metadata_size("H", "num_heads")
      .sizes({{"L", 3}})
      .derived_size("H", [](const Sizes&) { return 2; })
      .derived_size("D", [](const Sizes& s) { return 4 * s.at("H"); })
      .consistent([](const Sizes& s) {
        return s.at("D") % s.at("H") == 0 ? std::string() : std::to_string(s.at("D")) + " is not a multiple of H";
      })
      .parameter("eps", 1e-5, "norm_eps");
}

// What is wrong with a request of the layer, or its heads and its eps.
std::string planned(const ProblemRequest& request) {
  try {
    const Problem problem = plan_problem(layer(), request);
    return fmt::format("H {}, D {}, eps {}", problem.sizes.at("H"), problem.sizes.at("D"),
                       problem.parameters.at("eps"));
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(Problem, MetadataGivesSizesAndParameters) {
  EXPECT_EQ(planned({}), "H 2, D 8, eps 1e-05");
  InputFile file;
  file.add("w", Dtype::fp32, {6, 6}).add("bias", Dtype::fp32, {6});
  file.write();
  EXPECT_EQ(planned({.weights_file = file.path()}), "H 2, D 6, eps 1e-05");
  EXPECT_EQ(planned({.sizes = {{"H", 3}}, .weights_file = file.path()}), "H 3, D 6, eps 1e-05");
  EXPECT_EQ(planned({.sizes = {{"H", 4}}, .weights_file = file.path()}), "layer: 6 is not a multiple of H");
  file.add("x", Dtype::fp32, {2, 6}).write({{"num_heads", "3"}, {"norm_eps", "0.5"}});
  for (const ProblemRequest& request :
       {ProblemRequest{.weights_file = file.path()}, ProblemRequest{.input_file = file.path()}}) {
    EXPECT_EQ(planned(request), "H 3, D 6, eps 0.5");
  }
  EXPECT_EQ(planned({.sizes = {{"H", 3}}, .input_file = file.path()}), "H 3, D 6, eps 0.5");
  EXPECT_EQ(planned({.sizes = {{"H", 2}}, .input_file = file.path()}),
            "H = 2 was asked for, but num_heads in the metadata has 3");
}

TEST(Problem, MetadataOfWeightsGoesBeforeThatOfOtherInputs) {
  InputFile weights, x;
  weights.add("w", Dtype::fp32, {6, 6}).add("bias", Dtype::fp32, {6});
  x.add("x", Dtype::fp32, {2, 6});
  x.write({{"num_heads", "3"}, {"norm_eps", "0.25"}});
  weights.write();
  EXPECT_EQ(planned({.input_file = x.path(), .weights_file = weights.path()}), "H 3, D 6, eps 0.25");
  weights.write({{"norm_eps", "0.5"}});
  EXPECT_EQ(planned({.input_file = x.path(), .weights_file = weights.path()}), "H 3, D 6, eps 0.5");
  weights.write({{"num_heads", "2"}});
  EXPECT_EQ(planned({.input_file = x.path(), .weights_file = weights.path()}),
            x.path() + ": the num_heads in its metadata is 3, but H = 2");
}

TEST(Problem, MetadataMustMakeSense) {
  InputFile file;
  file.add("x", Dtype::fp32, {2, 6});
  for (const char* heads : {"0", "-1", "1.5", "1e10"}) {
    file.write({{"num_heads", heads}});
    EXPECT_EQ(planned({.input_file = file.path()}),
              file.path() + ": the num_heads in its metadata, '" + heads + "', is no size");
  }
  file.write({{"num_heads", "two"}});
  EXPECT_EQ(planned({.input_file = file.path()}),
            file.path() + ": the num_heads in its metadata, 'two', is not a number");
  file.write({{"norm_eps", "-0.5"}});
  EXPECT_EQ(planned({.input_file = file.path()}),
            file.path() + ": the norm_eps in its metadata, -0.5, must be above 0");
}

TEST(Problem, WeightsComeAllFromFilesOrAllAreDrawn) {
  InputFile weights, bias, none;
  weights.add("w", Dtype::fp32, {6, 6}).write();
  bias.add("bias", Dtype::fp32, {6}).write();
  none.add("x", Dtype::fp32, {1, 6}).write();
  EXPECT_EQ(planned({.weights_file = weights.path()}), weights.path() + ": lacks weights of layer: bias");
  EXPECT_EQ(planned({.input_file = weights.path()}), weights.path() + ": lacks weights of layer: bias");
  EXPECT_EQ(planned({.weights_file = none.path()}), none.path() + ": lacks weights of layer: w, bias");
  EXPECT_EQ(planned({.input_file = none.path()}), "H 2, D 6, eps 1e-05");
  EXPECT_EQ(planned({.input_file = bias.path(), .weights_file = weights.path()}),
            bias.path() + ": lacks inputs of layer: x; it has bias");
  bias.add("x", Dtype::fp32, {1, 6}).write();
  EXPECT_EQ(planned({.input_file = bias.path(), .weights_file = weights.path()}), "H 2, D 6, eps 1e-05");
}

TEST(Problem, CallsTellParameters) {
  const Operator definition = layer();
  const Problem problem = make_problem(definition, {.seed = 1});
  StageTensors placement(definition, problem, Processor::cpu, Dtype::fp32, Dtype::fp32);
  EXPECT_FLOAT_EQ(placement.call().parameter("eps"), 1e-5f);
  EXPECT_THROW(placement.call().parameter("other"), std::logic_error);
}

// q, k and the gradient of o come in, those of q, k and g go out; the rest is the operator's.
TEST(Problem, BackwardHasTheGradients) {
  const Operator forward =
      attention().output({.name = "final_state", .dims = {"B", "H", "Dk"}, .bf16 = false, .in_graph = false});
  const Operator backward = forward.backward("dq = ...");
  EXPECT_EQ(backward.label(), "attention --backward");
  std::string outputs;
  for (const Output& output : backward.outputs()) outputs += output.name + " ";
  EXPECT_EQ(outputs, "dq dk dg ");
  EXPECT_FALSE(backward.outputs()[2].bf16);
  const Problem drawn = make_problem(backward, {.seed = 1, .modest = true});
  EXPECT_EQ(drawn.sizes, make_problem(forward, {.seed = 1, .modest = true}).sizes);
  EXPECT_EQ(drawn.scale, 1 / std::sqrt(8.0));
  EXPECT_EQ(drawn.inputs.at("do").shape(), (Shape{1, 3, 10, 8}));
  EXPECT_FALSE(drawn.inputs.contains("dfinal_state")) << "absent unless given";

  // What there is to say of a file that also has this tensor.
  const auto error_with = [](const Operator& definition, const std::string& name, const Shape& shape, double value) {
    InputFile file;
    file.add(name, Dtype::fp32, shape, value).add_rest(1, 1, 4, 8);
    if (name != "do") file.add("do", Dtype::fp32, {1, 1, 4, 8});
    try {
      make_problem(definition, {.input_file = file.write()});
    } catch (const UsageError& error) {
      return std::string(error.what()).substr(file.path().size());
    }
    return std::string();
  };
  EXPECT_EQ(error_with(backward, "dfinal_state", {1, 1, 8}, 1), "");
  EXPECT_EQ(error_with(backward, "do", {1, 1, 5, 8}, 1), ": do [1, 1, 5, 8] has L = 5, but q has 4");
  EXPECT_EQ(error_with(backward, "do", {1, 1, 4, 8}, NAN), ": do[0, 0, 0, 0] = nan: is not finite");
  EXPECT_EQ(error_with(attention().backward(""), "dfinal_state", {1, 1, 8}, 1),
            ": dfinal_state is of no use to attention --backward: it has no final state");
}

}  // namespace
}  // namespace tutorial
