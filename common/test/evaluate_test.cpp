/// @file
/// Stages in memory: types, strides, what is absent, what was not written.

#include "common/chapter/evaluate.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <utility>

#include "common/chapter/chapter.hpp"
#include "common/chapter/input_rounding.hpp"
#include "common/chapter/run_operator.hpp"
#include "common/compare.hpp"
#include "common/device/error.hpp"
#include "common/test/toy_chapter.hpp"

namespace tutorial {
namespace {

const Chapter& toys() {
  static const Chapter chapter = tutorial::chapter();
  return chapter;
}
const Operator& running_sum() {
  return toys().operators()[0];
}
const Operator& scaling() {
  return toys().operators()[1];
}

TEST(Evaluate, StagesAgreeInEveryLayout) {
  const Problem problem = make_problem(running_sum(), {.sizes = {{"B", 3}, {"H", 2}, {"L", 5}, {"Dv", 7}}, .seed = 1});
  for (const Layout layout : {Layout{}, Layout{true, 0}, Layout{false, 3}, Layout{true, 8}}) {
    for (const Stage& stage : running_sum().stages()) {
      const Outputs out = evaluate(running_sum(), stage, problem, layout);
      const Outputs reference = evaluate_reference(running_sum(), problem, stage.dtype);
      ASSERT_EQ(out.size(), 2u);
      for (const auto& [name, tensor] : out) {
        const Comparison comparison = compare(tensor, reference.find(name)->second);
        EXPECT_TRUE(comparison.within(stage.dtype == Dtype::bf16 ? 1e-2 : 1e-6))
            << stage.name << describe(comparison, name);
      }
    }
  }
}

// With the inputs of a file, which are not rounded beforehand, the reference of a bf16 stage sees what the stage sees.
TEST(Evaluate, ReferenceTakesTheInputsOfTheStage) {
  Problem problem = make_problem(running_sum(), {.sizes = {{"L", 3}}, .seed = 1});
  for (float& x : problem.inputs.find("x")->second.elements<float>()) x = 1.0f + 0x1p-9f;  // 1 in bf16
  problem.inputs.find("g")->second.fill_bytes(0);
  const double exact = evaluate_reference(running_sum(), problem).find("final_state")->second.value(0);
  const double rounded = evaluate_reference(running_sum(), problem, Dtype::bf16).find("final_state")->second.value(0);
  EXPECT_FLOAT_EQ(static_cast<float>(exact), 3 * (1.0f + 0x1p-9f));
  EXPECT_EQ(rounded, 3);
}

TEST(Evaluate, AbsentTensorsAreNull) {
  const Problem problem = make_problem(running_sum(), {.seed = 1, .modest = true});
  StageTensors placement(running_sum(), problem, Processor::cpu, Dtype::fp32, Dtype::fp32);
  const Call call = placement.call();
  EXPECT_TRUE(call.has("x"));
  EXPECT_FALSE(call.has("initial_state"));
  EXPECT_EQ(call.data<const float>("initial_state"), nullptr);
  EXPECT_EQ(call.view<const float>("nonsense").data, nullptr);
  EXPECT_NE(call.data<float>("final_state"), nullptr);
  EXPECT_EQ(placement.graph_call().data<float>("final_state"), nullptr);
}

TEST(Evaluate, CallsRefuseWrongTypesAndNames) {
  const Problem problem = make_problem(running_sum(), {.seed = 1, .modest = true});
  StageTensors placement(running_sum(), problem, Processor::cpu, Dtype::fp32, Dtype::fp32);
  const Call call = placement.call();
  EXPECT_THROW(call.view<const __nv_bfloat16>("x"), std::logic_error);
  EXPECT_THROW(call.view<float>("x"), std::logic_error);  // an input
  EXPECT_THROW(call.size("Z"), std::logic_error);
}

TEST(Evaluate, StridesFollowTheDimensions) {
  const Problem problem = make_problem(running_sum(), {.sizes = {{"B", 2}, {"H", 3}, {"L", 5}, {"Dv", 7}}, .seed = 1});
  StageTensors packed(running_sum(), problem, Processor::cpu, Dtype::fp32, Dtype::fp32);
  const auto x = packed.call().view<const float>("x");
  EXPECT_EQ(x.stride_b, 105);
  EXPECT_EQ(x.stride_h, 35);
  EXPECT_EQ(x.stride_l, 7);
  const auto g = packed.call().view<const float>("g");
  EXPECT_EQ(g.stride_b, 15);
  EXPECT_EQ(g.stride_h, 5);
  EXPECT_EQ(g.stride_l, 1);
  StageTensors spread(running_sum(), problem, Processor::cpu, Dtype::fp32, Dtype::fp32, {true, 2});
  const auto y = spread.call().view<const float>("x");
  EXPECT_EQ(y.stride_b, 135);
  EXPECT_EQ(y.stride_h, 9);
  EXPECT_EQ(y.stride_l, 27);
  EXPECT_TRUE(std::isnan(y.row(0, 0, 0)[7]));  // between the rows
}

TEST(Evaluate, UnwrittenElementsAreNan) {
  const Problem problem = make_problem(scaling(), {.seed = 1});
  const Outputs out = evaluate(scaling(), *scaling().find("unwritten"), problem);
  EXPECT_TRUE(std::isnan(out.find("o")->second.value(out.find("o")->second.size() - 1)));
  EXPECT_FALSE(std::isnan(out.find("o")->second.value(0)));
}

// Runs a stage as a chapter does, timed `repeat` times, and prints nothing.
StageResult run_quietly(const Operator& definition, const Problem& problem, const char* stage, int repeat) {
  RunSettings settings;
  settings.repeat = repeat;
  settings.warmup = 0;
  std::FILE* const nowhere = std::fopen("/dev/null", "w");
  const Terminal terminal(nowhere);
  Progress progress(terminal);
  StageResult result = OperatorRun(definition, problem, settings, nullptr, progress).run(*definition.find(stage));
  std::fclose(nowhere);
  return result;
}

std::string calls;  // of a stage that is over several devices, in their order

// The inputs are shared out before each run. The outputs are collected only before they are looked at.
TEST(Evaluate, StagesMayShareOutAndCollect) {
  Operator definition = running_sum();
  definition.stage({.name = "shared",
                    .run =
                        +[](const RunningSum<float>& a) {
                          calls += "run ";
                          sum_plain(a);
                        },
                    .share_out = +[](const RunningSum<float>&) { calls += "share "; },
                    .collect = +[](const RunningSum<float>&) { calls += "collect "; }});
  const Problem problem = make_problem(definition, {.sizes = {{"L", 3}}, .seed = 1});
  evaluate(definition, *definition.find("shared"), problem);
  EXPECT_EQ(std::exchange(calls, ""), "share run collect ");

  EXPECT_EQ(run_quietly(definition, problem, "shared", 2).failure, "");
  // Once to check, twice for the time. Its parts have no times.
  EXPECT_EQ(std::exchange(calls, ""), "share run collect share run share run collect ");

  const StageResult checked = run_quietly(definition, problem, "shared", 0);
  EXPECT_TRUE(checked.passed()) << checked.failure;
  EXPECT_FALSE(checked.times);
  EXPECT_EQ(calls, "share run collect ");
}

// Which kernel a stage chooses, and so its memory, may depend on how its tensors lie.
TEST(Evaluate, MemoryIsThatOfTheTensorsOfTheRun) {
  Operator definition = running_sum();
  definition.stage({.name = "strided", .run = sum_plain, .memory = +[](const RunningSum<float>& a) -> std::int64_t {
                      return a.x.stride_l;
                    }});
  const Problem problem = make_problem(definition, {.sizes = {{"L", 3}, {"Dv", 7}}, .seed = 1});
  EXPECT_EQ(run_quietly(definition, problem, "strided", 1).memory, 7);
}

// An output that a stage is without is compared with nothing: neither with the reference, nor by the stage after it.
TEST(Evaluate, StagesMayBeWithoutAnOutput) {
  Operator definition = running_sum();
  const auto partial = +[](const RunningSum<float>& a) {
    RunningSum<float> without_state = a;
    without_state.final_state = nullptr;
    sum_plain(without_state);
  };
  definition.stage({.name = "partial", .run = partial, .without = {"final_state"}})
      .stage({.name = "silent", .run = partial});
  definition.stage({.name = "whole", .run = sum_plain});
  const Problem problem = make_problem(definition, {.sizes = {{"L", 3}}, .seed = 1});
  const Outputs outputs = evaluate(definition, *definition.find("partial"), problem);
  EXPECT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs.count("o"), 1u);

  RunSettings settings;
  settings.repeat = 1;
  settings.keep_outputs = true;
  std::FILE* const nowhere = std::fopen("/dev/null", "w");
  const Terminal terminal(nowhere);
  Progress progress(terminal);
  OperatorRun run(definition, problem, settings, nullptr, progress);
  const StageResult first = run.run(*definition.find("partial"));
  EXPECT_EQ(first.failure, "");
  EXPECT_EQ(first.outputs->size(), 1u);
  EXPECT_NE(run.run(*definition.find("silent")).failure.find("final_state[0, 0, 0] was never written"),
            std::string::npos);
  const StageResult whole = run.run(*definition.find("whole"));
  EXPECT_EQ(whole.failure, "");
  EXPECT_EQ(whole.checked_against, "partial");
  EXPECT_EQ(whole.error, 0);
  std::fclose(nowhere);
}

// A running sum over one position, times a factor.
template <class T, int kPercent>
void scaled_by(const RunningSum<T>& a) {
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) {
      for (int j = 0; j < a.Dv; ++j) {
        const float sum = kPercent / 100.0f * static_cast<float>(a.x.row(b, h, 0)[j]);
        a.o.row(b, h, 0)[j] = T(a.scale * sum);
        a.final_state[(b * a.H + h) * a.Dv + j] = sum;
      }
    }
  }
}

// Stages in bf16 have a reference of their own, half as large again; the comparison with the stage before, which is in
// fp32, allows for what is between the two.
TEST(Evaluate, StagesInBf16MayHaveTheirOwnReference) {
  Operator definition = running_sum();
  definition.bf16_reference(scaled_by<float, 150>);
  definition.stage({.name = "half", .dtype = Dtype::bf16, .run = scaled_by<__nv_bfloat16, 150>});
  definition.stage({.name = "bf16_wrong", .dtype = Dtype::bf16, .run = scaled_by<__nv_bfloat16, 100>});
  definition.stage({.name = "whole", .run = scaled_by<float, 100>});
  definition.stage({.name = "whole_wrong", .run = scaled_by<float, 150>});
  definition.stage(
      {.name = "lenient", .run = scaled_by<float, 101>, .tolerance = [](const Sizes& s) { return 0.02 / s.at("L"); }});
  const Problem problem = make_problem(definition, {.sizes = {{"L", 1}}, .seed = 1});
  RunSettings settings;
  settings.repeat = 1;
  std::FILE* const nowhere = std::fopen("/dev/null", "w");
  const Terminal terminal(nowhere);
  Progress progress(terminal);
  OperatorRun run(definition, problem, settings, nullptr, progress);
  EXPECT_EQ(run.run(*definition.find("plain")).failure, "");
  const StageResult half = run.run(*definition.find("half"));
  EXPECT_EQ(half.failure, "");
  EXPECT_NEAR(*half.error, 0.5, 1e-2);
  EXPECT_LT(*half.reference_error, 1e-2);
  EXPECT_NE(run.run(*definition.find("bf16_wrong")).failure, "");
  EXPECT_EQ(run.run(*definition.find("whole")).failure, "");
  EXPECT_NE(run.run(*definition.find("whole_wrong")).failure, "");
  const StageResult lenient = run.run(*definition.find("lenient"));
  EXPECT_EQ(lenient.failure, "");
  EXPECT_EQ(lenient.tolerance, 0.02);
  std::fclose(nowhere);
}

// A running sum in fp32 whose final state is so many percent of what it should be.
template <int kPercent>
void with_state_scaled(const RunningSum<float>& a) {
  sum_plain(a);
  for (int i = 0; i < a.B * a.H * a.Dv; ++i) a.final_state[i] *= kPercent / 100.0f;
}

// The state is what a number and its opposite leave, 1/64 of them: so rounding both moves it 64 times as far as them.
TEST(Evaluate, ToleranceGrowsWithWhatRoundingTheInputsDoes) {
  Operator definition = running_sum();
  Problem problem = make_problem(definition, {.sizes = {{"B", 1}, {"H", 1}, {"L", 2}, {"Dv", 64}}, .seed = 1});
  for (const char* name : {"initial_state", "lengths"}) problem.inputs.erase(name);
  problem.inputs.find("g")->second.fill_bytes(0);
  const auto x = problem.inputs.find("x")->second.elements<float>();
  for (std::size_t j = 0; j < 64; ++j) {
    x[j] = 1;
    x[64 + j] = -1 - 1.0f / 64;
  }
  for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
    const Outputs found = amplification(definition, problem, dtype);
    EXPECT_LT(amplified(1, "o", dtype, found), 2);
    EXPECT_GT(amplified(1, "final_state", dtype, found), 40);
    EXPECT_LT(amplified(1, "final_state", dtype, found), 120);
  }
  const auto tolerance = [](const Sizes&) { return 1e-2; };
  definition.stage({.name = "near", .run = with_state_scaled<120>, .tolerance = tolerance});
  definition.stage({.name = "far", .run = with_state_scaled<300>, .tolerance = tolerance});
  definition.stage({.name = "limited", .run = with_state_scaled<120>, .tolerance = tolerance, .most_where_alike = 5});
  EXPECT_NE(run_quietly(definition, problem, "limited", 1).failure, "");
  const StageResult near = run_quietly(definition, problem, "near", 1);
  EXPECT_EQ(near.failure, "");
  EXPECT_GT(near.tolerance, 0.4);
  EXPECT_NE(near.note.find("rounding the inputs once more"), std::string::npos) << near.note;
  EXPECT_NE(run_quietly(definition, problem, "far", 1).failure, "");
}

// Where 2 are left of terms of 10, a limit of 3 times the tolerance for the terms is one of 15 times for what is left.
TEST(Evaluate, TheLimitOfASumIsRelativeToItsTerms) {
  const Problem problem = make_problem(running_sum(), {.seed = 1});
  const auto number = [](float x) {
    Tensor tensor(Dtype::fp32, {1});
    tensor.elements<float>()[0] = x;
    return tensor;
  };
  Outputs reference;
  reference.emplace("o", number(2));
  const Stage stage{.most_where_alike = 1, .most_of_terms = 3};
  EXPECT_EQ(most_amplified(stage, problem, "o", reference), 1);
  reference.emplace(terms_of("o"), number(10));
  EXPECT_EQ(most_amplified(stage, problem, "o", reference), 15);
  reference.insert_or_assign("o", number(100));
  EXPECT_EQ(most_amplified(stage, problem, "o", reference), 1);
}

TEST(Evaluate, WritingBetweenTheRowsIsFound) {
  const Problem problem = make_problem(scaling(), {.seed = 1});
  Operator definition = scaling();
  definition.stage({.name = "outside", .run = scaling_outside});
  const Stage& outside = definition.stages().back();
  EXPECT_THROW(evaluate(definition, outside, problem, {.row_padding = 1}), std::runtime_error);
}

TEST(Evaluate, RefusedLaunchesThrow) {
  const Problem problem = make_problem(scaling(), {.seed = 1});
  EXPECT_THROW(evaluate(scaling(), *scaling().find("refused"), problem), CudaError);
}

TEST(Evaluate, LimitsNameTheReason) {
  const Stage& kernel = *running_sum().find("kernel");
  EXPECT_EQ(why_not(running_sum(), kernel, make_problem(running_sum(), {.sizes = {{"L", 2}, {"Dv", 64}}})), "");
  EXPECT_EQ(why_not(running_sum(), kernel, make_problem(running_sum(), {.sizes = {{"L", 2}, {"Dv", 65}}})),
            "Dv = 65 is above 64");
}

// x and o [1, 1, 4, 8], g [1, 1, 4], lengths [1], initial and final state [1, 1, 8], four bytes each.
TEST(Evaluate, MemoryIsCountedBeforeItIsTaken) {
  const Problem problem = plan_problem(running_sum(), {.sizes = {{"B", 1}, {"H", 1}, {"L", 4}, {"Dv", 8}}});
  const double inputs = 4 * (32 + 4 + 1 + 8);
  const double outputs = 4 * (32 + 8);
  const Stage* plain = running_sum().find("plain");
  const Stage* half = running_sum().find("kernel_bf16");
  Machine machine;
  const MemoryNeed cpu = memory_need(running_sum(), {plain, half}, problem, machine, false);
  EXPECT_EQ(cpu.host, 2 * (inputs + outputs) + 2 * outputs);  // --cpu-only
  EXPECT_EQ(cpu.gpu, 0);
  machine.has_gpu = true;
  const MemoryNeed both = memory_need(running_sum(), {plain, half}, problem, machine, true);
  EXPECT_EQ(both.host + both.gpu, 2 * (inputs + outputs) + 2 * outputs + (inputs + outputs) / 2);
  EXPECT_EQ(both.gpu, kEmulated ? 0 : (inputs + outputs) / 2);
}

// What stages need beside the tensors: on each side that of the stage which needs most, if it is going to run.
TEST(Evaluate, MemoryOfStagesIsCounted) {
  Operator definition = running_sum();
  definition.stage(
      {.name = "kilobyte", .run = sum_plain, .memory = +[](const RunningSum<float>&) -> std::int64_t { return 1000; }});
  definition.stage({.name = "more", .run = sum_plain, .memory = +[](const RunningSum<float>& a) -> std::int64_t {
                      return 1000 * a.L;
                    }});
  definition.stage({.name = "scores",
                    .processor = Processor::gpu,
                    .run = sum_kernel,
                    .unsupported = sum_kernel_unsupported,
                    .memory = sum_memory});
  const Stage* plain = definition.find("plain");
  const Stage* scores = definition.find("scores");
  Machine machine;
  machine.has_gpu = true;
  const auto need = [&](const std::vector<const Stage*>& stages, const Sizes& sizes) {
    const MemoryNeed all = memory_need(definition, stages, plan_problem(definition, {.sizes = sizes}), machine, false);
    return std::pair(all.host, all.gpu);
  };
  const Sizes sizes{{"B", 2}, {"H", 3}, {"L", 4}, {"Dv", 8}};
  const double host = need({plain}, sizes).first;
  EXPECT_EQ(need({definition.find("more"), definition.find("kilobyte")}, sizes).first, host + 4000);
  const auto tensors = need({plain, definition.find("kernel")}, sizes);
  const auto all = need({plain, definition.find("kilobyte"), scores}, sizes);
  EXPECT_EQ(all.first + all.second, tensors.first + tensors.second + 1000 + 4 * 2 * 3 * 4 * 4);
  EXPECT_EQ(all.second, kEmulated ? 0 : tensors.second + 4 * 2 * 3 * 4 * 4);
  const Sizes wide{{"L", 4}, {"Dv", 65}};
  EXPECT_EQ(need({plain, scores}, wide), need({plain, definition.find("kernel")}, wide));  // skipped
  machine.has_gpu = false;
  EXPECT_EQ(need({plain, scores}, sizes), need({plain}, sizes));
}

}  // namespace
}  // namespace tutorial
