#pragma once
/// @file
/// What carries every collective of a warp: votes, ballots, ldmatrix; shuffles; and warp_product.hpp for mma.

#include <cstddef>
#include <cstdint>
#include <source_location>

namespace emulator {

inline constexpr unsigned kWarpSize = 32;

/// Exchanges values among the lanes of a warp: each lane named in `mask` gives `size` bytes at `mine` and returns when
/// all of them have. Then `all + lane * size` holds what `lane` gave, for all 32 lanes; bytes of a lane outside of
/// `mask`, or beyond the end of a block that is not a multiple of 32 threads, are 0xFF (a NaN in every floating type).
///
/// It does not order memory, unlike __syncwarp(). A lane that is missing from its own mask, lanes that disagree about
/// mask, size or place, and a lane of the mask that never comes end the launch with a report and
/// cudaErrorLaunchFailure.
/// @param where the call in the kernel, for reports
void warp_exchange(unsigned mask, const void* mine, std::size_t size, void* all, std::source_location where);

/// What a lane brings to a shuffle and takes from it.
struct Shuffled {
  std::uint64_t value;  ///< of which a shuffle is about the first bytes
  unsigned source;      ///< the lane whose value this one takes
};

/// warp_exchange() for shuffles, of which each lane takes one value: handing out all 32 to all would take longer.
/// @param size of the values: 8 bytes at most
void warp_shuffle(unsigned mask, Shuffled& mine, std::size_t size, std::source_location where);

/// The lane of the thread that runs: its index within the warp, 0 to 31. In kernels only.
unsigned lane();

}  // namespace emulator
