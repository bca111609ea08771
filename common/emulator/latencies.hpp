#pragma once
/// @file
/// What the logical clocks of a trace count, in clocks of a multiprocessor. The emulator does not compute times. These
/// numbers only stretch the order of events, so that a picture of it resembles a GPU's.

#include <cstdint>

namespace emulator::latencies {

/// What the numbers are of. The pictures name it.
inline constexpr const char* kSource = "latencies of an H200";

// Measured by tools/instructions on an H200 (docs/notebook/02_linear_attention.md).
inline constexpr std::int64_t kArrival = 74;           ///< from an arrival until a warp of the block goes on
inline constexpr std::int64_t kRemoteArrival = 465;    ///< one of another block of the cluster
inline constexpr std::int64_t kWarpgroupBarrier = 31;  ///< a named barrier
inline constexpr std::int64_t kClusterBarrier = 374;
inline constexpr std::int64_t kLoad = 420;  ///< a bulk load from the second-level cache, without its bytes
inline constexpr std::int64_t kPush = 260;  ///< a bulk copy to another block, without its bytes
inline constexpr std::int64_t kProxyFence = 76;
inline constexpr std::int64_t kRegisterFactor = 4;  ///< what a product with A from registers takes longer

/// Of a product of 64 x n x 16, half of its columns: the rate of the tensor cores.
constexpr std::int64_t product(unsigned n) {
  return n / 2;
}
/// What bytes take on their way to a multiprocessor: 64 in a clock.
constexpr std::int64_t transfer(std::uint64_t bytes) {
  return static_cast<std::int64_t>(bytes / 64);
}
/// Bytes of a push, which are slower: 20 in a clock.
constexpr std::int64_t push_transfer(std::uint64_t bytes) {
  return static_cast<std::int64_t>(bytes / 20);
}

// Round numbers, which nothing depends on.
inline constexpr std::int64_t kStep = 6;         ///< each instruction that the trace knows
inline constexpr std::int64_t kCollective = 24;  ///< of a warp: a shuffle, ldmatrix(), stmatrix(), mma()
inline constexpr std::int64_t kBlockBarrier = 30;
inline constexpr std::int64_t kStoreRead = 300;  ///< until a bulk store has read shared memory
inline constexpr std::int64_t kStore = 700;      ///< until it is in memory
inline constexpr std::int64_t kCopy = 700;       ///< cp.async
inline constexpr std::int64_t kSleep = 100;
inline constexpr std::int64_t kLaunch = 4000;  ///< between two kernels

}  // namespace emulator::latencies
