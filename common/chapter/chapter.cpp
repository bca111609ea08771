#include "common/chapter/chapter.hpp"

#include <fmt/format.h>

#include <exception>
#include <filesystem>
#include <new>
#include <stdexcept>

#include "common/chapter/json_report.hpp"
#include "common/chapter/options.hpp"
#include "common/chapter/run_chapter.hpp"
#include "common/terminal.hpp"

namespace tutorial {
namespace {

// An error is one line, whatever names of files and tensors it contains.
std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    line += code < 0x20 || code == 0x7F ? fmt::format("\\x{:02x}", code) : std::string(1, c);
  }
  return line;
}

int report_error(std::string_view program, std::string_view message) {
  fmt::print(stderr, "{}: {}\n", program, one_line(message));
  return 2;
}

void print_list(const Chapter& chapter) {
  const Terminal terminal(stdout);
  terminal.line(terminal.paint(Paint::bold, chapter.name()) + "  " + chapter.title());
  const auto entry = [&](const std::string& name, const std::string& summary) {
    terminal.line("");
    terminal.line(terminal.paint(Paint::bold, name) + "  " + summary);
  };
  for (const NamedDemonstration& demonstration : chapter.demonstrations()) {
    entry(demonstration.name, demonstration.summary);
  }
  for (const Operator& definition : chapter.operators()) {
    entry(definition.label(), definition.summary());
    const Operator* backward = chapter.backward_of(definition);
    std::size_t width = 0;
    for (const Stage& stage : definition.stages()) width = std::max(width, stage.name.size());
    for (const Stage& stage : definition.stages()) {
      const bool forward_only = backward != nullptr && backward->find(stage.name) == nullptr;
      terminal.line(fmt::format("  {:<{}}  {}  {:<4}  {}{}", stage.name, width,
                                stage.processor == Processor::cpu ? "cpu" : "gpu", name_of(stage.dtype), stage.idea,
                                forward_only ? " (no --backward)" : ""));
    }
  }
}

}  // namespace

void Chapter::demonstration(std::string name, std::string summary, std::function<Demonstration()> run,
                            std::string option) {
  demonstrations_.push_back({std::move(name), std::move(summary), std::move(run), std::move(option)});
}

Operator& Chapter::add(Operator definition) {
  operators_.push_back(std::move(definition));
  return operators_.back();
}

const Operator* Chapter::backward_of(const Operator& definition) const {
  const std::string variant = with_option(definition.variant(), "backward");
  if (variant == definition.variant()) return nullptr;
  for (const Operator& other : operators_) {
    if (other.name() == definition.name() && other.variant() == variant) return &other;
  }
  return nullptr;
}

int Chapter::run(int argc, const char* const* argv) const {
  const std::string program = argc > 0 ? std::filesystem::path(argv[0]).filename().string() : name_;
  try {
    const std::optional<Options> options = parse_options(*this, argc, argv);
    if (!options) return 0;
    if (options->list) {
      if (options->json.empty()) {
        print_list(*this);
      } else {
        write_json(options->json, list_to_json(*this));
      }
      return 0;
    }
    return run_chapter(*this, *options) ? 0 : 1;
  } catch (const std::bad_alloc&) {
    return report_error(program, "out of memory");
  } catch (const std::exception& error) {
    return report_error(program, error.what());
  }
}

}  // namespace tutorial
