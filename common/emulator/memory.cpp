#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <string>

#include "devices.hpp"
#include "emulator/kernels_run.hpp"
#include "emulator/runtime_memory.hpp"
#include "environment.hpp"
#include "error.hpp"
#include "race_detector.hpp"
#include "shared_memory.hpp"
#include "stream.hpp"

namespace emulator {
namespace {

constexpr std::align_val_t kAlignment{256};

std::mutex allocations_mutex;
struct Allocation {
  std::size_t bytes;
  int device;
};
std::map<const std::byte*, Allocation, std::greater<>> allocations;  // by address, the highest address first
std::map<int, std::size_t> allocated;                                // bytes by device
std::atomic<std::uint64_t> devices_with_memory = 0;                  // bit by device, set once it had an allocation

std::size_t total_memory() {
  static const std::size_t machine =
      static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return memory_from_environment().value_or(machine);
}

std::size_t available_memory() {
  const std::size_t total = total_memory();
  const std::lock_guard lock(allocations_mutex);
  const std::size_t used = allocated[current_device()];
  return total > used ? total - used : 0;
}

cudaError_t allocate(void** pointer, std::size_t bytes) {
  if (!pointer) return cudaErrorInvalidValue;
  *pointer = nullptr;
  if (const cudaError_t error = forbid_during_capture(); error != cudaSuccess) return error;
  if (bytes == 0) return cudaSuccess;
  if (bytes > available_memory()) return cudaErrorMemoryAllocation;
  // Not a byte more than asked for: AddressSanitizer watches what follows.
  void* memory = ::operator new(bytes, kAlignment, std::nothrow);
  if (!memory) return cudaErrorMemoryAllocation;
  if (kernels_run()) std::memset(memory, kPoison, bytes);
  const std::lock_guard lock(allocations_mutex);
  const int device = current_device();
  allocations[static_cast<const std::byte*>(memory)] = {bytes, device};
  allocated[device] += bytes;
  devices_with_memory |= std::uint64_t{1} << device;
  *pointer = memory;
  return cudaSuccess;
}

cudaError_t deallocate(void* pointer) {
  if (const cudaError_t error = forbid_during_capture(); error != cudaSuccess) return error;
  if (!pointer) return cudaSuccess;
  races::Streams::instance().wait_on_host_for_all();  // what gets this memory next comes after all that used it
  {
    const std::lock_guard lock(allocations_mutex);
    const auto found = allocations.find(static_cast<const std::byte*>(pointer));
    if (found == allocations.end()) return cudaErrorInvalidValue;
    allocated[found->second.device] -= found->second.bytes;
    allocations.erase(found);
  }
  ::operator delete(pointer, kAlignment);
  return cudaSuccess;
}

/// The allocation that the address lies in; allocations_mutex is locked.
const Allocation* find_allocation(const void* address) {
  const auto* byte = static_cast<const std::byte*>(address);
  const auto found = allocations.lower_bound(byte);  // the last allocation that begins at or before it
  if (found == allocations.end()) return nullptr;
  return static_cast<std::size_t>(byte - found->first) < found->second.bytes ? &found->second : nullptr;
}

enum class Place { host, device, beyond_device };

/// Where a range lies: in one allocation of the device, in host memory, or partly beyond the end of an allocation.
Place place_of(const void* pointer, std::size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(pointer);
  const std::lock_guard lock(allocations_mutex);
  const auto found = allocations.lower_bound(begin);  // the last allocation that begins at or before the range
  if (found == allocations.end()) return Place::host;
  const auto offset = static_cast<std::size_t>(begin - found->first);
  if (offset >= found->second.bytes) return Place::host;
  return bytes <= found->second.bytes - offset ? Place::device : Place::beyond_device;
}

/// Stricter than a GPU, which takes device memory for host memory where it can.
bool direction_fits(cudaMemcpyKind kind, Place to, Place from) {
  switch (kind) {
    case cudaMemcpyHostToHost:
      return to == Place::host && from == Place::host;
    case cudaMemcpyHostToDevice:
      return to == Place::device && from == Place::host;
    case cudaMemcpyDeviceToHost:
      return to == Place::host && from == Place::device;
    case cudaMemcpyDeviceToDevice:
      return to == Place::device && from == Place::device;
    case cudaMemcpyDefault:
      return to != Place::beyond_device && from != Place::beyond_device;
  }
  return false;
}

cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream,
                 const void* return_address) {
  if (bytes == 0) return cudaSuccess;
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return refuse(stream, cudaErrorInvalidMemcpyDirection);
  const Place to_place = place_of(to, bytes), from_place = place_of(from, bytes);
  if (!direction_fits(kind, to_place, from_place)) return refuse(stream, cudaErrorInvalidValue);
  return submit(stream, [=] {
    std::memmove(to, from, bytes);
    return races::note_copy(to_place == Place::device ? to : nullptr, from_place == Place::device ? from : nullptr,
                            bytes, return_address);
  });
}

/// A copy during which the host waits; of one within a device it does not.
cudaError_t copy_and_wait(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                          const void* return_address) {
  const cudaError_t error = copy(to, from, bytes, kind, nullptr, return_address);
  races::Streams& streams = races::Streams::instance();
  const bool is_within = place_of(to, bytes) == Place::device && place_of(from, bytes) == Place::device;
  if (error == cudaSuccess && !is_within) streams.wait_on_host(streams.clock_of(number_of(nullptr)));
  return error;
}

cudaError_t set(void* to, int value, std::size_t bytes, cudaStream_t stream, const void* return_address) {
  if (bytes == 0) return cudaSuccess;
  if (place_of(to, bytes) != Place::device) return refuse(stream, cudaErrorInvalidValue);
  return submit(stream, [=] {
    std::memset(to, value, bytes);
    return races::note_copy(to, nullptr, bytes, return_address);
  });
}

}  // namespace

bool is_memory_of(const void* begin, std::size_t bytes, int device) {
  if (bytes == 0) return true;
  if (place_of(begin, bytes) != Place::device) return false;
  const std::lock_guard lock(allocations_mutex);
  return find_allocation(begin)->device == device;
}

bool is_device_memory(const void* address) {
  const std::lock_guard lock(allocations_mutex);
  return find_allocation(address) != nullptr;
}

std::string describe_memory(const void* address) {
  const auto* byte = static_cast<const std::byte*>(address);
  const std::lock_guard lock(allocations_mutex);
  const auto found = allocations.lower_bound(byte);
  if (found == allocations.end() || static_cast<std::size_t>(byte - found->first) >= found->second.bytes) {
    char text[40];
    std::snprintf(text, sizeof text, "memory at %p", address);
    return text;
  }
  return "global memory at byte " + std::to_string(byte - found->first) + " of an allocation of " +
         std::to_string(found->second.bytes) + " bytes";
}

std::string find_memory_of_others(std::span<const std::byte> arguments) {
  const int device = current_device();
  if ((devices_with_memory & ~(std::uint64_t{1} << device)) == 0) return {};
  const std::lock_guard lock(allocations_mutex);
  for (std::size_t offset = 0; offset + sizeof(void*) <= arguments.size(); offset += alignof(void*)) {
    const void* word = nullptr;
    std::memcpy(&word, arguments.data() + offset, sizeof word);
    const Allocation* found = find_allocation(word);
    if (!found || found->device == device || may_access(device, found->device)) continue;
    return "a kernel on device " + std::to_string(device) + " gets memory of device " + std::to_string(found->device) +
           ", which it may not access: no cudaDeviceEnablePeerAccess() has allowed it\n";
  }
  return {};
}

}  // namespace emulator

using emulator::result;

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  return emulator::checked_result([&] { return emulator::allocate(pointer, bytes); });
}

cudaError_t cudaFree(void* pointer) {
  return result(emulator::deallocate(pointer));
}

cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) {
  if (!pointer) return result(cudaErrorInvalidValue);
  *pointer = std::malloc(bytes);
  return result(*pointer || bytes == 0 ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeHost(void* pointer) {
  std::free(pointer);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  const void* const here = __builtin_return_address(0);
  return emulator::checked_result([&] { return emulator::copy_and_wait(to, from, bytes, kind, here); });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const void* const here = __builtin_return_address(0);
  return emulator::checked_result([&] { return emulator::copy(to, from, bytes, kind, stream, here); });
}

cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  const void* const here = __builtin_return_address(0);
  return emulator::checked_result([&] { return emulator::set(to, value, bytes, nullptr, here); });
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  const void* const here = __builtin_return_address(0);
  return emulator::checked_result([&] { return emulator::set(to, value, bytes, stream, here); });
}

cudaError_t cudaMemGetInfo(std::size_t* available, std::size_t* total) {
  if (!available || !total) return result(cudaErrorInvalidValue);
  return emulator::checked_result([&] {
    *total = emulator::total_memory();
    *available = emulator::available_memory();
    return cudaSuccess;
  });
}
