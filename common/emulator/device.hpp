#pragma once
/// @file
/// The limits of the devices that the emulator pretends to have: those of compute capability 9.0 (CUDA C++ Programming
/// Guide, "Technical Specifications per Compute Capability").

#include <cstddef>

namespace emulator::device {

inline constexpr int kMajor = 9;
inline constexpr int kMinor = 0;
inline constexpr unsigned kThreadsPerBlock = 1024;
inline constexpr unsigned kBlockSize[3] = {1024, 1024, 64};
inline constexpr unsigned kGridSize[3] = {0x7FFFFFFF, 65535, 65535};
inline constexpr unsigned kBlocksPerCluster = 8;  ///< unless a kernel allows more, which not all GPUs have
inline constexpr unsigned kThreadsPerMultiprocessor = 2048;
inline constexpr unsigned kBlocksPerMultiprocessor = 32;
inline constexpr int kRegisters = 65536;                         ///< of a multiprocessor, and at most of a block
inline constexpr std::size_t kSharedPerBlock = 48 * 1024;        ///< unless cudaFuncSetAttribute() raised it
inline constexpr std::size_t kSharedPerBlockOptin = 227 * 1024;  ///< at most
inline constexpr std::size_t kSharedReserved = 1024;             ///< by the system, in each block
inline constexpr std::size_t kSharedPerMultiprocessor = 228 * 1024;
inline constexpr int kL2Bytes = 60 * 1024 * 1024;
inline constexpr unsigned kMultiprocessors = 132;  ///< unless EMULATOR_MULTIPROCESSORS is set

/// Bytes of dynamic shared memory that a launch of this kernel may ask for.
std::size_t dynamic_shared_limit(const void* kernel);

}  // namespace emulator::device
