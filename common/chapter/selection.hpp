#pragma once
/// @file
/// What a command line selects of a chapter.

#include <vector>

#include "common/chapter/chapter.hpp"
#include "common/chapter/options.hpp"
#include "common/chapter/problem.hpp"

namespace tutorial {

/// An operator that is to be run: which of its stages, on which problem.
struct Task {
  const Operator* definition;
  std::vector<const Stage*> stages;
  ProblemRequest request = {};
  Problem problem = {};  ///< its inputs only while it runs
};

/// What is to be run, in the chapter's order.
struct Selection {
  std::vector<const NamedDemonstration*> demonstrations;
  std::vector<Task> tasks;
};

/// The demonstrations, operators and stages that the options select. Throws UsageError where they name something that
/// there is not, where nothing that is selected has a use for an option, and where --cpu-only leaves no stage.
Selection select(const Chapter& chapter, const Options& options);

/// Throws UsageError where --operator names something that there is not.
void require_known_operator(const Chapter& chapter, const Options& options);

}  // namespace tutorial
