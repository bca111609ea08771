#pragma once
/// @file
/// A chapter's run in one line. The script that runs all chapters makes its last table of these lines.

#include <string>
#include <vector>

#include "common/chapter/chapter.hpp"
#include "common/chapter/result.hpp"

namespace tutorial {

/// Stages checked, failed and skipped, and of the chapter's first operator how the fastest stage compares with the first:
/// five fields, separated by tabs. Emulated times are not compared.
std::string summary_line(const Chapter& chapter, const std::vector<OperatorResult>& results);

/// Appends the line to the file that TUTORIAL_SUMMARY names, if it names one.
void append_summary(const Chapter& chapter, const std::vector<OperatorResult>& results);

}  // namespace tutorial
