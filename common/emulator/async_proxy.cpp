#include "emulator/async_proxy.hpp"

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

void fence_async_proxy(std::source_location where) {
  const sanitizer::Unwatched unwatched;
  Block& block = *Block::current();
  if (block.skips(where)) return;
  for (const AsyncProxyWrite& write : block.async_proxy_writes()) {
    block.write_async_image(write.address, write.data, write.bytes);
  }
  block.async_proxy_writes().clear();
}

}  // namespace emulator
