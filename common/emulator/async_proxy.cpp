#include "emulator/async_proxy.hpp"

#include <algorithm>
#include <cstring>

#include "block.hpp"
#include "sanitizer.hpp"

namespace emulator {

std::byte* Block::async_image(const void* address, std::size_t bytes) {
  if (!dynamic_shared_.contains(address, bytes)) return nullptr;
  // Most kernels do not need it.
  if (async_image_.empty()) async_image_.assign(dynamic_shared_.bytes(), static_cast<std::byte>(kPoison));
  return async_image_.data() +
         (static_cast<const std::byte*>(address) - static_cast<const std::byte*>(dynamic_shared_.data()));
}

void Block::read_async_image(const void* address, std::byte* data, std::size_t bytes) {
  const std::byte* image = async_image(address, bytes);
  std::memcpy(data, image ? image : address, bytes);
}

void Block::write_async_image(const void* address, const void* data, std::size_t bytes) {
  if (std::byte* image = async_image(address, bytes)) std::memcpy(image, data, bytes);
}

bool Block::is_fenced(const void* address, std::size_t bytes) {
  const sanitizer::Unwatched unwatched;
  const std::byte* image = async_image(address, bytes);
  return !image || std::memcmp(image, address, bytes) == 0;
}

void push_async_proxy_write(void* address, const void* value, std::size_t bytes) {
  const sanitizer::Unwatched unwatched;
  AsyncProxyWrite write{.address = address, .bytes = bytes, .data = {}};
  std::memcpy(write.data, value, bytes);
  Block::current()->async_proxy_writes().push_back(write);
}

SharedRead* Block::shared_reads(const void* address, std::size_t bytes) {
  if (shared_reads_.empty() || !dynamic_shared_.contains(address, bytes)) return nullptr;
  const auto offset = static_cast<const std::byte*>(address) - static_cast<const std::byte*>(dynamic_shared_.data());
  return &shared_reads_[static_cast<std::size_t>(offset) / kSharedReadBytes];
}

void Block::note_shared_read(const void* address, std::source_location where) {
  if (SharedRead* read = shared_reads(address, kSharedReadBytes)) *read = {running_, fences_, where};
}

const SharedRead* Block::unfenced_read(const void* address, std::size_t bytes, const KernelThread& writer) {
  const sanitizer::Unwatched unwatched;
  // Noted from the first load on: what is read before it, no load has written.
  if (shared_reads_.empty()) shared_reads_.resize(dynamic_shared_.bytes() / kSharedReadBytes);
  const SharedRead* read = shared_reads(address, bytes);
  if (!read) return nullptr;
  const SharedRead* const end = read + bytes / kSharedReadBytes;
  const std::uint32_t fence_of_writer = writer.block == this ? writer.last_fence : 0;
  const auto is_unfenced = [&](const SharedRead& of) {
    return of.reader && std::max(of.reader->last_fence, fence_of_writer) <= of.fences;
  };
  read = std::find_if(read, end, is_unfenced);
  return read == end ? nullptr : read;
}

void note_shared_read(const void* address, std::source_location where) {
  const sanitizer::Unwatched unwatched;
  Block::current()->note_shared_read(address, where);
}

void fence_async_proxy(std::source_location where) {
  Block& block = *Block::current();
  block.require(Feature::bulk_copies, "fence.proxy.async", where);
  const sanitizer::Unwatched unwatched;
  if (block.skips(where)) return;
  for (const AsyncProxyWrite& write : block.async_proxy_writes()) {
    block.write_async_image(write.address, write.data, write.bytes);
  }
  block.async_proxy_writes().clear();
  block.count_fence();
}

}  // namespace emulator
