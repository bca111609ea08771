#pragma once
/// @file
/// One run of a chapter, from parsed options to the last file written.

#include "common/chapter/chapter.hpp"
#include "common/chapter/options.hpp"

namespace tutorial {

/// Runs, checks, times and reports what the options ask for. Returns whether all checks passed: an error of a stage is
/// a failed check. Throws UsageError for bad usage or input, before anything is computed or written; in the end where a
/// file cannot be written, and where every stage was skipped; CudaError where the GPU fails outside of a stage.
bool run_chapter(const Chapter& chapter, const Options& options);

}  // namespace tutorial
