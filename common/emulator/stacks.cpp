#include "stacks.hpp"

#include <sys/mman.h>

#include <new>

namespace emulator {
namespace {

constexpr std::size_t kGuardBytes = 4096;
constexpr std::size_t kStackBytes = 256 * 1024;  // room for a kernel's arrays, also without optimisation
constexpr std::size_t kStride = kGuardBytes + kStackBytes;

// All threads of a block use the same depth of their stacks. Were these all a multiple of a page apart, the lines would
// compete for the same few sets of the cache; so each stack starts somewhere else in its page.
constexpr std::size_t kColours = 16;
constexpr std::size_t kColourBytes = 192;

}  // namespace

void Stacks::reserve(unsigned count) {
  if (count <= count_) return;
  release();
  void* memory = mmap(nullptr, count * kStride, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  memory_ = static_cast<char*>(memory);
  count_ = count;
  bytes_ = count * kStride;
  for (unsigned i = 0; i < count; ++i) {
    if (mprotect(memory_ + i * kStride, kGuardBytes, PROT_NONE) != 0) throw std::bad_alloc();
  }
}

void Stacks::release() {
  if (memory_) munmap(memory_, count_ * kStride);
  memory_ = nullptr;
  count_ = 0;
  bytes_ = 0;
}

Stacks::~Stacks() {
  release();
}

sanitizer::StackBounds Stacks::bounds(unsigned i) const {
  return {memory_ + i * kStride + kGuardBytes, kStackBytes};
}

char* Stacks::top(unsigned i) const {
  return memory_ + (i + 1) * kStride - i % kColours * kColourBytes;
}

bool Stacks::overflowed(const void* address) const {
  const auto* byte = static_cast<const char*>(address);
  return contains(address) && static_cast<std::size_t>(byte - memory_) % kStride < kGuardBytes;
}

}  // namespace emulator
