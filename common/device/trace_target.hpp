#pragma once
/// @file
/// What kernels and the host agree on about the events of a trace on a GPU (trace.cuh).

#include <cuda_runtime.h>

#include <cstdint>

#include "common/view.hpp"

namespace tutorial::trace {

inline constexpr unsigned kLaunches = 16;       ///< that have a part of the buffer of their own
inline constexpr unsigned kWarps = 32;          ///< of a block
inline constexpr unsigned kLogSlots = 17;       ///< of a warp
inline constexpr unsigned kClocksPerSlot = 4;   ///< two events of a warp are at least so far apart
inline constexpr std::uint32_t kOwnBlock = 15;  ///< in place of the rank of another block

/// The third word of an event: the barrier's place in shared memory or its number, a parity, the rank of its block, and the
/// kind. Of a wait the fourth word has its clocks, and a small number above.
struct Packed {
  static constexpr unsigned kObjectBits = 18, kParityShift = 18, kPeerShift = 19, kKindShift = 24, kSmallShift = 26;

  /// The place in a block's shared memory that an address names. In a cluster the address of a block's own memory has the
  /// block's rank above, from bit 24 on, where the kind is to stand.
  TUTORIAL_HOST_DEVICE static constexpr std::uint32_t place(std::uint32_t address) {
    return address & ((1u << kObjectBits) - 1);
  }
};

/// Where events go.
struct Target {
  uint4* slots;     ///< [kLaunches, blocks, kWarps, 2^kLogSlots]
  unsigned blocks;  ///< that are traced, the first ones of each launch; 0: none
};

/// Adds what tells a source's kernels where their events go. Returns true.
bool register_target(cudaError_t (*set)(const Target&));

}  // namespace tutorial::trace
