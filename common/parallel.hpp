#pragma once
/// @file
/// All processors of the host for a loop. With std::thread, not OpenMP, whose runtime ThreadSanitizer cannot see into.

#include <cstdint>
#include <functional>

namespace tutorial {

/// Processors that this process may use, at least 1.
int processor_count();

/// Calls body(begin, end) on up to one thread per processor, with disjoint ranges that cover 0..count; on the calling
/// thread alone where count is less than two `grain`, and not at all where it is 0. The first exception of a body is
/// rethrown when all have ended.
/// @param grain a range has at least so many, unless it is the only one
void parallel_for(std::int64_t count, const std::function<void(std::int64_t begin, std::int64_t end)>& body,
                  std::int64_t grain = 1 << 14);

}  // namespace tutorial
