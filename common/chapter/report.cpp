#include "common/chapter/report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>

#include "common/device/device.hpp"
#include "common/units.hpp"

namespace tutorial {
namespace {

std::string percent(double fraction) {
  return fmt::format("{:.{}f}%", 100 * fraction, fraction < 0.0995 ? 1 : 0);
}

// A text of one or more lines, long ones broken between words.
void print_wrapped(const Terminal& terminal, std::string_view text, Paint paint, std::string_view indent = "") {
  const std::size_t width = Table::kLineWidth - indent.size();
  while (!text.empty()) {
    std::size_t end = std::min(text.find('\n'), text.size());
    if (end > width) {
      const std::size_t space = text.substr(0, width + 1).rfind(' ');
      if (space != text.npos && space > 0) end = space;  // a longer word stays whole
    }
    terminal.line(std::string(indent) + terminal.paint(paint, text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

// The same below a row.
void print_below(const Terminal& terminal, std::string_view text, Paint paint) {
  print_wrapped(terminal, text, paint, "  ");
}

std::string describe_roofline(const Roofline& roofline) {
  std::vector<std::string> rates;
  for (const auto& [name, rate, unit] : {std::tuple("copy", roofline.copy_bytes_s, "B/s"),
                                         {"fp32", roofline.fma_flops_s, "FLOP/s"},
                                         {"bf16 mma", roofline.tensor_flops_s, "FLOP/s"},
                                         {"ex2", roofline.exponentials_s, "/s"}}) {
    if (rate > 0) rates.push_back(fmt::format("{} {}", name, format_quantity(rate, unit)));
  }
  return fmt::format("{}", fmt::join(rates, ", "));
}

// The last stage before `end` that has a time which others can be compared with.
const StageResult* last_timed(const OperatorResult& result, const StageResult* end) {
  const StageResult* last = nullptr;
  for (const StageResult& stage : result.stages) {
    if (&stage == end) break;
    if (stage.times && !stage.emulated()) last = &stage;
  }
  return last;
}

const StageResult* first_timed(const OperatorResult& result) {
  const auto found = std::find_if(result.stages.begin(), result.stages.end(),
                                  [](const StageResult& stage) { return stage.times && !stage.emulated(); });
  return found == result.stages.end() ? nullptr : &*found;
}

}  // namespace

void Report::heading(const Chapter& chapter, const RunSettings& settings) {
  has_gpu_ = settings.machine.has_gpu;
  terminal_.line(terminal_.paint(Paint::bold, chapter.name()) + "  " + chapter.title());
  const auto unit = [&](const std::string& name, const Roofline& roofline) {
    const std::string rates = describe_roofline(roofline);
    terminal_.line(name + (rates.empty() ? "" : terminal_.paint(Paint::dim, "  " + rates)));
  };
  const Machine& machine = settings.machine;
  if (machine.has_gpu) {
    std::string gpu = fmt::format("{}, {} multiprocessors", machine.gpu, machine.multiprocessors);
    if (machine.passes_for > 0) gpu += fmt::format(", with what {} has", capability_text(machine.passes_for));
    unit(gpu, settings.gpu_roofline);
  }
  unit(fmt::format("{}, {} threads", machine.cpu, machine.threads), settings.cpu_roofline);
}

void Report::title(const std::string& name, const std::string& summary) const {
  terminal_.line("");
  terminal_.line(terminal_.paint(Paint::bold, name) + "  " + summary);
}

void Report::demonstration(const NamedDemonstration& definition, const Demonstration& shown) {
  title(definition.name, definition.summary);
  terminal_.line("");
  terminal_.line(shown.text.ends_with('\n') ? shown.text.substr(0, shown.text.size() - 1) : shown.text);
  if (!shown.passed) failed_demonstrations_.push_back(definition.name);
}

void Report::begin_operator(const OperatorResult& result, const ProblemRequest& request,
                            const std::vector<const Stage*>& stages) {
  const Operator& definition = *result.definition;
  title(definition.label(), definition.summary());
  std::string problem;
  for (const std::string& symbol : definition.symbols()) {
    problem += fmt::format("{}={} ", symbol, result.sizes.find(symbol)->second);
  }
  if (definition.takes_scale()) problem += fmt::format("scale={:.6g} ", result.scale);
  for (const auto& [name, value] : result.parameters) problem += fmt::format("{}={:.6g} ", name, value);
  problem += fmt::format(" seed {}", result.seed);
  if (!request.gates.empty()) problem += fmt::format("  {} gates", request.gates);
  if (result.heads_inside) problem += "  in memory [B, L, H, D]";
  if (!request.input_file.empty()) problem += "  inputs from " + request.input_file.string();
  if (!request.weights_file.empty()) problem += "  weights from " + request.weights_file.string();
  print_wrapped(terminal_, problem, Paint::dim);
  for (const std::string& warning : result.warnings) print_wrapped(terminal_, warning, Paint::none);
  terminal_.line("");

  name_width_ = 0;
  bool emulated = false;
  with_graph_ = false;
  with_memory_ = false;
  for (const Stage* stage : stages) {
    name_width_ = std::max(name_width_, width_of(stage->name));
    emulated = emulated || (has_gpu_ && kEmulated && stage->processor == Processor::gpu);
    with_memory_ = with_memory_ || (stage->memory && (has_gpu_ || stage->processor == Processor::cpu));
    with_graph_ = with_graph_ || (has_gpu_ && !kEmulated && stage->processor == Processor::gpu);
  }
  std::vector<Column> columns{{"stage", name_width_, false},
                              {"on", emulated ? 8u : 3u, false},
                              {"type", 4, false},
                              {"against", std::max<std::size_t>(name_width_, 9), false},
                              {"error", 7},
                              {"time", emulated ? 9u : 8u}};
  if (with_graph_) columns.push_back({"graph", 8});
  columns.push_back({terminal_.sign("×", "x") + " first", 6});
  columns.push_back({terminal_.sign("×", "x") + " prev", 6});
  columns.push_back({"GB/s", 5});
  columns.push_back({"limit", 5});
  if (with_memory_) columns.push_back({"memory", 7});
  column_count_ = columns.size();
  table_.emplace(terminal_, std::move(columns), "against");
  table_->print_header();
}

std::string Report::ratio(double times) const {
  return format_number(times) + terminal_.sign("×", "x");
}

// A line for each part: its time, and its share of all of them.
std::string Report::parts_of(const StageResult& stage) const {
  double sum = 0;
  std::size_t width = 0;
  for (const auto& [name, times] : stage.parts) {
    sum += times.median;
    width = std::max(width, width_of(name));
  }
  std::string text;
  for (const auto& [name, times] : stage.parts) {
    const std::string time =
        fmt::format("{}{}", stage.emulated() ? "~" : "", format_time(times.median, terminal_.sign("µ", "u")));
    const std::size_t padding = 10 - std::min<std::size_t>(10, width_of(time));  // the sign for micro has two bytes
    text += fmt::format("{}{:<{}}  {:{}}{}  {:>4.0f}%", text.empty() ? "" : "\n", name, width, "", padding, time,
                        100 * times.median / sum);
  }
  return text;
}

std::vector<Cell> Report::cells_of(const OperatorResult& result, const StageResult& stage) const {
  const Cell none{"-", Paint::dim};
  const std::string micro = terminal_.sign("µ", "u");
  std::vector<Cell> cells{{stage.stage->name, stage.passed() ? Paint::bold : Paint::red},
                          {stage.runs_on, stage.emulated()         ? Paint::cyan
                                          : stage.runs_on == "gpu" ? Paint::green
                                                                   : Paint::none},
                          {std::string(name_of(stage.stage->dtype))},
                          {stage.checked_against.empty() ? "-" : stage.checked_against, Paint::dim}};
  cells.push_back(stage.error ? Cell{format_error(*stage.error), stage.passed() ? Paint::none : Paint::red} : none);
  if (!stage.times) {
    cells.push_back(stage.passed() ? none : Cell{"failed", Paint::red});
    cells.resize(column_count_, none);
    return cells;
  }
  const double median = stage.times->median;
  const std::string time = format_time(median, micro);
  cells.push_back(stage.emulated() ? Cell{"~" + time, Paint::dim} : Cell{time});
  if (with_graph_) cells.push_back(stage.graph_ms ? Cell{format_time(*stage.graph_ms, micro)} : none);
  const StageResult* first = first_timed(result);
  const StageResult* previous = last_timed(result, &stage);
  const bool comparable = !stage.emulated() && previous != nullptr;
  cells.push_back(comparable ? Cell{ratio(first->times->median / median)} : none);
  cells.push_back(comparable ? Cell{ratio(previous->times->median / median)} : none);
  cells.push_back(stage.emulated() ? none : Cell{format_number(stage.bytes / median / 1e6)});
  cells.push_back(stage.limit_ms ? Cell{percent(*stage.limit_ms / median)} : none);
  if (with_memory_) cells.push_back(stage.memory ? Cell{format_quantity(*stage.memory, "B")} : none);
  return cells;
}

void Report::stage(const OperatorResult& result) {
  const StageResult& stage = result.stages.back();
  if (!stage.ran()) {
    terminal_.line(
        terminal_.paint(Paint::dim, fmt::format("{:<{}}  skipped: {}", stage.stage->name, name_width_, stage.skipped)));
    return;
  }
  table_->print_row(cells_of(result, stage));
  print_below(terminal_, stage.failure, Paint::red);
  print_below(terminal_, stage.note, Paint::dim);
  print_below(terminal_, parts_of(stage), Paint::none);
}

void Report::end_operator(const OperatorResult& result) const {
  if (!result.note.empty()) {
    terminal_.line("");
    print_wrapped(terminal_, result.note, Paint::none);
  }
  counted_work(result);
  stated_work(result);
}

void Report::counted_work(const OperatorResult& result) const {
  std::size_t name_width = 0;
  for (const StageResult& stage : result.stages) {
    if (stage.emulated() && stage.passed()) name_width = std::max(name_width, width_of(stage.stage->name));
  }
  if (name_width == 0) return;
  terminal_.line("");
  terminal_.line("~ the emulator's time, not a GPU's. What the kernels did is the same on both:");
  terminal_.line("");
  const Table table(terminal_, {{"stage", name_width, false},
                                {"launches", 8},
                                {"blocks", 8},
                                {"barriers", 9},
                                {"atomics", 9},
                                {"read", 7},
                                {"written", 7},
                                {"of the least", 7}});
  table.print_header();
  for (const StageResult& stage : result.stages) {
    if (!stage.emulated() || !stage.passed()) continue;
    const KernelCounts& counts = stage.counts;
    table.print_row({{stage.stage->name, Paint::bold},
                     {fmt::format("{:.0f}", counts.launches)},
                     {fmt::format("{:.0f}", counts.blocks)},
                     {fmt::format("{:.0f}", counts.barriers)},
                     {fmt::format("{:.0f}", counts.atomics)},
                     {format_quantity(counts.bytes_read, "B")},
                     {format_quantity(counts.bytes_written, "B")},
                     {ratio((counts.bytes_read + counts.bytes_written) / stage.bytes)}});
  }
}

void Report::stated_work(const OperatorResult& result) const {
  std::size_t name_width = 0;
  bool is_stated = false;
  const auto has_kernels = [](const StageResult& stage) { return stage.passed() && stage.runs_on == "gpu"; };
  for (const StageResult& stage : result.stages) {
    if (!has_kernels(stage)) continue;
    name_width = std::max(name_width, width_of(stage.stage->name));
    is_stated = is_stated || stage.bytes_moved;
  }
  if (!is_stated) return;
  terminal_.line("");
  terminal_.line("What the kernels did, and the bytes against the least possible:");
  terminal_.line("");
  const Table table(terminal_,
                    {{"stage", name_width, false}, {"launches", 8}, {"moved", 7}, {"least", 7}, {"of the least", 7}});
  table.print_header();
  const Cell none{"-", Paint::dim};
  for (const StageResult& stage : result.stages) {
    if (!has_kernels(stage)) continue;
    table.print_row({{stage.stage->name, Paint::bold},
                     {fmt::format("{:.0f}", stage.launches)},
                     stage.bytes_moved ? Cell{format_quantity(*stage.bytes_moved, "B")} : none,
                     {format_quantity(stage.bytes, "B")},
                     stage.bytes_moved ? Cell{ratio(*stage.bytes_moved / stage.bytes)} : none});
  }
}

void Report::summary(const std::vector<OperatorResult>& results) const {
  if (!results.empty()) stage_summary(results);
  if (!failed_demonstrations_.empty()) {
    const std::string names = fmt::format("{}", fmt::join(failed_demonstrations_, ", "));
    terminal_.line("");
    terminal_.line(terminal_.paint(Paint::red, terminal_.sign("✗ ", "") + names + " failed"));
  }
}

void Report::stage_summary(const std::vector<OperatorResult>& results) const {
  int ran = 0;
  int skipped = 0;
  std::vector<std::string> failed;
  for (const OperatorResult& result : results) {
    for (const StageResult& stage : result.stages) {
      ++(stage.ran() ? ran : skipped);
      if (stage.ran() && !stage.passed()) {
        failed.push_back(results.size() > 1 ? result.definition->name() + "." + stage.stage->name : stage.stage->name);
      }
    }
  }
  const std::string stages = fmt::format("{} stage{}", ran, ran == 1 ? "" : "s");
  const std::string rest = skipped > 0 ? fmt::format(", {} skipped", skipped) : "";
  terminal_.line("");
  if (ran == 0) {
    terminal_.line("no stage was checked" + rest);
    return;
  }
  if (failed.empty()) {
    terminal_.line(terminal_.paint(Paint::green, terminal_.sign("✓ ", "")) + stages + " checked, all passed" + rest);
    return;
  }
  const std::string count = fmt::format("{}{} of {} failed", terminal_.sign("✗ ", ""), failed.size(), stages);
  terminal_.line(terminal_.paint(Paint::red, count) + rest);
  print_below(terminal_, fmt::format("{}", fmt::join(failed, ", ")), Paint::red);
}

}  // namespace tutorial
