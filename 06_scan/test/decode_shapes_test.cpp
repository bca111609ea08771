/// @file
/// Every stage of `decode` over odd shapes, prompts and memory layouts, against the double reference; and the states in
/// place.

#include <cuda_runtime.h>

#include <vector>

#include "06_scan/test/decode_stages.hpp"
#include "common/device/buffer.hpp"

namespace tutorial {
namespace {

void expect_match(std::int64_t B, std::int64_t H, std::int64_t L, std::int64_t P, std::int64_t Dk, std::int64_t Dv,
                  const Layout& layout = {}) {
  SCOPED_TRACE("L " + std::to_string(L) + ", P " + std::to_string(P) + ", Dk " + std::to_string(Dk) + ", Dv " +
               std::to_string(Dv));
  for (const char* label : kDecodeLabels) {
    const Operator& definition = decode_operator(label);
    expect_tokens_match(definition, drawn_tokens(definition, B, H, L, P, Dk, Dv), layout);
  }
}

// Few threads: for ThreadSanitizer, too.
TEST(DecodeShapesTest, Small) {
  const Operator& delta_rule = decode_operator("decode --delta-rule");
  const Operator& normalized = decode_operator("decode --normalized");
  expect_tokens_match(delta_rule, drawn_tokens(delta_rule, 1, 1, 2, 0, 20, 12));
  expect_tokens_match(normalized, drawn_tokens(normalized, 1, 1, 3, 0, 20, 12));
}

// From one token to the whole sequence as a prompt.
TEST(DecodeShapesTest, Lengths) {
  for (const std::int64_t L : {1, 2, 3, 17, 66}) {
    for (const std::int64_t P : std::set<std::int64_t>{0, 1, L / 2, L - 1, L}) {
      if (L - P < 20) expect_match(1, 2, L, P, 32, 32);
    }
  }
  expect_match(1, 1, 66, 0, 16, 16);
}

// Not only within rounding: the updates are replayed in the order and the precision in which they were made.
TEST(DecodeShapesTest, ReplayIsStepInRegistersBitForBit) {
  for (const char* label : kDecodeLabels) {
    SCOPED_TRACE(label);
    const Operator& definition = decode_operator(label);
    for (const auto& [L, P] : {std::pair<std::int64_t, std::int64_t>{35, 0}, {20, 3}, {17, 0}, {16, 0}, {1, 0}}) {
      const Problem problem = drawn_tokens(definition, 2, 1, L, P, 36, 40);
      const Outputs each = evaluate(definition, find_stage(definition, "step_in_registers"), problem);
      const Outputs replayed = evaluate(definition, find_stage(definition, "replay"), problem);
      for (const auto& [name, out] : replayed) EXPECT_EQ(compare(out, each.at(name)).error, 0) << name << ", L " << L;
    }
  }
}

TEST(DecodeShapesTest, Widths) {
  for (const auto& [Dk, Dv] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                               {3, 65},
                               {65, 3},
                               {16, 20},
                               {33, 32},
                               {64, 40},
                               {128, 128},
                               {100, 31},
                               {130, 36},
                               {256, 16},
                               {16, 256}}) {
    expect_match(1, 1, 3, 0, Dk, Dv);
    expect_match(1, 1, 4, 2, Dk, Dv);
  }
}

// Keys for which only dispatch and prefill have room; with a prompt if the chapter's dispatch does.
TEST(DecodeShapesTest, WideKeys) {
  for (const char* label : kDecodeLabels) {
    const Operator& definition = decode_operator(label);
    for (const std::int64_t Dk : {257, 300, 1024}) {
      for (const std::int64_t P : {0, 2}) {
        SCOPED_TRACE(std::string(label) + ", Dk " + std::to_string(Dk) + ", P " + std::to_string(P));
        const Problem problem = drawn_tokens(definition, 1, 2, 3, P, Dk, 12);
        const bool has_prompt = P == 0 || Dk <= 384 || std::string(label) != "decode --normalized";
        EXPECT_EQ(why_not(definition, find_stage(definition, "dispatch"), problem).empty(), has_prompt);
        EXPECT_GE(expect_supporting_stages_match(definition, problem), has_prompt ? 2 : 1);
      }
    }
  }
}

TEST(DecodeShapesTest, ManyHeads) {
  expect_match(7, 10, 1, 0, 16, 8);
  expect_match(33, 1, 2, 1, 16, 16);
}

// Heads inside tokens, as PyTorch's [B, L, H, D], with and without padding that leaves rows unaligned.
TEST(DecodeShapesTest, Strides) {
  for (const std::int64_t padding : {0, 3, 8}) {
    expect_match(2, 3, 5, 2, 32, 48, {.heads_inside = true, .row_padding = padding});
    expect_match(2, 1, 3, 0, 17, 20, {.heads_inside = false, .row_padding = padding});
  }
}

TEST(DecodeShapesTest, WithoutInitialStates) {
  for (const char* label : kDecodeLabels) {
    const Operator& definition = decode_operator(label);
    for (const std::int64_t P : {0, 2}) {
      Problem problem = drawn_tokens(definition, 2, 2, 4, P, 36, 20);
      problem.inputs.erase("initial_state");
      problem.inputs.erase("initial_z");
      expect_tokens_match(definition, problem);
    }
  }
}

// Keys of the normalised form that do not count: of the prompt, of the tokens after it, all of them.
TEST(DecodeShapesTest, KeyLengths) {
  const Operator& definition = decode_operator("decode --normalized");
  for (const std::int64_t P : {0, 4, 7}) {
    Problem problem = drawn_tokens(definition, 4, 1, 7, P, 16, 16);
    Tensor lengths(Dtype::int32, {4});
    const int values[] = {7, 5, 2, 0};
    std::copy_n(values, 4, lengths.elements<std::int32_t>().begin());
    problem.inputs.insert_or_assign("key_lengths", std::move(lengths));
    expect_tokens_match(definition, problem);
  }
}

// A prompt of any length, and then one token at a time, is one prefill over the whole sequence.
TEST(DecodeShapesTest, SplitAnywhereItIsOnePrefill) {
  constexpr std::int64_t L = 40;
  for (const char* label : kDecodeLabels) {
    const Operator& definition = decode_operator(label);
    const Outputs at_once =
        evaluate(definition, find_stage(definition, "prefill"), drawn_tokens(definition, 1, 2, L, L, 32, 32));
    for (const std::int64_t P : {0, 1, 16, 25, 39, 40}) {
      SCOPED_TRACE(definition.label() + ", prompt of " + std::to_string(P));
      const Problem problem = drawn_tokens(definition, 1, 2, L, P, 32, 32);
      for (const char* name : {"step", "step_in_registers", "dispatch"}) {
        expect_close(evaluate(definition, find_stage(definition, name), problem), at_once, 1e-2);
      }
    }
  }
}

/// Runs one token of `a` at a time, the state of the last as the state of the next.
template <decode::Rule kRule>
void expect_in_place(const char* label, decode::Tile tile) {
  SCOPED_TRACE(std::string(label) + ", " + std::to_string(int(tile)) + " columns");
  constexpr std::int64_t L = 5, Dk = 33, Dv = 36;
  const Operator& definition = decode_operator(label);
  const Problem problem = drawn_tokens(definition, 2, 2, L, 0, Dk, Dv);
  StageTensors at_once(definition, problem, Processor::gpu, Dtype::bf16, Dtype::fp32);
  decode::planned_step<kRule>(decode::Bf16Arguments::bind(at_once.call()), tile);

  StageTensors tensors(definition, problem, Processor::gpu, Dtype::bf16, Dtype::fp32);
  decode::Bf16Arguments a = decode::Bf16Arguments::bind(tensors.call());
  DeviceBuffer<float> second_z(std::size_t(2 * 2 * Dk));
  float* z[2] = {a.final_z, second_z.data()};
  a.L = 1;
  for (int t = 0; t < L; ++t) {
    a.final_z = z[(L - 1 - t) % 2];
    decode::planned_step<kRule>(a, tile);
    a.q.data += a.q.stride_l, a.k.data += a.k.stride_l, a.v.data += a.v.stride_l, a.o.data += a.o.stride_l;
    if (a.g.data) a.g.data += a.g.stride_l;
    if (a.beta.data) a.beta.data += a.beta.stride_l;
    a.initial_state = {a.final_state.data, a.final_state.stride_b, a.final_state.stride_h, a.final_state.stride_l};
    a.initial_z = a.final_z;
  }
  expect_close(tensors.download_outputs(), at_once.download_outputs(), 0);
}

TEST(DecodeShapesTest, StatesInPlace) {
  for (const decode::Tile tile : {decode::Tile::narrow, decode::Tile::wide}) {
    expect_in_place<decode::Rule::simple_gla>("decode", tile);
    expect_in_place<decode::Rule::gla>("decode --gla", tile);
    expect_in_place<decode::Rule::delta_rule>("decode --delta-rule", tile);
    expect_in_place<decode::Rule::gated_delta_rule>("decode --gated-delta-rule", tile);
    expect_in_place<decode::Rule::kda>("decode --kda", tile);
    expect_in_place<decode::Rule::normalized>("decode --normalized", tile);
  }
}

}  // namespace
}  // namespace tutorial
