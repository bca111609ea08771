#pragma once
/// @file
/// What the async proxy sees of a block's dynamic shared memory: see include/emulator/async_proxy.hpp.

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <vector>

namespace emulator {

class Block;
struct KernelThread;

/// Writes to shared memory that bulk copies and products do not see before their thread's next fence.
struct AsyncProxyWrites {
  struct Write {
    void* address;
    std::size_t bytes;
    std::byte data[16];
  };

  std::vector<Write> pending;
  std::uint32_t last_fence = 0;  ///< the number of the thread's last fence among those of its block; 0 if none

  /// As at the start of a block.
  void reset();
};

/// The last time that a thread has read some 16 bytes of shared memory by itself, not by a copy.
struct SharedRead {
  const KernelThread* reader = nullptr;  ///< nullptr if none has
  std::uint32_t fences = 0;              ///< of the block before it
  std::source_location where;
};

/// The async proxy of one block: an image of its dynamic shared memory.
class AsyncProxy {
 public:
  explicit AsyncProxy(Block& block) : block_(block) {}

  /// As at the start of a block.
  void reset();
  void check_at_end() {}
  /// Reads shared memory as bulk copies see it. Static arrays have no image and are read themselves.
  void read(const void* address, std::byte* data, std::size_t bytes);
  /// Writes the image alone.
  void write(const void* address, const void* data, std::size_t bytes);
  /// The place in the image that stands for this part of dynamic shared memory; nullptr for other memory.
  std::byte* image(const void* address, std::size_t bytes);
  /// Whether bulk copies see there what threads do.
  bool is_fenced(const void* address, std::size_t bytes);
  /// What the thread that runs has written reaches the image. @param orders_reads what it has read comes before loads, too
  void fence(bool orders_reads);
  /// See emulator::note_shared_read().
  void note_read(const void* address, std::source_location where);
  /// A read of these bytes after which neither its thread nor `writer` has called fence_async_proxy(); nullptr if there
  /// is none.
  const SharedRead* unfenced_read(const void* address, std::size_t bytes, const KernelThread& writer);

 private:
  /// What is known of reads from this address on; nullptr for memory of which nothing is noted.
  SharedRead* reads(const void* address, std::size_t bytes);

  Block& block_;
  std::vector<std::byte> image_;   ///< empty until it is needed
  std::vector<SharedRead> reads_;  ///< of 16 bytes each; empty until a bulk load writes to the memory
  std::uint32_t fences_ = 0;       ///< calls of fence_async_proxy()
};

}  // namespace emulator
