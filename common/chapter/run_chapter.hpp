#pragma once
/// @file
/// One run of a chapter, from parsed options to the last file written.

#include "common/chapter/chapter.hpp"
#include "common/chapter/options.hpp"

namespace tutorial {

/// Runs, checks, times and reports what the options ask for. Returns whether all checks passed. Throws UsageError, and
/// then nothing has been written.
bool run_chapter(const Chapter& chapter, const Options& options);

}  // namespace tutorial
