#pragma once
/// @file
/// The shared memory of the blocks that an OS thread runs. Every block finds it filled with 0xFF, a NaN in every
/// floating type: a GPU leaves there what the block before wrote.

#include <cstddef>
#include <new>

#include "sanitizer.hpp"

namespace emulator {

/// The byte that fills memory nobody has written yet.
inline constexpr int kPoison = 0xFF;

/// All `__shared__` variables of the program, as the OS thread that calls has them.
///
/// They are thread_local variables without an initial value; the linker puts these together, in the part of the
/// thread's block of such variables that starts as zeros. On a worker thread nothing else lives there that has to
/// outlast a block. With AddressSanitizer they are ordinary statics, which cannot be told from others: not filled.
class StaticSharedMemory {
 public:
  /// That of the OS thread that calls.
  StaticSharedMemory();
  /// All bytes become kPoison, as in DynamicSharedMemory::fill().
  void fill();
  /// Whether they all still are. Always, where they cannot be filled.
  bool is_untouched() const;
  const char* begin() const { return begin_; }
  std::size_t bytes() const { return bytes_; }
  /// All thread_local variables of the executable, these among them.
  const char* thread_locals() const { return begin_ - before_; }
  std::size_t thread_local_bytes() const { return before_ + bytes_; }

 private:
  char* begin_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t before_ = 0;  ///< bytes of variables with an initial value
};

/// Dynamic shared memory of exactly the size asked for, so that AddressSanitizer sees an access beyond it.
class DynamicSharedMemory {
 public:
  static constexpr std::align_val_t kAlignment{1024};

  /// @param closable whether close() will be called @throws std::bad_alloc
  DynamicSharedMemory(std::size_t bytes, bool closable);
  ~DynamicSharedMemory();
  DynamicSharedMemory(const DynamicSharedMemory&) = delete;
  DynamicSharedMemory& operator=(const DynamicSharedMemory&) = delete;

  void fill();
  /// From now on an access to it crashes, or is AddressSanitizer's to report: its block has ended.
  void close();
  /// It may be used again.
  void open();
  /// Whether this part of memory lies in it.
  bool contains(const void* address, std::size_t bytes) const;
  /// Where an address that it contains lies in it, in bytes.
  std::size_t offset(const void* address) const {
    return static_cast<std::size_t>(static_cast<const std::byte*>(address) - static_cast<const std::byte*>(data_));
  }
  void* data() { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void set_access(bool allowed);

  void* data_ = nullptr;
  std::size_t bytes_;
  std::align_val_t alignment_{kAlignment};
  bool is_closed_ = false;
};

}  // namespace emulator
