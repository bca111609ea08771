#pragma once
/// @file
/// The warm-up: prefix sums in chunks. They show the plan of the whole chapter on plain numbers.

#include <string>
#include <vector>

#include "common/chapter/demonstration.hpp"

namespace tutorial {

/// The results of the two passes. All but `totals` and `carried` have one number per position.
struct ChunkedSums {
  std::vector<long> local;    ///< pass 1: prefix sums that begin anew in each chunk
  std::vector<long> totals;   ///< pass 1: the last local sum of each chunk
  std::vector<long> carried;  ///< pass 2: the totals of all chunks before each chunk
  std::vector<long> sums;     ///< pass 2: the chunk's carried total added to each of its local sums
};

/// The prefix sums of x in chunks of `chunk` numbers, 1 or more; the last chunk may be shorter. The sums must not
/// overflow.
/// Source: Blelloch, "Prefix Sums and Their Applications", CMU-CS-90-190, 1990.
ChunkedSums chunked_sums(const std::vector<long>& x, int chunk);

/// Shows the two passes on 0, 1, ... n - 1. It passes if the sums are those of a single loop.
Demonstration prefix_sum(int n, int chunk);

}  // namespace tutorial
