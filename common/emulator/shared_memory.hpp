#pragma once
/// @file
/// The shared memory of the block that an OS thread runs. Every block finds it filled with 0xFF, a NaN in every
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

 private:
  char* begin_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Dynamic shared memory of exactly the size asked for, so that AddressSanitizer sees an access beyond it.
class DynamicSharedMemory {
 public:
  static constexpr std::align_val_t kAlignment{1024};

  /// @throws std::bad_alloc
  explicit DynamicSharedMemory(std::size_t bytes);
  ~DynamicSharedMemory();
  DynamicSharedMemory(const DynamicSharedMemory&) = delete;
  DynamicSharedMemory& operator=(const DynamicSharedMemory&) = delete;

  void fill();
  void* data() { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

}  // namespace emulator
