#include "common/chapter/chapter.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <utility>

#include "common/chapter/json_report.hpp"
#include "common/chapter/options.hpp"
#include "common/chapter/run_chapter.hpp"
#include "common/chapter/selection.hpp"
#include "common/error.hpp"
#include "common/terminal.hpp"

namespace tutorial {
namespace {

// An error is one line of a length that people read, whatever names of files and tensors it contains.
std::string one_line(std::string_view text) {
  constexpr std::size_t kMost = 2000;  // of which the beginning and the end are kept
  const std::string shortened =
      text.size() <= kMost ? std::string(text)
                           : fmt::format("{} ... {}", text.substr(0, kMost - 500), text.substr(text.size() - 500));
  std::string line;
  for (const char c : shortened) {
    const auto code = static_cast<unsigned char>(c);
    line += code < 0x20 || code == 0x7F ? fmt::format("\\x{:02x}", code) : std::string(1, c);
  }
  return line;
}

int report_error(std::string_view program, std::string_view message) {
  Terminal(stderr).line(fmt::format("{}: {}", program, one_line(message)));
  return 2;
}

// With less, a thread or the program itself would end without a word.
void check_limits() {
  constexpr rlim_t kLeastStack = 1 << 20;
  rlimit stack{};
  if (getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur < kLeastStack) {
    throw UsageError(fmt::format("a stack may have {} kB here and 1024 are needed: ulimit -s", stack.rlim_cur / 1024));
  }
  constexpr long kMostThreads = 4096;
  const char* threads = std::getenv("OMP_NUM_THREADS");
  if (threads != nullptr && std::strtol(threads, nullptr, 10) > kMostThreads) {
    throw UsageError(fmt::format("OMP_NUM_THREADS is {}: {} threads are the most", threads, kMostThreads));
  }
}

// A stream that the user closed stays closed: without this, the next file that is opened would take its number, and
// what is printed would end up in that file. Opened for reading alone, standard output still fails where it is written
// to.
void keep_stream_numbers() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) == -1) open("/dev/null", stream == STDERR_FILENO ? O_WRONLY : O_RDONLY);
  }
}

// Results that nobody got are an error.
void require_written_output() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  throw UsageError("standard output could not be written");
}

// @param operator_name of those to list; empty: all
void print_list(const Chapter& chapter, const std::string& operator_name) {
  const auto is_listed = [&](const std::string& name) { return operator_name.empty() || operator_name == name; };
  const Terminal terminal(stdout);
  terminal.line(terminal.paint(Paint::bold, chapter.name()) + "  " + chapter.title());
  const auto entry = [&](const std::string& name, const std::string& summary) {
    terminal.line("");
    terminal.line(terminal.paint(Paint::bold, name) + "  " + summary);
  };
  for (const NamedDemonstration& demonstration : chapter.demonstrations()) {
    if (is_listed(demonstration.name)) entry(demonstration.name, demonstration.summary);
  }
  for (const Operator& definition : chapter.operators()) {
    if (!is_listed(definition.name())) continue;
    entry(definition.label(), definition.summary());
    const Operator* backward = chapter.backward_of(definition);
    std::size_t width = 0;
    for (const Stage& stage : definition.stages()) width = std::max(width, stage.name.size());
    bool has_variants = false;
    for (const Stage& stage : definition.stages()) {
      if (stage.is_variant && !std::exchange(has_variants, true)) {
        const char* const chooser = definition.find("dispatch") ? " that dispatch may choose" : "";
        terminal.line(fmt::format("  variants{} (--stage NAME or --variants runs them):", chooser));
      }
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
  const std::string form = with_option(definition.form(), "backward");
  if (form == definition.form()) return nullptr;
  for (const Operator& other : operators_) {
    if (other.name() == definition.name() && other.form() == form) return &other;
  }
  return nullptr;
}

int Chapter::run(int argc, const char* const* argv) const {
  keep_stream_numbers();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that becomes larger than the user's limit is an error like others
  const std::string program = argc > 0 ? std::filesystem::path(argv[0]).filename().string() : name_;
  try {
    check_limits();
    bool passed = true;
    if (const std::optional<Options> options = parse_options(*this, argc, argv); options && options->list) {
      require_known_operator(*this, *options);
      if (options->json.empty()) {
        print_list(*this, options->operator_name);
      } else {
        write_json(options->json, list_to_json(*this, options->operator_name));
      }
    } else if (options) {
      passed = run_chapter(*this, *options);
    }
    require_written_output();
    return passed ? 0 : 1;
  } catch (const std::bad_alloc&) {
    return report_error(program, "out of memory");
  } catch (const std::exception& error) {
    return report_error(program, error.what());
  }
}

}  // namespace tutorial
