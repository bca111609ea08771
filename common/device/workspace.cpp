#include "common/device/workspace.hpp"

#include <map>
#include <string>

#include "common/device/buffer.hpp"

namespace tutorial {

void* workspace_bytes(std::string_view tag, std::size_t bytes, std::source_location where) {
  using Buffers = std::map<std::string, DeviceBuffer<std::byte>, std::less<>>;
  static auto& buffers = *new Buffers;  // never destroyed: at the end of the process CUDA may be gone before
  auto found = buffers.find(tag);
  if (found == buffers.end()) found = buffers.emplace(tag, DeviceBuffer<std::byte>()).first;
  DeviceBuffer<std::byte>& buffer = found->second;
  if (buffer.size() < bytes) {
    buffer = {};  // first, so that the old and the new one need not fit together
    buffer = DeviceBuffer<std::byte>(bytes, where);
  }
  return buffer.data();
}

}  // namespace tutorial
