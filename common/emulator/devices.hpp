#pragma once
/// @file
/// The devices: how many there are, which is the current one, whose memory an address is in, and who may access whose.

#include <cstddef>
#include <span>
#include <string>

namespace emulator {

/// Devices that there are. @throws std::invalid_argument for a bad EMULATOR_DEVICES
int device_count();
/// Whether there is a device of this number. @throws std::invalid_argument
bool is_device(int device);
/// That of this host thread.
int current_device();
/// Whether kernels of `device` may access the memory of `peer`.
bool may_access(int device, int peer);

/// Whether the range lies in one allocation of this device; an empty range does.
bool is_memory_of(const void* begin, std::size_t bytes, int device);

/// Whether the address lies in an allocation of any device.
bool is_device_memory(const void* address);

/// "byte 12 of an allocation of 4096 bytes", or the address for memory that is not a device's.
std::string describe_memory(const void* address);

/// A line about the first pointer among a kernel's arguments that points into memory which the current device may not
/// access; empty if there is none. Pointers that the kernel finds in memory are not seen.
/// @param arguments their bytes, aligned like a pointer
std::string find_memory_of_others(std::span<const std::byte> arguments);

}  // namespace emulator
