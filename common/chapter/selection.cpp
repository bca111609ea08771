#include "common/chapter/selection.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "common/error.hpp"

namespace tutorial {
namespace {

// Each name once: forms of an operator share theirs.
std::vector<std::string> known_names(const Chapter& chapter) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const NamedDemonstration& demonstration : chapter.demonstrations()) add(demonstration.name);
  for (const Operator& definition : chapter.operators()) add(definition.name());
  return names;
}

// Demonstrations are no part of a run that asks for some operators, some stages or files.
bool selects(const Options& options, const NamedDemonstration& demonstration) {
  if (!demonstration.option.empty()) return options.shown.contains(demonstration.option);
  if (!options.form.empty()) return false;
  if (!options.operator_name.empty()) return options.operator_name == demonstration.name;
  return options.stages.empty() && options.input.empty() && options.weights.empty() && options.output.empty();
}

bool selects(const Options& options, const Operator& definition) {
  return options.form == definition.form() &&
         (options.operator_name.empty() || options.operator_name == definition.name());
}

// Why nothing is selected.
UsageError nothing(const Chapter& chapter, const Options& options) {
  require_known_operator(chapter, options);
  if (!options.form.empty()) {
    return UsageError(
        fmt::format("{}: of no use to {}", options_of_form(options.form).substr(1), options.operator_name));
  }
  return UsageError(fmt::format("--operator: '{}' has forms only; --list shows their options", options.operator_name));
}

// Keeps the stages that the options name, and the operators that have some of them.
void select_stages(std::vector<Task>& tasks, const Options& options) {
  std::set<std::string> known;
  for (Task& task : tasks) {
    for (const Stage& stage : task.definition->stages()) {
      known.insert(stage.name);
      const bool named = std::find(options.stages.begin(), options.stages.end(), stage.name) != options.stages.end();
      const bool unnamed = options.stages.empty() && (!stage.is_variant || options.variants);
      if (named || unnamed) task.stages.push_back(&stage);
    }
  }
  for (const std::string& name : options.stages) {
    if (known.contains(name)) continue;
    std::string stages;
    for (const Task& task : tasks) {
      for (const Stage& stage : task.definition->stages()) {
        if (known.erase(stage.name) > 0) stages += (stages.empty() ? "" : ", ") + stage.name;
      }
    }
    throw UsageError(fmt::format("--stage: there is no '{}'; known are {}", name, stages));
  }
  std::erase_if(tasks, [](const Task& task) { return task.stages.empty(); });
}

// Options that nothing selected has a use for are mistakes.
void check_used(const Selection& selection, const Options& options) {
  const std::vector<Task>& tasks = selection.tasks;
  std::vector<std::string> names;
  for (const NamedDemonstration* demonstration : selection.demonstrations) names.push_back(demonstration->name);
  for (const Task& task : tasks) names.push_back(task.definition->label());
  const auto require = [&](bool used, const std::string& option) {
    if (!used) throw UsageError(fmt::format("{}: of no use to {}", option, fmt::join(names, ", ")));
  };
  const auto any = [&](auto uses) { return std::any_of(tasks.begin(), tasks.end(), uses); };

  require(options.stages.empty() || !tasks.empty(), "--stage");
  require(!options.variants || any([](const Task& task) {
    return std::any_of(task.stages.begin(), task.stages.end(), [](const Stage* stage) { return stage->is_variant; });
  }),
          "--variants");
  for (const auto& [symbol, size] : options.sizes) {
    const std::string option = option_of(symbol);  // of several symbols, maybe
    const auto uses = [&](const Task& task) {
      const auto& symbols = task.definition->symbols();
      return std::any_of(symbols.begin(), symbols.end(), [&](const auto& own) { return option_of(own) == option; });
    };
    require(any(uses), option);
  }
  require(!options.scale || any([](const Task& task) { return task.definition->takes_scale(); }), "--scale");
  require(options.gates.empty() || any([](const Task& task) {
            const auto& inputs = task.definition->inputs();
            return std::any_of(inputs.begin(), inputs.end(), [](const Input& input) { return input.gate; });
          }),
          "--gates");
  require(!options.heads_inside || any([](const Task& task) {
    const auto& inputs = task.definition->inputs();
    return std::any_of(inputs.begin(), inputs.end(), [](const Input& input) { return has_positions(input.dims); });
  }),
          "--layout");
  const auto takes_weights = [](const Task& task) {
    const auto& inputs = task.definition->inputs();
    return std::any_of(inputs.begin(), inputs.end(), [](const Input& input) { return input.weight; });
  };
  require(options.weights.empty() || any(takes_weights), "--weights");
  require(options.input.empty() || !tasks.empty(), "--input");
  require(options.output.empty() || !tasks.empty(), "--output");
}

// A run that checks nothing would end as if all were well.
void check_something_runs(const std::vector<Task>& tasks, const Options& options) {
  if (!options.cpu_only || tasks.empty()) return;
  std::vector<std::string> names;
  for (const Task& task : tasks) {
    for (const Stage* stage : task.stages) {
      if (stage->processor == Processor::cpu) return;
      names.push_back(stage->name);
    }
  }
  throw UsageError(fmt::format("--cpu-only: of no use to {}, which run on a GPU", fmt::join(names, ", ")));
}

}  // namespace

void require_known_operator(const Chapter& chapter, const Options& options) {
  const std::vector<std::string> known = known_names(chapter);
  if (options.operator_name.empty() || std::find(known.begin(), known.end(), options.operator_name) != known.end()) {
    return;
  }
  throw UsageError(fmt::format("--operator: there is no '{}' in {}; known are {}", options.operator_name,
                               chapter.name(), fmt::join(known, ", ")));
}

Selection select(const Chapter& chapter, const Options& options) {
  Selection selection;
  for (const NamedDemonstration& demonstration : chapter.demonstrations()) {
    if (selects(options, demonstration)) selection.demonstrations.push_back(&demonstration);
  }
  for (const Operator& definition : chapter.operators()) {
    if (selects(options, definition)) selection.tasks.push_back({&definition, {}});
  }
  if (selection.demonstrations.empty() && selection.tasks.empty()) throw nothing(chapter, options);
  if (!selection.tasks.empty()) select_stages(selection.tasks, options);
  check_used(selection, options);
  check_something_runs(selection.tasks, options);
  return selection;
}

}  // namespace tutorial
