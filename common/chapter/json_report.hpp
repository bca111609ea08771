#pragma once
/// @file
/// The results of a run and the list of a chapter, for programs.

#include <string>
#include <vector>

#include "common/chapter/chapter.hpp"
#include "common/chapter/result.hpp"
#include "common/chapter/run_operator.hpp"

namespace tutorial {

/// The results as JSON: numbers are finite or null, what did not run or was not measured is null. The names end in the
/// unit where there is one: _ms, _gb_s (10^9 bytes a second), _tflop_s (10^12 operations a second); bytes and flops are
/// counts.
std::string to_json(const Chapter& chapter, const RunSettings& settings, const std::vector<OperatorResult>& results);

/// What --list shows, as JSON: the operators, the options that set their sizes, and their stages.
/// @param operator_name of those to list; empty: all
std::string list_to_json(const Chapter& chapter, const std::string& operator_name);

/// Writes to a file, whole or not at all, or to standard output where the path is "-". Throws UsageError where a file
/// cannot be written; for standard output, std::ferror() tells.
void write_json(const std::string& path, const std::string& json);

}  // namespace tutorial
