#pragma once
/// @file
/// warp_exchange() with types: what most collectives of a warp are written in.

#include <array>
#include <source_location>
#include <type_traits>

#include "emulator/builtins.hpp"
#include "emulator/warp.hpp"

namespace emulator {

/// Something for each lane of a warp.
template <class T>
using PerLane = std::array<T, kWarpSize>;

/// What each lane gave. Lanes that gave nothing, because the mask leaves them out or the block does not have them, are
/// 0xFF bytes. Ends the launch where warp_exchange() does.
template <class T>
requires std::is_trivially_copyable_v<T> PerLane<T> gather(unsigned mask, const T& mine, std::source_location where) {
  PerLane<T> all;
  warp_exchange(mask, &mine, sizeof(T), all.data(), where);
  return all;
}

/// The lanes of this warp that the block has: fewer than 32 at the end of a block of, say, 40 threads.
inline unsigned existing_lanes() {
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  const unsigned number = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned from_here = threads - number / kWarpSize * kWarpSize;
  return from_here >= kWarpSize ? ~0u : (1u << from_here) - 1;
}

/// Calls visit(lane) for each lane of a mask, the lowest first.
template <class Visit>
void for_each_lane(unsigned mask, Visit visit) {
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    if (mask >> lane & 1) visit(lane);
  }
}

}  // namespace emulator
