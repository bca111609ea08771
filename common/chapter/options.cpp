#include "common/chapter/options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>

#include "common/chapter/draw.hpp"
#include "common/device/trace.hpp"
#include "common/error.hpp"
#include "common/random.hpp"

namespace tutorial {
namespace {

struct SizeOption {
  const char* symbol;
  const char* flags;
  const char* help;
  std::int64_t least = 1;
};
constexpr std::array<SizeOption, 12> kSizeOptions{{
    {"B", "-B,--batch", "batch entries, B"},
    {"H", "-H,--heads", "heads, H"},
    {"Hk", "--key-heads", "heads of q and k, Hk, half of the heads unless given: H / Hk heads share each of them"},
    {"L", "-L,--length", "sequence length, L"},
    {"Dk", "--key-dim", "width of keys and queries, Dk"},
    {"Dv", "--value-dim", "width of values, Dv, or of what is scanned, D"},
    {"D", "--value-dim", ""},  // the same option for operators that have no keys
    {"Dg", "--gate-dim", "width of gates, Dg: 1, one for all channels, or as wide as what is gated"},
    {"W", "--width", "numbers of a short convolution, W"},
    {"C", "--chunk", "chunk length, C"},
    {"P", "--prompt", "length of the prompt, P, of the L tokens", 0},
    {"N", "--devices", "share the sequence among N GPUs, all that are there unless N is given"},
}};

// A number of type T from low to high. Throws UsageError. (CLI11's own messages differ from version to version.)
template <class T>
T parse_number(const std::string& option, const std::string& text, T low, T high) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc::invalid_argument || end != text.data() + text.size()) {
    throw UsageError(fmt::format("{}: '{}' is not a {}number", option, text, std::is_integral_v<T> ? "whole " : ""));
  }
  if (error != std::errc{} || !(number >= low && number <= high)) {
    throw UsageError(fmt::format("{}: {} is not between {} and {}", option, text, low, high));
  }
  return number;
}

// 89 of "8.9". Throws UsageError.
int parse_capability(const std::string& option, const std::string& text) {
  const std::size_t point = text.find('.');
  if (point == text.npos || point == 0 || point + 2 != text.size()) {
    throw UsageError(fmt::format("{}: '{}' is not a compute capability such as 8.9", option, text));
  }
  return 10 * parse_number(option, text.substr(0, point), 1, 99) + parse_number(option, text.substr(point + 1), 0, 9);
}

std::string long_flag(const std::string& flags) {
  return flags.substr(flags.find("--"));
}

// The flags of the chapter's forms, one for all operators that have the same. An option that sets a size may choose
// a form, too; its number may then be left out.
using FormFlags = std::map<std::string, bool>;

bool sets_size(const std::string& form_option) {
  return std::any_of(kSizeOptions.begin(), kSizeOptions.end(),
                     [&](const SizeOption& size) { return long_flag(size.flags) == "--" + form_option; });
}

void add_form_flags(CLI::App& app, const Chapter& chapter, FormFlags& given) {
  for (const Operator& definition : chapter.operators()) {
    for (const auto& [name, help] : definition.form_options()) {
      const auto [flag, is_new] = given.try_emplace(name);
      if (!is_new || sets_size(name)) continue;
      if (name == "lengths") {
        app.add_option("--lengths", help)->expected(0, 1)->type_name("N,N");
      } else {
        app.add_flag("--" + name, flag->second, help);
      }
    }
  }
}

// The form that was given; empty where none was. Several options must be those of one form.
std::string chosen_form(const Chapter& chapter, const FormFlags& given) {
  std::vector<std::string> names;
  std::string chosen;
  for (const auto& [name, is_given] : given) {
    if (!is_given) continue;
    names.push_back(name);
    chosen = with_option(chosen, name);
  }
  const auto& operators = chapter.operators();
  const auto is_chosen = [&](const Operator& definition) { return definition.form() == chosen; };
  if (chosen.empty() || std::any_of(operators.begin(), operators.end(), is_chosen)) return chosen;
  if (names.size() > 1) throw UsageError(fmt::format("--{}: choose one", fmt::join(names, " and --")));
  throw UsageError(fmt::format("--{}: only beside another option; --list shows which", chosen));
}

// Appends the names in "a,b". Throws UsageError where one is empty.
void split_names(const std::string& option, const std::string& text, std::vector<std::string>& names) {
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (end == begin) throw UsageError(fmt::format("{}: a name is missing in '{}'", option, text));
    names.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
}

// The lengths of sequences in "37,0,64". Throws UsageError.
std::vector<std::int64_t> parse_lengths(const std::string& text) {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  std::vector<std::int64_t> lengths;
  std::int64_t sum = 0;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    lengths.push_back(parse_number<std::int64_t>("--lengths", text.substr(begin, end - begin), 0, kMost));
    sum += lengths.back();
    if (sum > kMost) throw UsageError(fmt::format("--lengths: more than {} positions", kMost));
    begin = end + 1;
  }
  return lengths;
}

// Throws UsageError where --list stands with an option that means nothing to it.
void require_alone(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options([](const CLI::Option* option) { return option->count() > 0; })) {
    const std::string name = option->get_name();
    if (name != "--list" && name != "--operator" && name != "--json") {
      throw UsageError(fmt::format("--list: takes --operator and --json, not {}", name));
    }
  }
}

}  // namespace

std::optional<Options> parse_options(const Chapter& chapter, int argc, const char* const* argv) {
  constexpr int kMaxInt = std::numeric_limits<int>::max();
  Options options;
  FormFlags forms;
  std::map<std::string, std::string> sizes;
  std::string gates, scale, seed, repeat, warmup, as, layout, input, output, weights, traced, traced_blocks;

  CLI::App app(chapter.name() + ": " + chapter.title() + ".\nRuns every stage, checks it and times it.");
  app.add_option("--operator", options.operator_name, "run this operator alone")->type_name("NAME");
  add_form_flags(app, chapter, forms);
  std::vector<std::string> stages;
  app.add_option("--stage", stages, "run these stages alone")->type_name("NAME[,NAME]")->allow_extra_args(false);
  app.add_flag("--variants", options.variants, "run the variants that dispatch may choose, too");
  std::map<std::string, bool> shown;
  for (const NamedDemonstration& demonstration : chapter.demonstrations()) {
    const std::string& name = demonstration.option;
    if (!name.empty()) app.add_flag("--" + name, shown[name], demonstration.summary);
  }
  app.add_flag("--list", options.list, "list operators and stages with their ideas");
  for (const SizeOption& size : kSizeOptions) {
    if (*size.help == '\0') continue;
    const std::string form = long_flag(size.flags).substr(2);
    const bool is_of_form = size.symbol == std::string("N") || size.symbol == std::string("Hk");
    if (is_of_form && !forms.contains(form)) continue;  // it means nothing to this chapter
    CLI::Option* option = app.add_option(size.flags, sizes[size.symbol], size.help)->type_name("N");
    if (forms.contains(form)) option->expected(0, 1);
  }
  app.add_option("--scale", scale, "what multiplies q, where an operator takes a scale")->type_name("X");
  app.add_option("--seed", seed, "of the random inputs; a fresh one is drawn and printed otherwise")->type_name("N");
  app.add_option("--gates", gates, "draw gates that forget more or less: usual, weak, bounded or open")
      ->type_name("NAME");
  app.add_option("--repeat", repeat, "timed runs of each stage; 0 checks it and takes no times")->type_name("N");
  app.add_option("--warmup", warmup, "runs before those")->type_name("N");
  app.add_flag("--cpu-only", options.cpu_only, "skip the stages that need a GPU");
  app.add_option("--as", as, "hide what the GPU has and a card of this compute capability lacks: 8.9, 12.0, ...")
      ->type_name("X.Y");
  app.add_option("--input", input, "take inputs from this safetensors file; their shapes set the sizes")
      ->type_name("FILE");
  app.add_option("--layout", layout, "blhd: files and memory have [B, L, H, D], not [B, H, L, D]")->type_name("NAME");
  app.add_option("--weights", weights, "take a layer's weights from this safetensors file")->type_name("FILE");
  app.add_option("--output", output, "write the outputs of every stage to this safetensors file")->type_name("FILE");
  app.add_option("--json", options.json, "write the results, or the list, to this file as JSON; - is standard output")
      ->type_name("FILE");
  if constexpr (trace::kIsPossible) {
    app.add_option("--timeline", traced, "write what the warps of the stage's kernels do to this file (docs/trace.md)")
        ->type_name("FILE");
    app.add_option("--timeline-blocks", traced_blocks, "of so many blocks of each kernel, 8 unless given")
        ->type_name("N");
  }
  app.footer("Exit status: 0 all checks passed, 1 a check failed, 2 bad usage or input.");

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const std::string help = app.help();
    std::fwrite(help.data(), 1, help.size(), stdout);
    return std::nullopt;
  } catch (const CLI::ParseError& problem) {
    throw UsageError(std::string(problem.what()) + " (--help lists the options)");
  }

  if (app.count("--operator") > 0 && options.operator_name.empty()) throw UsageError("--operator: a name is missing");
  for (const std::string& text : stages) split_names("--stage", text, options.stages);
  if (options.list) require_alone(app);
  for (const auto& [name, is_given] : shown) {
    if (is_given) options.shown.insert(name);
  }
  for (const SizeOption& size : kSizeOptions) {
    const std::string flag = long_flag(size.flags);
    const CLI::Option* option = app.get_option_no_throw(flag);
    if (option == nullptr || option->count() == 0) continue;
    if (const auto form = forms.find(flag.substr(2)); form != forms.end()) {
      form->second = true;
      if (option->as<std::string>().empty()) continue;
    }
    options.sizes[size.symbol] = parse_number<std::int64_t>(flag, option->as<std::string>(), size.least, kMaxInt);
  }
  if (const CLI::Option* lengths = app.get_option_no_throw("--lengths"); lengths != nullptr && lengths->count() > 0) {
    forms["lengths"] = true;
    if (const auto text = lengths->as<std::string>(); !text.empty()) options.lengths = parse_lengths(text);
  }
  options.form = chosen_form(chapter, forms);
  if (app.count("--scale") > 0) {
    constexpr double kMost = std::numeric_limits<float>::max();
    options.scale = parse_number<double>("--scale", scale, -kMost, kMost);
  }
  if (app.count("--repeat") > 0) options.repeat = parse_number("--repeat", repeat, 0, kMaxInt);
  if (app.count("--warmup") > 0) options.warmup = parse_number("--warmup", warmup, 0, kMaxInt);
  options.seed = app.count("--seed") == 0
                     ? fresh_seed()
                     : parse_number<std::uint64_t>("--seed", seed, 0, std::numeric_limits<std::uint64_t>::max());
  if (app.count("--gates") > 0) {
    if (!gate_draws().contains(gates)) {
      throw UsageError(fmt::format("--gates: '{}' is not usual, weak, bounded or open", gates));
    }
    options.gates = gates;
  }
  if (app.count("--as") > 0) options.as = parse_capability("--as", as);
  if (app.count("--layout") > 0) {
    if (layout != "bhld" && layout != "blhd") {
      throw UsageError(fmt::format("--layout: '{}' is neither bhld nor blhd", layout));
    }
    options.heads_inside = layout == "blhd";
  }
  const auto path_of = [&](const std::string& flag, const std::string& text) -> std::filesystem::path {
    if (app.count(flag) > 0 && text.empty()) throw UsageError(flag + ": the name of a file is missing");
    return text;
  };
  options.input = path_of("--input", input);
  options.weights = path_of("--weights", weights);
  options.output = path_of("--output", output);
  if constexpr (trace::kIsPossible) {
    options.trace = path_of("--timeline", traced);
    if (app.count("--timeline-blocks") > 0) {
      options.trace_blocks = parse_number("--timeline-blocks", traced_blocks, 1u, 4096u);
      if (options.trace.empty()) throw UsageError("--timeline-blocks: there is no --timeline");
    }
  }
  if (path_of("--json", options.json) == "/dev/stdout") options.json = "-";
  return options;
}

std::string option_of(const std::string& symbol) {
  for (const SizeOption& size : kSizeOptions) {
    if (symbol == size.symbol) return long_flag(size.flags);
  }
  return {};
}

}  // namespace tutorial
