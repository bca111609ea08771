#include "common/chapter/run_operator.hpp"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <set>
#include <utility>

#include "common/chapter/evaluate.hpp"
#include "common/chapter/input_rounding.hpp"
#include "common/compare.hpp"
#include "common/device/error.hpp"
#include "common/device/launch_config.hpp"
#include "common/device/stream.hpp"
#include "common/device/trace.hpp"
#include "common/error.hpp"
#include "common/parts.hpp"
#include "common/units.hpp"

namespace tutorial {
namespace {

// The worse of two errors; NaN is worse than any number.
void keep_worst(std::optional<double>& worst, double error) {
  if (!worst || !(std::isnan(*worst) || *worst >= error)) worst = error;
}

std::string describe_failure(const Comparison& comparison, const std::string& name, const std::string& against,
                             double tolerance) {
  if (!std::isfinite(comparison.error)) return describe(comparison, name);
  return fmt::format("{} differs from {} by {}, more than {}; at worst {}", name, against,
                     format_error(comparison.error), format_error(tolerance), describe(comparison, name));
}

TimingPlan plan_for(Processor processor, const RunSettings& settings) {
  TimingPlan plan;
  if (processor == Processor::cpu) {
    plan = {.warmup = 0, .least = 3, .most = 20, .budget_s = 2};  // the checked run has warmed up
  } else if (kEmulated) {
    plan = {.warmup = 0, .least = 1, .most = 1, .budget_s = 0};  // a time that says little
  } else {
    plan = {.warmup = 3, .least = 20, .most = 50, .budget_s = 0.5};
  }
  plan.warmup = settings.warmup.value_or(plan.warmup);
  if (settings.repeat) plan.least = plan.most = *settings.repeat;
  return plan;
}

// The time that the machine needs at least: every unit works beside the others.
std::optional<double> limit_ms(double bytes, const Work& work, const Roofline& roofline, Dtype dtype) {
  // A processor's registers hold half as many doubles as floats.
  const double fma_rate = dtype == Dtype::fp64 ? roofline.fma_flops_s / 2 : roofline.fma_flops_s;
  double seconds = 0;
  for (const auto& [amount, rate] : {std::pair(bytes, roofline.copy_bytes_s),
                                     {work.fma_flops, fma_rate},
                                     {work.tensor_flops, roofline.tensor_flops_s},
                                     {work.exponentials, roofline.exponentials_s}}) {
    if (rate > 0) seconds = std::max(seconds, amount / rate);
  }
  if (seconds == 0) return std::nullopt;
  return 1e3 * seconds;
}

// The problem before there are tensors.
Call sizes_alone(const Problem& problem) {
  return {problem.sizes, problem.scale, problem.parameters};
}

}  // namespace

double tolerance_of(const Stage& stage, const Sizes& sizes) {
  if (stage.tolerance) return stage.tolerance(sizes);
  if (size_of(stage.dtype) == 2) return 1e-2;
  // Rounding errors of a sum over time add up like a random walk.
  const auto L = sizes.find("L");
  const double length = L == sizes.end() ? 1 : static_cast<double>(L->second);
  return 1e-5 * std::sqrt(std::max(1.0, length / 4096));
}

OperatorRun::OperatorRun(const Operator& definition, const Problem& problem, const RunSettings& settings,
                         GpuTimer* timer, Progress& progress)
    : definition_(definition), problem_(problem), settings_(settings), timer_(timer), progress_(progress) {}

StageTensors& OperatorRun::tensors_for(Processor processor, Dtype dtype) {
  const std::pair key(processor, dtype);
  std::unique_ptr<StageTensors>& tensors = tensors_[key];
  if (!tensors) {
    const Layout layout{.heads_inside = problem_.heads_inside};
    tensors = std::make_unique<StageTensors>(definition_, problem_, processor, dtype, Dtype::fp32, layout);
  }
  return *tensors;
}

const Outputs& OperatorRun::reference(const Stage& stage) {
  Dtype rounded_to = storage_of(stage);
  if (rounded_to == Dtype::bf16 && !problem_.from_file && !definition_.has_bf16_reference()) {
    rounded_to = Dtype::fp32;  // drawn inputs are bf16 already
  }
  auto found = references_.find(rounded_to);
  if (found == references_.end()) {
    progress_.begin("reference in double");
    found = references_.emplace(rounded_to, evaluate_reference(definition_, problem_, rounded_to)).first;
    progress_.end();
  }
  return found->second;
}

std::string OperatorRun::why_skipped(const Stage& stage) {
  if (stage.processor == Processor::gpu && !settings_.machine.has_gpu) return "--cpu-only";
  return stage.unsupported ? stage.unsupported(tensors_for(stage.processor, storage_of(stage)).call()) : "";
}

StageResult OperatorRun::run(const Stage& stage) {
  StageResult result;
  result.stage = &stage;
  result.runs_on = stage.processor == Processor::cpu ? "cpu" : kEmulated ? "emulator" : "gpu";
  result.tolerance = tolerance_of(stage, problem_.sizes);
  result.work = definition_.work_of(stage, problem_.sizes);
  try {
    result.skipped = why_skipped(stage);
    if (result.ran()) run_checked(stage, result);
  } catch (const std::bad_alloc&) {
    result.failure = "out of memory";
  } catch (const std::exception& problem) {
    result.failure = problem.what();
  }
  progress_.end();
  if (const double usual = tolerance_of(stage, problem_.sizes); result.tolerance > usual) {
    result.note += fmt::format(
        "{}tolerance {} instead of {}: rounding the inputs once more moves an output {:.2g} times as far as a product",
        result.note.empty() ? "" : "\n", format_error(result.tolerance), format_error(usual), result.tolerance / usual);
  }
  if (!settings_.trace.empty() && result.ran()) write_trace(result);
  if (result.passed()) {
    previous_ = {&stage, result.tolerance, result.outputs};
  } else {
    result.times.reset();
    result.parts.clear();
    result.graph_ms.reset();
  }
  if (!settings_.keep_outputs) result.outputs.reset();
  return result;
}

void OperatorRun::write_trace(StageResult& result) {
  try {
    trace::write(trace::end(), settings_.trace.string());
  } catch (const std::exception& problem) {
    if (result.failure.empty()) result.failure = problem.what();
  }
}

void OperatorRun::run_traced(const Stage& stage, const Call& call) {
  trace::begin(settings_.trace_blocks);
  stage.run(call);
  check(cudaStreamSynchronize(current_stream()));
  if (kEmulated) return;
  // On a GPU with warm caches, as a call among many.
  trace::restart();
  stage.run(call);
  check(cudaStreamSynchronize(current_stream()));
}

void OperatorRun::run_checked(const Stage& stage, StageResult& result) {
  const Outputs& expected = reference(stage);
  progress_.begin(stage.name);
  StageTensors& tensors = tensors_for(stage.processor, storage_of(stage));
  const Call call = tensors.call();
  result.bytes = static_cast<double>(tensors.bytes());
  if (const std::int64_t moved = stage.bytes_moved ? stage.bytes_moved(call) : -1; moved >= 0) {
    result.bytes_moved = static_cast<double>(moved);
  }
  result.memory = stage.memory ? static_cast<double>(stage.memory(call)) : 0.0;
  // The limit is one machine's, not that of several devices. What a stage does not touch of inputs that it changes is not
  // known here.
  if (!result.emulated() && !stage.share_out) {
    const Roofline& roofline = stage.processor == Processor::cpu ? settings_.cpu_roofline : settings_.gpu_roofline;
    result.limit_ms = limit_ms(result.bytes, result.work, roofline, stage.dtype);
  }
  const auto run = [&] { stage.run(call); };

  const auto prepare = [&] {
    tensors.poison_outputs();
    if (stage.share_out) stage.share_out(call);
  };
  const auto check_run = [&] {
    if (stage.collect) stage.collect(call);
    if (stage.processor == Processor::gpu) check(cudaStreamSynchronize(current_stream()));
    check_outputs(stage, tensors, expected, result);
  };

  prepare();
  // From the first run on: what is timed is the traced kernel, and one that gets stuck has a trace, too.
  if (!settings_.trace.empty()) trace::begin(settings_.trace_blocks);
  reset_kernel_counts();
  const std::int64_t launches_before = launch_count();
  bool has_parts = false;
  {
    const PartListener listener([&](const char*) { has_parts = true; });
    run();
  }
  result.launches = static_cast<double>(launch_count() - launches_before);
  if (stage.processor == Processor::gpu) check(cudaStreamSynchronize(current_stream()));
  result.counts = kernel_counts();
  check_run();
  if (!result.passed()) return;
  if (stage.note) result.note = stage.note(call);
  if (settings_.repeat == 0) {
    if (!settings_.trace.empty()) run_traced(stage, call);
    return;
  }

  const Timed timed{
      .call = run, .prepare = prepare, .progress = [&](int number, int runs) { progress_.at(number, runs); }};
  const TimingPlan plan = plan_for(stage.processor, settings_);
  const bool on_gpu = stage.processor == Processor::gpu && timer_ != nullptr;
  result.times = on_gpu ? timer_->time(timed, plan) : time_on_host(timed, plan);
  const bool is_on_one_device = !stage.share_out || stage.goes_on;
  // Parts are timed by events of one device.
  if (has_parts && is_on_one_device)
    result.parts = on_gpu ? timer_->time_parts(timed, plan) : time_parts_on_host(timed, plan);
  // Once more: a stage that leaves something behind, or that races, may have passed the first time only.
  check_run();
  if (!result.passed()) result.failure = "right in the first run, but not in the last: " + result.failure;
  if (!on_gpu || !result.passed() || !is_on_one_device) {  // a graph has no place to share out
    if (!settings_.trace.empty() && result.passed()) run_traced(stage, call);
    return;
  }
  progress_.begin(stage.name + " in a graph");
  const Call graph_call = tensors.graph_call();
  try {
    result.graph_ms = timer_->time_in_graph([&] { stage.run(graph_call); }, result.times->median);
  } catch (const CudaError& error) {  // a stage that waits for the GPU, or allocates, cannot be captured
    result.note += (result.note.empty() ? "" : "\n") + std::string("no time in a graph: ") + error.what();
  }
  if (!settings_.trace.empty()) run_traced(stage, call);
}

void OperatorRun::check_outputs(const Stage& stage, const StageTensors& tensors, const Outputs& expected,
                                StageResult& result) {
  auto outputs = std::make_shared<const Outputs>(tensors.download_outputs(stage.without));
  result.outputs = outputs;
  result.error.reset();
  result.reference_error.reset();
  result.checked_against = previous_.stage == nullptr ? "reference" : previous_.stage->name;
  const double usual = tolerance_of(stage, problem_.sizes);
  const Dtype dtype = storage_of(stage);
  // They take four times as long as the reference, beside which they stand from the first stage on that asks.
  const auto amplifications = [&]() -> const Outputs& {
    Outputs& known = std::ranges::find_if(references_, [&](auto& entry) { return &entry.second == &expected; })->second;
    if (!known.contains(amplification_of(definition_.outputs().front().name, dtype))) {
      progress_.begin("what rounding the inputs does");
      known.merge(amplification(definition_, problem_, dtype));
      progress_.begin(stage.name);
    }
    return known;
  };
  for (const auto& [name, out] : *outputs) {
    const Comparison with_reference = compare(name, out, expected);
    keep_worst(result.reference_error, with_reference.error);
    double tolerance = usual;
    if (std::isfinite(with_reference.error) && !with_reference.within(usual)) {
      tolerance = amplified(usual, name, dtype, amplifications(), most_amplified(stage, problem_, name, expected));
      result.tolerance = std::max(result.tolerance, tolerance);
    }
    if (!with_reference.within(tolerance) && result.failure.empty()) {
      result.failure = describe_failure(with_reference, name, "the reference in double", tolerance);
    }
    if (previous_.stage == nullptr) continue;
    const auto previous = previous_.outputs->find(name);
    if (previous == previous_.outputs->end()) continue;  // the previous stage does not compute it
    const auto subtracted = expected.find(subtracted_of(name));
    const Tensor* term = subtracted == expected.end() ? nullptr : &subtracted->second;
    const Comparison with_previous = compare(out, previous->second, term);
    keep_worst(result.error, with_previous.error);
    // Two stages may err in opposite directions. Where they have different references, because one rounds and the other
    // does not, what these differ by comes on top; and a reference may be larger than the other one by as much.
    const Tensor& previous_expected = reference(*previous_.stage).find(name)->second;
    const double apart = compare(expected.find(name)->second, previous_expected, term).error;
    const double previous_tolerance = tolerance * (1 + apart) + previous_.tolerance + apart;
    if (!with_previous.within(previous_tolerance) && result.failure.empty()) {
      result.failure = describe_failure(with_previous, name, previous_.stage->name, previous_tolerance);
    }
  }
  if (previous_.stage == nullptr) result.error = result.reference_error;
}

MemoryNeed memory_need(const Operator& definition, const std::vector<const Stage*>& stages, const Problem& problem,
                       const Machine& machine, bool keep_outputs) {
  double inputs = 0, outputs = 0, subtracted = 0;  // bytes in fp32
  const auto bytes_of = [&](const std::string& name, const Dims& dims) {
    try {
      return 4.0 * static_cast<double>(element_count(shape_of(dims, problem.sizes)));
    } catch (const UsageError& error) {
      throw UsageError(name + ": " + error.what());
    }
  };
  for (const Input& input : definition.inputs()) inputs += bytes_of(input.name, input.dims);
  for (const Output& output : definition.outputs()) {
    outputs += bytes_of(output.name, output.dims);
    if (output.cancels) subtracted += bytes_of(output.name, output.dims);
    if (output.is_sum) subtracted += bytes_of(output.name, output.dims);
  }

  std::set<Dtype> cpu_types{Dtype::fp32};  // the reference's
  std::set<Dtype> gpu_types;
  // Beside the tensors, of the stage that takes most, or of the reference.
  auto cpu_memory = static_cast<double>(definition.reference_memory(sizes_alone(problem)));
  double gpu_memory = 0;
  for (const Stage* stage : stages) {
    const bool on_cpu = stage->processor == Processor::cpu;
    if (!on_cpu && !machine.has_gpu) continue;
    (on_cpu ? cpu_types : gpu_types).insert(storage_of(*stage));
    const Call call = sizes_alone(problem);
    if (!stage->memory || (stage->unsupported && !stage->unsupported(call).empty()))
      continue;  // the latter will be skipped
    double& memory = on_cpu ? cpu_memory : gpu_memory;
    memory = std::max(memory, static_cast<double>(stage->memory(call)));
  }
  const auto all_tensors = [&](const std::set<Dtype>& types) {
    double bytes = 0;
    for (const Dtype type : types) bytes += (inputs + outputs) * static_cast<double>(size_of(type)) / 4;
    return bytes;
  };
  // On the host also: the problem's own inputs; outputs of the reference, of this stage and of the last that passed.
  const double kept = keep_outputs ? outputs * static_cast<double>(stages.size()) : 2 * outputs;
  MemoryNeed need{.host = inputs + outputs + 2 * subtracted + kept + all_tensors(cpu_types) + cpu_memory,
                  .gpu = all_tensors(gpu_types) + gpu_memory};
  if (kEmulated) need.host += std::exchange(need.gpu, 0);
  return need;
}

}  // namespace tutorial
