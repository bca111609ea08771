#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <new>

#include "emulator/runtime_memory.hpp"
#include "environment.hpp"
#include "error.hpp"
#include "shared_memory.hpp"
#include "stream.hpp"

namespace emulator {
namespace {

constexpr std::align_val_t kAlignment{256};

std::mutex mutex;
std::map<const std::byte*, std::size_t, std::greater<>> allocations;  // size by address, the highest address first
std::size_t allocated = 0;

std::size_t total_memory() {
  static const std::size_t machine =
      static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return memory_from_environment().value_or(machine);
}

std::size_t available_memory() {
  const std::size_t total = total_memory();
  const std::lock_guard lock(mutex);
  return total > allocated ? total - allocated : 0;
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
  std::memset(memory, kPoison, bytes);
  const std::lock_guard lock(mutex);
  allocations[static_cast<const std::byte*>(memory)] = bytes;
  allocated += bytes;
  *pointer = memory;
  return cudaSuccess;
}

cudaError_t deallocate(void* pointer) {
  if (const cudaError_t error = forbid_during_capture(); error != cudaSuccess) return error;
  if (!pointer) return cudaSuccess;
  {
    const std::lock_guard lock(mutex);
    const auto found = allocations.find(static_cast<const std::byte*>(pointer));
    if (found == allocations.end()) return cudaErrorInvalidValue;
    allocated -= found->second;
    allocations.erase(found);
  }
  ::operator delete(pointer, kAlignment);
  return cudaSuccess;
}

enum class Place { host, device, beyond_device };

/// Where a range lies: in one allocation of the device, in host memory, or partly beyond the end of an allocation.
Place place_of(const void* pointer, std::size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(pointer);
  const std::lock_guard lock(mutex);
  const auto found = allocations.lower_bound(begin);  // the last allocation that begins at or before the range
  if (found == allocations.end()) return Place::host;
  const auto offset = static_cast<std::size_t>(begin - found->first);
  if (offset >= found->second) return Place::host;
  return bytes <= found->second - offset ? Place::device : Place::beyond_device;
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

cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return refuse(stream, cudaErrorInvalidMemcpyDirection);
  if (!direction_fits(kind, place_of(to, bytes), place_of(from, bytes))) return refuse(stream, cudaErrorInvalidValue);
  return submit(stream, [=] {
    std::memmove(to, from, bytes);
    return cudaSuccess;
  });
}

cudaError_t set(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  if (place_of(to, bytes) != Place::device) return refuse(stream, cudaErrorInvalidValue);
  return submit(stream, [=] {
    std::memset(to, value, bytes);
    return cudaSuccess;
  });
}

}  // namespace
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
  return result(emulator::copy(to, from, bytes, kind, nullptr));
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return result(emulator::copy(to, from, bytes, kind, stream));
}

cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  return result(emulator::set(to, value, bytes, nullptr));
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  return result(emulator::set(to, value, bytes, stream));
}

cudaError_t cudaMemGetInfo(std::size_t* available, std::size_t* total) {
  if (!available || !total) return result(cudaErrorInvalidValue);
  return emulator::checked_result([&] {
    *total = emulator::total_memory();
    *available = emulator::available_memory();
    return cudaSuccess;
  });
}
