/// @file
/// The options of `decode`, the tile that it picks, its parts, and the bytes that it states.

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <vector>

#include "06_scan/decode/requirements.hpp"
#include "06_scan/decode/tokens.hpp"
#include "06_scan/test/decode_stages.hpp"
#include "common/chapter/machine.hpp"
#include "common/device/device.hpp"
#include "common/parts.hpp"
#include "common/safetensors.hpp"
#include "common/test/temporary_folder.hpp"

namespace tutorial {
namespace {

/// The chapter's exit status.
int run(const std::string& options, std::string& text) {
  FILE* pipe = popen(("'" CHAPTER_EXECUTABLE "' " + options + " 2>&1").c_str(), "r");
  if (!pipe) throw std::runtime_error("cannot run the chapter");
  text.clear();
  for (int c; (c = std::fgetc(pipe)) != EOF;) text += char(c);
  return pclose(pipe) / 256;
}

TEST(DecodeInputTest, WhatDoesNotFitIsOneLine) {
  std::string text;
  const auto expect_refused = [&](const std::string& options, const std::string& message) {
    EXPECT_EQ(run(options, text), 2) << text;
    EXPECT_NE(text.find(message), std::string::npos) << text;
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  };
  for (const std::string form : {"", "--gla ", "--delta-rule ", "--gated-delta-rule ", "--kda ", "--normalized "}) {
    expect_refused("--operator decode " + form + "-L 8 --prompt 9",
                   "decode: P = 9: the prompt is a part of the L = 8 tokens");
  }
  expect_refused("--operator decode --prompt -1", "--prompt: -1 is not between 0 and");
  expect_refused("--operator scan --prompt 1", "--prompt: of no use to scan");
  expect_refused("--operator scan --gla", "--gla: of no use to scan");
  expect_refused("--operator decode --gla --kda", "--gla and --kda: choose one");
  expect_refused("--operator decode --input " GOLDEN_FOLDER "/simple_gla.safetensors --prompt 71", "P = 71");
  expect_refused("--operator decode --kda --input " GOLDEN_FOLDER "/gated_delta_rule.safetensors",
                 "g [2, 1, 70] has 3 dimensions, not the 4 of [B, H, L, Dk]");
  expect_refused("--operator decode --gated-delta-rule --input " GOLDEN_FOLDER "/kda.safetensors",
                 "g [2, 1, 70, 40] has 4 dimensions, not the 3 of [B, H, L]");
}

// As in chapters 03 and 05: g of a file may be in bf16, and is the number that it stands for.
TEST(DecodeInputTest, GatesInBf16AreTaken) {
  for (const char* label : {"decode --gla", "decode --gated-delta-rule", "decode --kda"}) {
    SCOPED_TRACE(label);
    const Operator& definition = decode_operator(label);
    Problem problem = drawn_tokens(definition, 1, 2, 9, 5, 16, 16);
    round_to_bf16(problem.inputs.at("g"));
    const Tensor g = problem.inputs.at("g").to(Dtype::bf16);
    const TemporaryFolder folder;
    const std::string path = folder / "gates.safetensors";
    std::vector<NamedTensor> tensors;
    for (const auto& [name, tensor] : problem.inputs) tensors.push_back({name, name == "g" ? &g : &tensor});
    write_safetensors(path, tensors, {});
    const Problem read = make_problem(definition, {.sizes = {{"P", 5}}, .input_file = path});
    for (const Stage& stage : definition.stages()) {
      const Outputs expected = evaluate(definition, stage, problem), outputs = evaluate(definition, stage, read);
      for (const auto& [name, tensor] : expected) {
        EXPECT_TRUE(std::ranges::equal(outputs.at(name).elements<float>(), tensor.elements<float>()))
            << stage.name << ": " << name;
      }
    }
  }
}

TEST(DecodeInputTest, ThePromptIsShown) {
  std::string text;
  ASSERT_EQ(run("--operator decode --stage step -L 6 --prompt 4 -B 1 -H 1 --repeat 1", text), 0) << text;
  EXPECT_NE(text.find(" P=4 "), std::string::npos) << text;
  ASSERT_EQ(run("--operator decode --stage step -L 6 --prompt 0 -B 1 -H 1 --repeat 1", text), 0) << text;
  EXPECT_NE(text.find(" P=0 "), std::string::npos) << text;
}

// One token has no prompt; of a sequence two thirds are one.
TEST(DecodeInputTest, TheDefaultPrompt) {
  const Operator& definition = decode_operator("decode");
  EXPECT_EQ(plan_problem(definition, {}).sizes.at("L"), 1);
  EXPECT_EQ(plan_problem(definition, {}).sizes.at("P"), 0);
  EXPECT_EQ(plan_problem(definition, {.modest = true}).sizes.at("P"), 16);
}

TEST(DecodeInputTest, TokensIsAnOption) {
  std::string text;
  const std::string stage = "--operator decode --stage recurrent -L 2 --repeat 1 --cpu-only";
  ASSERT_EQ(run(stage, text), 0);
  EXPECT_EQ(text.find("decode_tokens"), std::string::npos);
#if TUTORIAL_EMULATOR
  const Demonstration shown = decode::tokens();
  EXPECT_TRUE(shown.passed);
  EXPECT_NE(shown.text.find("There is nothing to time without a GPU."), std::string::npos) << shown.text;
  EXPECT_NE(shown.text.find("kda                1024"), std::string::npos) << shown.text;
  ASSERT_EQ(run(stage + " --tokens", text), 0);
  EXPECT_NE(text.find("There is nothing to time"), std::string::npos) << text;
#endif
}

TEST(DecodeInputTest, ManyStatesHaveWideTiles) {
  decode::Bf16Arguments a{};
  a.B = a.H = a.L = 1;
  a.Dk = a.Dv = 128;  // four wide tiles
  EXPECT_EQ(decode::select_tile(a), decode::Tile::narrow);
  a.B = multiprocessor_count() - 1;
  EXPECT_EQ(decode::select_tile(a), decode::Tile::narrow);
  a.B = multiprocessor_count();
  EXPECT_EQ(decode::select_tile(a), decode::Tile::wide);
}

TEST(DecodeInputTest, WhatIsUnsupported) {
  decode::Bf16Arguments a{};
  a.B = a.H = a.L = 1;
  a.Dk = a.Dv = 256;
  EXPECT_EQ(decode::dispatch_unsupported<decode::Rule::gla>(a), "");
  a.Dk = 1024;
  EXPECT_EQ(decode::dispatch_unsupported<decode::Rule::gla>(a), "");
  a.Dk = 1025;
  EXPECT_NE(decode::dispatch_unsupported<decode::Rule::gla>(a).find("Dk > 1024"), std::string::npos);
  a.Dk = 16;
  a.B = a.H = 1 << 14;
  EXPECT_NE(decode::dispatch_unsupported<decode::Rule::gla>(a).find("the grid"), std::string::npos);
}

TEST(DecodeInputTest, PromptAndTokensAreParts) {
  const Operator& definition = decode_operator("decode --delta-rule");
  const auto parts = [&](std::int64_t P) {
    std::string names;
    const PartListener listener([&](const char* name) { names += std::string(name) + " "; });
    evaluate(definition, find_stage(definition, "dispatch"), drawn_tokens(definition, 1, 1, 4, P, 16, 16));
    return names;
  };
  EXPECT_EQ(parts(0), "");
  EXPECT_EQ(parts(3), "prompt tokens ");
  EXPECT_EQ(parts(4), "");
}

#if TUTORIAL_EMULATOR
TEST(DecodeMovedTest, IsWhatIsCounted) {
  for (const char* label : kDecodeLabels) {
    const Operator& definition = decode_operator(label);
    for (const auto& [name, P] : {std::pair<const char*, std::int64_t>{"step", 0},
                                  {"step", 2},
                                  {"dispatch", 0},
                                  {"dispatch", 2},
                                  {"dispatch", 4}}) {
      const Stage& stage = find_stage(definition, name);
      for (const bool has_states : {true, false}) {
        SCOPED_TRACE(definition.label() + " " + name + ", P " + std::to_string(P));
        Problem problem = drawn_tokens(definition, 2, 1, 4, P, 32, 48);
        if (!has_states) problem.inputs.erase("initial_state");
        if (!has_states) problem.inputs.erase("initial_z");
        StageTensors tensors(definition, problem, Processor::gpu, Dtype::bf16, Dtype::fp32);
        const Call call = tensors.call();
        reset_kernel_counts();
        stage.run(call);
        const KernelCounts counts = kernel_counts();
        const bool says_nothing = P > 0 && definition.form() == "normalized";
        EXPECT_EQ(double(stage.bytes_moved(call)), says_nothing ? -1 : counts.bytes_read + counts.bytes_written);
      }
    }
  }
}
#endif

// With one tile a token's blocks move what token_bytes() says.
TEST(DecodeMovedTest, ATokenMovesItsStateTwice) {
  decode::Bf16Arguments a{};
  a.B = 3, a.H = 2, a.L = 1, a.Dk = 32, a.Dv = 8;
  float one = 0;
  a.initial_state.data = a.initial_z = &one;  // there is one
  for (const std::int64_t bytes :
       {decode::dispatch_bytes_moved<decode::Rule::simple_gla>(a) -
            decode::token_bytes(decode::Rule::simple_gla, 6, 32, 8),
        decode::dispatch_bytes_moved<decode::Rule::gla>(a) - decode::token_bytes(decode::Rule::gla, 6, 32, 8),
        decode::dispatch_bytes_moved<decode::Rule::delta_rule>(a) -
            decode::token_bytes(decode::Rule::delta_rule, 6, 32, 8),
        decode::dispatch_bytes_moved<decode::Rule::gated_delta_rule>(a) -
            decode::token_bytes(decode::Rule::gated_delta_rule, 6, 32, 8),
        decode::dispatch_bytes_moved<decode::Rule::kda>(a) - decode::token_bytes(decode::Rule::kda, 6, 32, 8),
        decode::dispatch_bytes_moved<decode::Rule::normalized>(a) -
            decode::token_bytes(decode::Rule::normalized, 6, 32, 8)}) {
    EXPECT_EQ(bytes, 0);
  }
}

}  // namespace
}  // namespace tutorial
