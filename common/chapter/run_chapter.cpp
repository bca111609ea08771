#include "common/chapter/run_chapter.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common/atomic_file.hpp"
#include "common/chapter/json_report.hpp"
#include "common/chapter/machine.hpp"
#include "common/chapter/problem.hpp"
#include "common/chapter/progress.hpp"
#include "common/chapter/report.hpp"
#include "common/chapter/run_operator.hpp"
#include "common/chapter/selection.hpp"
#include "common/chapter/summary.hpp"
#include "common/error.hpp"
#include "common/safetensors.hpp"
#include "common/units.hpp"

namespace tutorial {
namespace {

namespace fs = std::filesystem;

bool has_gpu_stages(const std::vector<Task>& tasks) {
  return std::any_of(tasks.begin(), tasks.end(), [](const Task& task) {
    return std::any_of(task.stages.begin(), task.stages.end(),
                       [](const Stage* stage) { return stage->processor == Processor::gpu; });
  });
}

// Finds outputs that could not be written, before anything is computed.
void check_outputs(const std::vector<Task>& tasks, const Options& options) {
  const fs::path json = options.json == "-" ? "" : options.json;
  const auto are_same = [](const fs::path& a, const fs::path& b) {
    std::error_code error;
    return fs::equivalent(a, b, error);
  };
  if (!options.output.empty() && tasks.size() > 1) {
    throw UsageError("--output: stages of several operators share their names; choose one with --operator");
  }
  for (const fs::path& path : {options.output, json}) {
    if (path.empty()) continue;
    require_writable(path);
    for (const fs::path& source : {options.input, options.weights}) {
      if (!source.empty() && are_same(path, source)) {
        throw UsageError(fmt::format("{} is both input and output", path.string()));
      }
    }
    // A file that is replaced would take the text with it.
    std::error_code error;
    if (fs::is_regular_file(path, error) && are_same(path, "/dev/stdout")) {
      throw UsageError(fmt::format("{} is where standard output goes", path.string()));
    }
  }
  if (!json.empty() && !options.output.empty() &&
      (are_same(json, options.output) || target_of(json) == target_of(options.output))) {
    throw UsageError(fmt::format("--output and --json are both {}", json.string()));
  }
}

// A trace is of one stage's kernels.
void check_trace(const std::vector<Task>& tasks, const Options& options) {
  if (options.trace.empty()) return;
  std::vector<std::string> names;
  for (const Task& task : tasks) {
    for (const Stage* stage : task.stages) names.push_back(task.definition->label() + "/" + stage->name);
  }
  if (names.size() != 1) {
    const std::string chosen =
        names.size() > 8 ? fmt::format("{} of them", names.size()) : fmt::format("{}", fmt::join(names, ", "));
    throw UsageError(
        fmt::format("--timeline: one stage at a time, which --operator and --stage choose, not {}", chosen));
  }
  if (tasks.front().stages.front()->processor == Processor::cpu) {
    throw UsageError(fmt::format("--timeline: {} has no kernel", names.front()));
  }
  require_writable(options.trace);
}

// A chunk that is longer than the sequence is a mistake, unless it has the length that chunks have without the option.
void check_chunk(const Task& task) {
  const auto asked = task.request.sizes.find("C");
  const auto L = task.problem.sizes.find("L");
  if (asked == task.request.sizes.end() || L == task.problem.sizes.end() || !task.definition->has_symbol("C")) return;
  const std::int64_t C = asked->second;
  if (C <= L->second || C <= task.definition->default_size("C", task.request.modest).value_or(0)) return;
  throw UsageError(fmt::format("--chunk: {} is longer than the sequence, L = {}", C, L->second));
}

void check_memory(const Task& task, const Machine& machine, bool keep_outputs) {
  const MemoryNeed need = memory_need(*task.definition, task.stages, task.problem, machine, keep_outputs);
  const auto check = [&](const char* kind, double needed, double available) {
    if (needed <= available) return;
    throw UsageError(fmt::format("{} needs {} of {}memory, {} are free", task.definition->label(),
                                 format_quantity(needed, "B"), kind, format_quantity(available, "B")));
  };
  check("", need.host, static_cast<double>(available_host_memory()));
  if (need.gpu > 0) check("GPU ", need.gpu, static_cast<double>(available_gpu_memory()));
}

// Measures those rates that a row of the table will be compared with.
void measure_roofline(const std::vector<Task>& tasks, RunSettings& settings) {
  bool cpu = false;
  [[maybe_unused]] bool gpu = false;
  [[maybe_unused]] WantedRates wanted;
  for (const Task& task : tasks) {
    for (const Stage* stage : task.stages) {
      if (stage->processor == Processor::cpu) {
        cpu = true;
        continue;
      }
      gpu = settings.machine.has_gpu;
      const Work work = task.definition->work_of(*stage, task.problem.sizes);
      wanted.fma = wanted.fma || work.fma_flops > 0;
      wanted.tensor = wanted.tensor || work.tensor_flops > 0;
      wanted.exponentials = wanted.exponentials || work.exponentials > 0;
    }
  }
  if (cpu) settings.cpu_roofline = measure_cpu_roofline(available_host_memory());
#if TUTORIAL_CUDA
  if (gpu) settings.gpu_roofline = measure_gpu_roofline(wanted);
#endif
}

Demonstration show(const NamedDemonstration& demonstration) {
  try {
    return demonstration.run();
  } catch (const std::exception& problem) {
    return {problem.what(), false};
  }
}

OperatorResult run_task(Task& task, const RunSettings& settings, GpuTimer* timer, Progress& progress, Report& report) {
  OperatorResult result{task.definition,
                        task.problem.sizes,
                        task.problem.scale,
                        task.problem.parameters,
                        task.problem.seed,
                        {},
                        {},
                        task.problem.flattened,
                        task.problem.warnings,
                        task.problem.heads_inside};
  report.begin_operator(result, task.request, task.stages);
  progress.begin("inputs");
  load_inputs(*task.definition, task.request, task.problem);
  result.note = task.definition->note_on(task.problem);
  progress.end();
  OperatorRun run(*task.definition, task.problem, settings, timer, progress);
  for (const Stage* stage : task.stages) {
    result.stages.push_back(run.run(*stage));
    report.stage(result);
  }
  report.end_operator(result);
  task.problem.inputs.clear();
  return result;
}

// The outputs as a file has them: in the layout and with all the dimensions of its inputs.
Outputs in_shape_of_file(const Outputs& flat, const OperatorResult& result) {
  Outputs outputs;
  for (const Output& spec : result.definition->outputs()) {
    const auto found = flat.find(spec.name);
    if (found == flat.end()) continue;
    const bool heads_inside = result.heads_inside && has_positions(spec.dims);
    Tensor tensor = heads_inside ? swap_second_and_third(found->second) : found->second.to(Dtype::fp32);
    if (const auto inner = result.flattened.find(spec.dims.back()); inner != result.flattened.end()) {
      Shape shape = tensor.shape();
      shape.pop_back();
      shape.insert(shape.end(), inner->second.begin(), inner->second.end());
      tensor.reshape(std::move(shape));
    }
    outputs.insert_or_assign(spec.name, std::move(tensor));
  }
  return outputs;
}

void write_outputs(const fs::path& path, const OperatorResult& result) {
  std::vector<Outputs> outputs;  // of the stages that ran
  outputs.reserve(result.stages.size());
  std::vector<NamedTensor> tensors;
  for (const StageResult& stage : result.stages) {
    if (!stage.outputs) continue;
    outputs.push_back(in_shape_of_file(*stage.outputs, result));
    for (const auto& [name, tensor] : outputs.back()) tensors.push_back({stage.stage->name + "." + name, &tensor});
  }
  write_safetensors(path, tensors, {{"op", result.definition->name()}, {"scale", fmt::format("{}", result.scale)}});
}

// A run in which every stage was skipped would end as if all were well.
void require_checks(const std::vector<OperatorResult>& results) {
  const StageResult* first = nullptr;
  int others = -1;
  for (const OperatorResult& result : results) {
    for (const StageResult& stage : result.stages) {
      if (stage.ran()) return;
      if (first == nullptr) first = &stage;
      ++others;
    }
  }
  if (first == nullptr) return;  // demonstrations alone
  const std::string rest = others > 0 ? fmt::format(" ({} more skipped)", others) : "";
  throw UsageError(fmt::format("no stage was checked: {}: {}{}", first->stage->name, first->skipped, rest));
}

// Whether a file has fewer heads of queries than of values.
bool shares_heads(const SafetensorsFile& file, bool heads_inside) {
  if (!file.contains("q") || !file.contains("v")) return false;
  const Shape q = file.shape("q"), v = file.shape("v");
  const std::size_t heads = heads_inside ? 2 : 1;
  return q.size() == 4 && v.size() == 4 && q[heads] < v[heads];
}

// A file of packed sequences, or of heads that share queries and keys, runs the form for them, where an operator that is
// asked for has it.
Options with_form_of_file(const Chapter& chapter, Options options) {
  if (options.input.empty()) return options;
  const auto& operators = chapter.operators();
  const auto take = [&](const char* option, auto asks) {
    const std::string form = with_option(options.form, option);
    const auto has_form = [&](const Operator& definition) {
      return definition.form() == form && (options.operator_name.empty() || options.operator_name == definition.name());
    };
    if (std::none_of(operators.begin(), operators.end(), has_form)) return;
    if (asks(SafetensorsFile(options.input))) options.form = form;
  };
  take("lengths", [](const SafetensorsFile& file) { return file.contains(kOffsets); });
  take("key-heads",
       [&](const SafetensorsFile& file) { return shares_heads(file, options.heads_inside.value_or(false)); });
  return options;
}

}  // namespace

bool run_chapter(const Chapter& chapter, const Options& given) {
  const Options options = with_form_of_file(chapter, given);
  auto [demonstrations, tasks] = select(chapter, options);
  check_outputs(tasks, options);
  check_trace(tasks, options);

  RunSettings settings;
  settings.repeat = options.repeat;
  settings.warmup = options.warmup;
  settings.keep_outputs = !options.output.empty();
  settings.trace = options.trace;
  settings.trace_blocks = options.trace_blocks;
  const bool modest = kEmulated || options.cpu_only;
  for (Task& task : tasks) {
    task.request = {options.sizes,   options.scale, options.seed,
                    options.lengths, options.gates, options.input,
                    options.weights, modest,        options.heads_inside.value_or(false)};
    task.problem = plan_problem(*task.definition, task.request);
    check_chunk(task);
  }
  settings.machine = probe_machine(!options.cpu_only && has_gpu_stages(tasks), options.as);
  for (const Task& task : tasks) {
    check_memory(task, settings.machine, settings.keep_outputs);
    check_inputs(*task.definition, task.request, task.problem);
  }

  const Terminal terminal(options.json == "-" ? stderr : stdout);
  const Terminal progress_terminal(stderr);
  Progress progress(progress_terminal);
  progress.begin("measuring the limits of this machine");
  measure_roofline(tasks, settings);
  progress.end();
  Report report(terminal);
  report.heading(chapter, settings);

  bool passed = true;
  for (const NamedDemonstration* demonstration : demonstrations) {
    progress.begin(demonstration->name);
    const Demonstration shown = show(*demonstration);
    progress.end();
    report.demonstration(*demonstration, shown);
    passed = passed && shown.passed;
  }

  std::optional<GpuTimer> timer;
  if (settings.machine.has_gpu && !kEmulated) timer.emplace();
  std::vector<OperatorResult> results;
  for (Task& task : tasks) results.push_back(run_task(task, settings, timer ? &*timer : nullptr, progress, report));
  report.summary(results);
  append_summary(chapter, results);

  if (!options.output.empty()) write_outputs(options.output, results.front());
  if (!options.json.empty()) write_json(options.json, to_json(chapter, settings, results));
  require_checks(results);
  for (const OperatorResult& result : results) {
    for (const StageResult& stage : result.stages) {
      if (stage.ran()) passed = passed && stage.passed();
    }
  }
  return passed;
}

}  // namespace tutorial
