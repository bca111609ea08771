#pragma once
/// @file
/// Scratch memory of the device that is kept from call to call.

#include <cstddef>
#include <source_location>
#include <string_view>
#include <type_traits>

namespace tutorial {

/// At least `bytes` bytes of the current device's memory, aligned to 256, that belong to `tag` and to the calling host
/// thread until the process ends. It grows, but never shrinks: a stage that has run once finds its memory without an
/// allocation, which a CUDA graph that is being captured would not allow. Growing invalidates the tag's earlier pointers.
/// Threads that launch at the same time do not share memory; one that starts may get that of one that has ended.
/// @param tag says whose memory it is, such as "chunk_states"; a thread's calls with the same tag share it
/// @throws CudaError with the code cudaErrorMemoryAllocation if the device has too little memory
void* workspace_bytes(std::string_view tag, std::size_t bytes,
                      std::source_location where = std::source_location::current());

/// Bytes that belong to `tag` and this thread on the current device now, 0 for a tag that it has not used. They can be had
/// again, whatever else the device has left.
std::size_t workspace_size(std::string_view tag);

/// At least `count` elements of T; see workspace_bytes(), also for what it throws. What they hold is left from the last
/// call.
template <class T>
T* workspace(std::string_view tag, std::size_t count, std::source_location where = std::source_location::current()) {
  static_assert(std::is_trivially_destructible_v<T>);
  return static_cast<T*>(workspace_bytes(tag, count * sizeof(T), where));
}

}  // namespace tutorial
