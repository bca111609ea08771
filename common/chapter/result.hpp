#pragma once
/// @file
/// What is known of a stage after it ran.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/chapter/machine.hpp"
#include "common/chapter/operator.hpp"
#include "common/chapter/stage_tensors.hpp"
#include "common/timing.hpp"

namespace tutorial {

/// What a run found out about a stage.
struct StageResult {
  const Stage* stage = nullptr;
  std::string runs_on;  ///< cpu, gpu or emulator

  std::string skipped;  ///< why it did not run; empty where it did
  std::string failure;  ///< what went wrong, a line or more; empty where nothing did
  std::string note;     ///< what the stage says of itself

  std::string checked_against;            ///< a stage, or "reference"
  std::optional<double> error;            ///< against that; not finite where an output is not
  std::optional<double> reference_error;  ///< against the reference in double
  double tolerance = 0;                   ///< of the reference error

  std::optional<Times> times;         ///< of a stage that passed
  std::vector<PartTimes> parts;       ///< of a stage that says what its parts are, in runs of their own
  std::optional<double> graph_ms;     ///< in a graph of many calls; GPU only
  double bytes = 0;                   ///< that it must move at least
  std::optional<double> memory;       ///< bytes beside inputs and outputs, where the stage says
  std::optional<double> bytes_moved;  ///< bytes that its kernels move, where the stage says
  double launches = 0;                ///< of kernels in a call
  Work work;                          ///< operations that it does
  std::optional<double> limit_ms;     ///< the machine could not be faster; none emulated or over devices
  KernelCounts counts;                ///< emulated stages only

  std::shared_ptr<const Outputs> outputs;  ///< what it computed, where that is kept

  /// It was run.
  bool ran() const { return skipped.empty(); }
  /// It was run and nothing went wrong.
  bool passed() const { return ran() && failure.empty(); }
  /// Its kernels were the emulator's.
  bool emulated() const { return runs_on == "emulator"; }
};

/// An operator's problem and the results of its stages.
struct OperatorResult {
  const Operator* definition = nullptr;
  Sizes sizes;
  double scale = 1;
  Parameters parameters;
  std::uint64_t seed = 0;
  std::vector<StageResult> stages;
  std::string note = {};  ///< on the inputs
  /// What files have in the place of a symbol: see Problem.
  std::map<std::string, Shape, std::less<>> flattened = {};
  std::vector<std::string> warnings = {};  ///< of files: see Problem
  bool heads_inside = false;               ///< see Problem
};

}  // namespace tutorial
