#include "common/chapter/summary.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>

namespace tutorial {
namespace {

/// Milliseconds of a stage, if they mean something.
std::optional<double> milliseconds(const StageResult& stage) {
  if (stage.emulated() || !stage.times) return std::nullopt;
  return stage.graph_ms ? *stage.graph_ms : stage.times->median;
}

/// "recurrent_eigen 38x quadratic", or nothing where fewer than two stages were timed.
std::string fastest_against_first(const OperatorResult& result) {
  const StageResult *first = nullptr, *fastest = nullptr;
  for (const StageResult& stage : result.stages) {
    if (!milliseconds(stage)) continue;
    if (first == nullptr) first = &stage;
    if (fastest == nullptr || *milliseconds(stage) < *milliseconds(*fastest)) fastest = &stage;
  }
  if (first == fastest) return "";
  return fmt::format("{} {:.3g}x {}", fastest->stage->name, *milliseconds(*first) / *milliseconds(*fastest),
                     first->stage->name);
}

}  // namespace

std::string summary_line(const Chapter& chapter, const std::vector<OperatorResult>& results) {
  int checked = 0, failed = 0, skipped = 0;
  for (const OperatorResult& result : results) {
    for (const StageResult& stage : result.stages) {
      ++(!stage.ran() ? skipped : stage.passed() ? checked : failed);
    }
  }
  const std::string fastest = results.empty() ? "" : fastest_against_first(results.front());
  return fmt::format("{}\t{}\t{}\t{}\t{}", chapter.name(), checked, failed, skipped, fastest);
}

void append_summary(const Chapter& chapter, const std::vector<OperatorResult>& results) {
  const char* path = std::getenv("TUTORIAL_SUMMARY");
  if (path == nullptr || *path == '\0') return;
  std::ofstream(path, std::ios::app) << summary_line(chapter, results) << "\n";
}

}  // namespace tutorial
