/// @file
/// beta outside of [0, 1] is refused, with the first of them named; keys that are too long are warned of.

#include <algorithm>
#include <cstdio>

#include "05_deltanet_wy/test/stages.hpp"
#include "common/error.hpp"
#include "common/safetensors.hpp"
#include "common/test/temporary_folder.hpp"

namespace tutorial {
namespace {

/// What is said of a file with this beta [1, 2, 3].
std::string refusal(const Tensor& beta) {
  const TemporaryFolder folder;
  const std::string path = folder / "beta.safetensors";
  Tensor ones(Dtype::fp32, {1, 2, 3, 4});  // for q, k and v
  fill(ones, 1.0f);
  write_safetensors(path, {{"q", &ones}, {"k", &ones}, {"v", &ones}, {"beta", &beta}}, {});
  std::string message;
  try {
    make_problem(delta_rule_operator(), {.input_file = path});
  } catch (const UsageError& error) {
    message = error.what();
  }
  return message;
}

TEST(InputTest, BetaOutsideOfZeroToOneIsRefused) {
  Tensor beta(Dtype::fp32, {1, 2, 3});
  fill(beta, 0.5f);
  EXPECT_EQ(refusal(beta), "");
  beta.elements<float>()[4] = 1;
  beta.elements<float>()[5] = 0;
  EXPECT_EQ(refusal(beta), "");
  beta.elements<float>()[4] = 2.25f;
  EXPECT_NE(refusal(beta).find("beta[0, 1, 1] = 2.25: must be between 0 and 2"), std::string::npos) << refusal(beta);
  beta.elements<float>()[2] = -1e-30f;
  EXPECT_NE(refusal(beta).find("beta[0, 0, 2] = -1"), std::string::npos) << refusal(beta);
}

TEST(InputTest, LongKeysAreWarnedOf) {
  Problem problem = drawn(1, 2, 70, 48, 16);
  EXPECT_EQ(delta_rule_operator().note_on(problem), "") << "length 1, rounded to bf16";
  const auto k = problem.inputs.at("k").elements<float>();
  for (std::size_t i = 99 * 48; i < 100 * 48; ++i) k[i] *= 3;
  const std::string note = delta_rule_operator().note_on(problem);
  EXPECT_NE(note.find("keys are up to 3"), std::string::npos) << note;
  EXPECT_EQ(note.find('\n'), std::string::npos);
  EXPECT_EQ(normalized_operator().note_on(drawn(1, 2, 70, 48, 16, 64, normalized_operator())), "");
}

// As chapter 03's gla: g of a file may be in bf16, in every form, and is the number that it stands for.
TEST(InputTest, GatesInBf16AreTaken) {
  for (const char* label : {"gated_delta_rule", "kda"}) {
    for (const char* form : {"", "normalize-keys", "backward"}) {
      const Operator& definition = find_operator(label, form);
      SCOPED_TRACE(definition.label());
      Problem problem = drawn(1, 2, 70, 16, 16, 64, definition);
      round_to_bf16(problem.inputs.at("g"));
      const Tensor g = problem.inputs.at("g").to(Dtype::bf16);
      const TemporaryFolder folder;
      const std::string path = folder / "gates.safetensors";
      std::vector<NamedTensor> tensors;
      for (const auto& [name, tensor] : problem.inputs) tensors.push_back({name, name == "g" ? &g : &tensor});
      write_safetensors(path, tensors, {});
      const Problem read = make_problem(definition, {.input_file = path});
      for (const Stage& stage : definition.stages()) {
        if (!why_not(definition, stage, problem).empty()) continue;
        const Outputs expected = evaluate(definition, stage, problem), outputs = evaluate(definition, stage, read);
        for (const auto& [name, tensor] : expected) {
          EXPECT_TRUE(std::ranges::equal(outputs.at(name).elements<float>(), tensor.elements<float>()))
              << stage.name << ": " << name;
        }
      }
    }
  }
}

// As a user sees it; it does not change the exit status.
TEST(InputTest, TheWarningStandsBelowTheTable) {
  Problem problem = drawn(1, 1, 9, 16, 16);
  for (float& x : problem.inputs.at("k").elements<float>()) x *= 1.25f;
  const TemporaryFolder folder;
  const std::string path = folder / "long_keys.safetensors";
  std::vector<NamedTensor> tensors;
  for (const auto& [name, tensor] : problem.inputs) tensors.push_back({name, &tensor});
  write_safetensors(path, tensors, {});
  const auto run = [&](const char* more) {
    const std::string command = "'" CHAPTER_EXECUTABLE
                                "' --cpu-only --operator delta_rule --stage recurrent --input '" +
                                path + "' " + more + " 2>&1";
    std::string text;
    FILE* pipe = popen(command.c_str(), "r");
    for (int c; pipe && (c = std::fgetc(pipe)) != EOF;) text += char(c);
    EXPECT_TRUE(pipe && pclose(pipe) == 0) << text;
    return text;
  };
  EXPECT_NE(run("").find("warning: keys are up to 1.25 long"), std::string::npos) << run("");
  EXPECT_EQ(run("--normalize-keys").find("warning"), std::string::npos);
}

}  // namespace
}  // namespace tutorial
