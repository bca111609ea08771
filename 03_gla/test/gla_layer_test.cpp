/// @file
/// The layer: against flash-linear-attention's, over odd shapes and hard numbers, and what its files may hold.

#include <array>
#include <cmath>
#include <vector>

#include "03_gla/test/stages.hpp"
#include "common/device/stream.hpp"
#include "common/error.hpp"
#include "common/safetensors.hpp"
#include "common/test/peak_memory.hpp"
#include "common/test/temporary_folder.hpp"

namespace tutorial {
namespace {

const char* const kGolden = GOLDEN_FOLDER "/gla_layer.safetensors";

const Operator& layer() {
  return find_operator("gla_layer");
}

Problem layer_problem(std::int64_t B, std::int64_t H, std::int64_t L, std::int64_t Dk, std::int64_t Dv,
                      std::int64_t d_model = 48, std::int64_t rank = 16) {
  return make_problem(
      layer(), {.sizes = {{"B", B}, {"H", H}, {"L", L}, {"Dk", Dk}, {"Dv", Dv}, {"d_model", d_model}, {"rank", rank}},
                .seed = 5});
}

Outputs run(const char* stage, const Problem& problem) {
  return evaluate(layer(), find_stage(layer(), stage), problem);
}

void expect_match(const Problem& problem) {
  expect_stages_match(layer(), problem, {}, 3);
}

TEST(GlaLayerGoldenTest, EveryStageAgrees) {
  const Problem problem = make_problem(layer(), {.input_file = kGolden});
  Outputs expected;
  expected.insert_or_assign("y", SafetensorsFile(kGolden).read("y"));
  expect_close(evaluate_reference(layer(), problem), expected, 1e-5);
  for (const Stage& stage : layer().stages()) {
    SCOPED_TRACE(stage.name);
    EXPECT_EQ(why_not(layer(), stage, problem), "");
    expect_close(evaluate(layer(), stage, problem), expected, is_bf16(stage) ? 2e-2 : 1e-5);
  }
}

// Few threads, odd everything: for ThreadSanitizer, too.
TEST(GlaLayerShapesTest, Small) {
  expect_match(layer_problem(1, 2, 5, 3, 2, 6, 2));
}

TEST(GlaLayerShapesTest, Lengths) {
  for (const std::int64_t L : {1, 15, 16, 17, 65}) {
    for (const std::int64_t H : {1, 3}) {
      SCOPED_TRACE(testing::Message() << "L " << L << ", H " << H);
      expect_match(layer_problem(2, H, L, 8, 16));
    }
  }
}

// Of a head, and of x; H Dk around the 128 columns of a block, Dv around the 32 lanes of a warp.
TEST(GlaLayerShapesTest, Widths) {
  for (const auto& [H, Dk, Dv, d_model] : {std::array<std::int64_t, 4>{1, 1, 1, 1},
                                           {3, 43, 31, 48},
                                           {2, 64, 32, 7},
                                           {1, 127, 33, 130},
                                           {1, 129, 65, 20}}) {
    SCOPED_TRACE(testing::Message() << H << " heads of Dk " << Dk << ", Dv " << Dv << ", d_model " << d_model);
    expect_match(layer_problem(1, H, 20, Dk, Dv, d_model));
  }
}

TEST(GlaLayerShapesTest, Ranks) {
  for (const std::int64_t rank : {1, 7, 15, 17, 32, 40}) {
    SCOPED_TRACE(rank);
    expect_match(layer_problem(1, 2, 20, 8, 8, 48, rank));
  }
}

// flash-linear-attention's default layer has 4 heads of these widths.
TEST(GlaLayerShapesTest, WideHeads) {
  expect_match(layer_problem(1, 1, 70, 256, 512, 64));
}

// The heads of a position end within a block of four; sums that L does not divide begin anew in each batch entry.
TEST(GlaLayerShapesTest, Batches) {
  expect_match(layer_problem(3, 5, 7, 4, 6));
}

// Logits of -1e4 make gates of exp(-625), of 1e4 gates of 1, to the last bit.
TEST(GlaLayerNumbersTest, StrongGates) {
  for (const float bias : {-1e4f, 1e4f}) {
    SCOPED_TRACE(bias);
    Problem problem = layer_problem(2, 2, 70, 8, 16);
    fill(problem.inputs.at("gk_proj.1.bias"), bias);
    expect_match(problem);
  }
  Problem problem = layer_problem(2, 2, 70, 8, 16);
  const auto b = problem.inputs.at("gk_proj.1.bias").elements<float>();
  for (std::size_t i = 0; i < b.size(); i += 3) b[i] = -1e4f;
  expect_match(problem);
}

// sigmoid(z) of z around +-1000 is 0 or 1, though exp(1000) is infinite.
TEST(GlaLayerNumbersTest, StrongSwish) {
  Problem problem = layer_problem(1, 2, 33, 8, 16);
  for (float& w : problem.inputs.at("g_proj.weight").elements<float>()) w *= 1024;
  expect_match(problem);
}

// The norm of a row of zeros is that of eps: u and y are 0, not 0 / 0.
TEST(GlaLayerNumbersTest, Zeros) {
  Problem problem = layer_problem(1, 2, 20, 8, 16);
  fill(problem.inputs.at("x"), 0);
  for (const Stage& stage : layer().stages()) {
    const Outputs outputs = evaluate(layer(), stage, problem);
    for (const float y : outputs.at("y").elements<float>()) ASSERT_EQ(y, 0) << stage.name;
  }
}

/// Writes the golden file's weights to a file of their own, and more.
class GlaLayerFileTest : public testing::Test {
 protected:
  GlaLayerFileTest() {
    const SafetensorsFile golden(kGolden);
    for (const Input& input : layer().inputs()) {
      if (input.weight) tensors_.insert_or_assign(input.name, golden.read(input.name));
    }
  }

  const std::string& write(const Metadata& metadata = {}) {
    std::vector<NamedTensor> named;
    for (const auto& [name, tensor] : tensors_) named.push_back({name, &tensor});
    write_safetensors(path_, named, metadata);
    return path_;
  }

  /// What the user is told; "" where nothing is wrong.
  static std::string refusal(const ProblemRequest& request) {
    try {
      plan_problem(layer(), request);
      return "";
    } catch (const UsageError& error) {
      return error.what();
    }
  }

  std::map<std::string, Tensor> tensors_;
  TemporaryFolder folder_;
  std::string path_ = folder_ / "weights.safetensors";
};

// The number of heads is that of the norm's weight; x is drawn.
TEST_F(GlaLayerFileTest, ABareStateDictWillDo) {
  const Problem problem = make_problem(layer(), {.sizes = {{"B", 3}, {"L", 40}}, .seed = 1, .weights_file = write()});
  EXPECT_EQ(problem.sizes.at("H"), 2);
  EXPECT_EQ(problem.sizes.at("Dk"), 24);
  EXPECT_EQ(problem.inputs.at("x").shape(), (Shape{3, 40, 96}));
  expect_match(problem);
  EXPECT_EQ(refusal({.sizes = {{"H", 2}}, .weights_file = path_}), "");
}

// x from one file, weights from another, which come before those beside x: the golden y again.
TEST_F(GlaLayerFileTest, InputsAndWeightsFromTwoFiles) {
  write({{"num_heads", "2"}});
  const SafetensorsFile golden(kGolden);
  const Tensor x = golden.read("x");
  Tensor& unused = tensors_.at("o_proj.weight");
  fill(unused, 0);
  const std::string x_path = folder_ / "x.safetensors";
  write_safetensors(x_path, {{"x", &x}, {"o_proj.weight", &unused}}, {});
  const Problem problem = make_problem(layer(), {.input_file = x_path, .weights_file = path_});
  Outputs expected;
  expected.insert_or_assign("y", golden.read("y"));
  expect_close(run("gpu", problem), expected, 1e-5);
}

TEST_F(GlaLayerFileTest, MetadataSetsEpsAndNormalizer) {
  const auto y = [&](const Metadata& metadata, const char* stage) {
    return run(stage, make_problem(layer(), {.sizes = {{"L", 30}}, .seed = 1, .weights_file = write(metadata)}));
  };
  const auto size = [](const Outputs& outputs) {
    double sum = 0;
    for (const float value : outputs.at("y").elements<float>()) sum += double(value) * value;
    return std::sqrt(sum);
  };
  for (const char* stage : {"cpu", "gpu"}) {
    SCOPED_TRACE(stage);
    const Outputs usual = y({}, stage);
    expect_close(y({{"norm_eps", "1e-05"}, {"gate_logit_normalizer", "16"}}, stage), usual, 0);
    // Against eps the mean of the squares is nothing: u is o / 1000 and so on, and shrinks with the root of eps.
    const double large = size(y({{"norm_eps", "1e6"}}, stage)), larger = size(y({{"norm_eps", "4e6"}}, stage));
    EXPECT_LT(large, size(usual) / 100);
    EXPECT_NEAR(large / larger, 2, 1e-4);
    // Gates divided by infinity are 1, as those of a bias of 1e4.
    const Outputs open = y({{"gate_logit_normalizer", "1e30"}}, stage);
    EXPECT_GT(compare(open.at("y"), usual.at("y")).error, 1e-2);
    Tensor bias = tensors_.at("gk_proj.1.bias").to(Dtype::fp32);
    fill(tensors_.at("gk_proj.1.bias"), 1e4f);
    expect_close(y({}, stage), open, 1e-6);
    tensors_.insert_or_assign("gk_proj.1.bias", std::move(bias));
  }
}

TEST_F(GlaLayerFileTest, BadInputIsNamed) {
  write({{"num_heads", "2"}});
  EXPECT_EQ(refusal({.sizes = {{"H", 4}}, .weights_file = path_}),
            "H = 4 was asked for, but num_heads in the metadata has 2");
  write();
  EXPECT_EQ(refusal({.sizes = {{"H", 4}}, .weights_file = path_}),
            "gla_layer: value_dim = 96 is not H = 4 heads of Dv = 48");
  EXPECT_EQ(refusal({.sizes = {{"H", 5}}, .weights_file = path_}), "gla_layer: H = 5 does not divide key_dim = 48");
  EXPECT_EQ(refusal({.sizes = {{"H", 5}}, .modest = true}), "gla_layer: H = 5 does not divide key_dim = 64");
  EXPECT_EQ(refusal({.sizes = {{"H", 5}, {"Dk", 3}, {"Dv", 7}}, .modest = true}), "");
  EXPECT_EQ(refusal({.sizes = {{"Dv", 32}}, .weights_file = path_}),
            "Dv = 32 was asked for, but g_norm_swish_gate.weight has 48");
  write({{"norm_eps", "0"}});
  EXPECT_EQ(refusal({.weights_file = path_}), path_ + ": the norm_eps in its metadata, 0, must be above 0");
}

TEST_F(GlaLayerFileTest, BadWeightsAreNamed) {
  Tensor narrow(Dtype::fp32, {48, 95});
  fill(narrow, 1);
  tensors_.insert_or_assign("k_proj.weight", std::move(narrow));
  EXPECT_EQ(refusal({.weights_file = write()}),
            path_ + ": k_proj.weight [48, 95] has d_model = 95, but q_proj.weight has 96");
  tensors_.erase("k_proj.weight");
  EXPECT_EQ(refusal({.weights_file = write()}), path_ + ": lacks weights of gla_layer: k_proj.weight");
  tensors_.erase("o_proj.weight");
  EXPECT_EQ(refusal({.input_file = write()}), path_ + ": lacks weights of gla_layer: k_proj.weight, o_proj.weight");
}

TEST(GlaLayerTest, PartsAreTimed) {
  RunSettings settings;
  settings.machine.has_gpu = true;
  settings.repeat = 1;
  std::FILE* const nowhere = std::fopen("/dev/null", "w");
  const Terminal terminal(nowhere);
  Progress progress(terminal);
  const Problem problem = layer_problem(1, 1, 20, 8, 8);
  OperatorRun operator_run(layer(), problem, settings, nullptr, progress);
  for (const Stage& stage : layer().stages()) {
    const StageResult result = operator_run.run(stage);
    EXPECT_EQ(result.failure, "");
    std::vector<std::string> names;
    for (const auto& [name, times] : result.parts) {
      names.push_back(name);
      EXPECT_GT(times.median, 0) << stage.name << ", " << name;
    }
    EXPECT_EQ(names, (std::vector<std::string>{"projections", "gates", "gla", "norm and gate", "output"}));
  }
  std::fclose(nowhere);
}

// Nothing of the layer waits for the device or goes to the host, or a graph would refuse it; its matrices are found
// where they were, and a replay computes y anew.
TEST(GlaLayerTest, CanBeCaptured) {
  for (const char* name : {"gpu", "gpu_bf16"}) {
    SCOPED_TRACE(name);
    const Stage& stage = find_stage(layer(), name);
    const Problem problem = layer_problem(1, 2, 20, 8, 8);
    GpuTimer timer;
    StageTensors placement(layer(), problem, stage.processor, storage_of(stage), Dtype::fp32);
    const Call call = placement.call();
    int calls = 0;
    timer.time_in_graph(
        [&] {
          stage.run(call);
          if (calls++ == 0) placement.poison_outputs();  // after the first call; the others are captured
        },
        10.0);
    EXPECT_GT(calls, 1);
    expect_close(placement.download_outputs(), evaluate_reference(layer(), problem, stage.dtype),
                 tolerance_of(stage, problem.sizes));
  }
}

TEST(GlaLayerTest, TheCpuTakesTheMemoryThatItSays) {
  const Sizes sizes{{"B", 1}, {"H", 2}, {"L", 6000}, {"Dk", 16}, {"Dv", 32}, {"d_model", 96}, {"rank", 16}};
  expect_stated_memory(layer(), "cpu", sizes);
  expect_stated_memory(layer(), "the reference", sizes);
}

}  // namespace
}  // namespace tutorial
