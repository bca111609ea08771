#include "shared_memory.hpp"

#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "block.hpp"
#include "emulator/shared.hpp"

namespace emulator {
namespace {

/// The part of this thread's thread_local variables of the executable that starts as zeros.
struct ZeroPart {
  char* begin = nullptr;
  std::size_t bytes = 0;
  std::size_t before = 0;
};

int find_zero_part(dl_phdr_info* module, std::size_t, void* result) {
  for (int i = 0; i < module->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = module->dlpi_phdr[i];
    if (segment.p_type != PT_TLS) continue;
    *static_cast<ZeroPart*>(result) = {static_cast<char*>(module->dlpi_tls_data) + segment.p_filesz,
                                       segment.p_memsz - segment.p_filesz, segment.p_filesz};
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
  before_ = part.before;
}

void StaticSharedMemory::fill() {
  if (bytes_ > 0) std::memset(begin_, kPoison, bytes_);
}

bool StaticSharedMemory::is_untouched() const {
  return std::all_of(begin_, begin_ + bytes_, [](char byte) { return byte == static_cast<char>(kPoison); });
}

DynamicSharedMemory::DynamicSharedMemory(std::size_t bytes, bool closable) : bytes_(bytes) {
  if (closable && !sanitizer::kAddress) {  // access is granted by pages
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    alignment_ = std::align_val_t{page};
    bytes = (bytes + page - 1) / page * page;
  }
  if (bytes > 0) data_ = ::operator new(bytes, alignment_);
}

DynamicSharedMemory::~DynamicSharedMemory() {
  const sanitizer::Unwatched unwatched;  // the threads that used it are not ordered before this one
  open();
  ::operator delete(data_, alignment_);
}

void DynamicSharedMemory::fill() {
  if (bytes_ > 0) std::memset(data_, kPoison, bytes_);
}

void DynamicSharedMemory::close() {
  if (!is_closed_) set_access(false);
}

void DynamicSharedMemory::open() {
  if (is_closed_) set_access(true);
}

void DynamicSharedMemory::set_access(bool allowed) {
  is_closed_ = !allowed;
  if (bytes_ == 0) return;
  if (sanitizer::kAddress) {
    sanitizer::set_access(data_, bytes_, allowed);
  } else {
    const auto page = static_cast<std::size_t>(alignment_);
    (void)mprotect(data_, (bytes_ + page - 1) / page * page, allowed ? PROT_READ | PROT_WRITE : PROT_NONE);
  }
}

bool DynamicSharedMemory::contains(const void* address, std::size_t bytes) const {
  const auto* begin = static_cast<const std::byte*>(data_);
  const auto* first = static_cast<const std::byte*>(address);
  return begin && first >= begin && first + bytes <= begin + bytes_;
}

void* dynamic_shared() {
  return Block::current()->dynamic_shared().data();
}

std::size_t dynamic_shared_size() {
  return Block::current()->dynamic_shared().bytes();
}

}  // namespace emulator
