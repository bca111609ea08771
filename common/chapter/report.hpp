#pragma once
/// @file
/// What a person reads: the heading, a row a stage as they finish, what the emulator counted, the summary.

#include <optional>
#include <string>
#include <vector>

#include "common/chapter/chapter.hpp"
#include "common/chapter/result.hpp"
#include "common/chapter/run_operator.hpp"
#include "common/chapter/table.hpp"
#include "common/terminal.hpp"

namespace tutorial {

/// Prints what a run finds, as it finds it.
class Report {
 public:
  /// `terminal` is where it prints.
  explicit Report(const Terminal& terminal) : terminal_(terminal) {}

  /// The chapter and the machine, with its measured roofline.
  void heading(const Chapter& chapter, const RunSettings& settings);

  /// What a demonstration shows.
  void demonstration(const NamedDemonstration& definition, const Demonstration& shown);

  /// The operator and its problem; then the header of its table.
  void begin_operator(const OperatorResult& result, const ProblemRequest& request,
                      const std::vector<const Stage*>& stages);
  /// One stage, which is the last one of `result`.
  void stage(const OperatorResult& result);
  /// What the kernels did: of emulated stages as the emulator has counted it, else as far as the stages tell.
  void end_operator(const OperatorResult& result) const;

  /// One line for all stages of the run, and one for each demonstration that failed.
  void summary(const std::vector<OperatorResult>& results) const;

 private:
  std::vector<Cell> cells_of(const OperatorResult& result, const StageResult& stage) const;
  std::string parts_of(const StageResult& stage) const;
  std::string ratio(double times) const;
  void title(const std::string& name, const std::string& summary) const;
  void counted_work(const OperatorResult& result) const;
  void stated_work(const OperatorResult& result) const;
  void stage_summary(const std::vector<OperatorResult>& results) const;

  const Terminal& terminal_;
  std::vector<std::string> failed_demonstrations_;
  std::optional<Table> table_;
  bool has_gpu_ = false;
  std::size_t name_width_ = 0;
  std::size_t column_count_ = 0;
  bool with_graph_ = false;
  bool with_memory_ = false;
};

}  // namespace tutorial
