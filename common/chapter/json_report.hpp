#pragma once
/// @file
/// The results of a run for programs.

#include <string>
#include <vector>

#include "common/chapter/chapter.hpp"
#include "common/chapter/result.hpp"
#include "common/chapter/run_operator.hpp"

namespace tutorial {

/// The results as JSON: numbers are finite or null, what did not run or was not measured is null.
std::string to_json(const Chapter& chapter, const RunSettings& settings, const std::vector<OperatorResult>& results);

}  // namespace tutorial
