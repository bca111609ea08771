#pragma once
/// @file
/// The device that the emulator pretends to be: an entry of a table of NVIDIA's cards, of which EMULATOR_DEVICE chooses
/// one and may change single properties. All devices of a process are alike.

#include <cstddef>
#include <span>
#include <string>

#include "emulator/require.hpp"

namespace emulator {

/// What distinguishes one card from another.
struct DeviceModel {
  const char* name;  ///< in EMULATOR_DEVICE
  const char* card;  ///< as NVIDIA calls it
  int capability;    ///< compute capability 8.9 is 89
  int multiprocessors;
  std::size_t shared_per_block;           ///< bytes that a block may have at most, after cudaFuncSetAttribute()
  std::size_t shared_per_multiprocessor;  ///< bytes
  unsigned threads_per_multiprocessor;
  unsigned blocks_per_multiprocessor;
  int l2_bytes;
  int clock_khz;         ///< of the multiprocessors, at their highest rate
  int memory_clock_khz;  ///< of the memory, which moves two bits per line and clock
  int memory_bus_bits;   ///< lines between memory and chip

  /// That of EMULATOR_DEVICE and EMULATOR_MULTIPROCESSORS, read at each call; an H200 unless they are set.
  /// @throws std::invalid_argument, with a message for the user, if one of them makes no sense
  static DeviceModel current();
  /// All of the table.
  static std::span<const DeviceModel> all();

  /// Whether it is the card that is taken where EMULATOR_DEVICE names none.
  bool is_default() const;
  /// Whether a block may have so many bytes of shared memory; reports it if not.
  bool has_shared_memory(std::size_t bytes) const;
  /// "8.9"
  std::string capability_text() const;
  /// Whether it has it.
  bool has(Feature feature) const {
    return feature == Feature::warpgroup_products ? capability == 90 : capability >= 90;
  }
};

// The same for all of them (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
inline constexpr unsigned kThreadsPerBlock = 1024;
inline constexpr unsigned kBlockSize[3] = {1024, 1024, 64};
inline constexpr unsigned kGridSize[3] = {0x7FFFFFFF, 65535, 65535};
inline constexpr unsigned kBlocksPerCluster = 8;           ///< unless a kernel allows more, which not all GPUs have
inline constexpr int kRegisters = 65536;                   ///< of a multiprocessor, and at most of a block
inline constexpr std::size_t kSharedPerBlock = 48 * 1024;  ///< unless cudaFuncSetAttribute() raised it
inline constexpr std::size_t kSharedReserved = 1024;       ///< by the system, in each block

/// Bytes of dynamic shared memory that a launch of this kernel may ask for on the current device.
std::size_t dynamic_shared_limit(const void* kernel);

}  // namespace emulator
