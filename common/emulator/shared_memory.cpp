#include "shared_memory.hpp"

#include <link.h>

#include <cstring>

#include "block.hpp"
#include "emulator/shared.hpp"

namespace emulator {
namespace {

/// The part of this thread's thread_local variables of the executable that starts as zeros.
struct ZeroPart {
  char* begin = nullptr;
  std::size_t bytes = 0;
};

int find_zero_part(dl_phdr_info* module, std::size_t, void* result) {
  for (int i = 0; i < module->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = module->dlpi_phdr[i];
    if (segment.p_type != PT_TLS) continue;
    *static_cast<ZeroPart*>(result) = {static_cast<char*>(module->dlpi_tls_data) + segment.p_filesz,
                                       segment.p_memsz - segment.p_filesz};
  }
  return 1;  // the executable is the first module: look no further
}

}  // namespace

StaticSharedMemory::StaticSharedMemory() {
  if (sanitizer::kAddress) return;
  ZeroPart part;
  dl_iterate_phdr(find_zero_part, &part);
  begin_ = part.begin;
  bytes_ = part.bytes;
}

void StaticSharedMemory::fill() {
  if (bytes_ > 0) std::memset(begin_, kPoison, bytes_);
}

DynamicSharedMemory::DynamicSharedMemory(std::size_t bytes) : bytes_(bytes) {
  if (bytes > 0) data_ = ::operator new(bytes, kAlignment);
}

DynamicSharedMemory::~DynamicSharedMemory() {
  const sanitizer::Unwatched unwatched;  // the threads that used it are not ordered before this one
  ::operator delete(data_, kAlignment);
}

void DynamicSharedMemory::fill() {
  if (bytes_ > 0) std::memset(data_, kPoison, bytes_);
}

void* dynamic_shared() {
  return Block::current()->dynamic_shared().data();
}

std::size_t dynamic_shared_size() {
  return Block::current()->dynamic_shared().bytes();
}

}  // namespace emulator
