#include "common/device/workspace.hpp"

#include <map>
#include <string>
#include <utility>

#include "common/device/buffer.hpp"

namespace tutorial {
namespace {

using Buffers = std::map<std::string, DeviceBuffer<std::byte>, std::less<>>;

/// Those of the current device.
Buffers& buffers() {
  static auto& all = *new std::map<int, Buffers>;  // never destroyed: at the end of the process CUDA may be gone before
  int device = 0;
  check(cudaGetDevice(&device));
  return all[device];
}

}  // namespace

void* workspace_bytes(std::string_view tag, std::size_t bytes, std::source_location where) {
  auto found = buffers().find(tag);
  if (found == buffers().end()) found = buffers().emplace(tag, DeviceBuffer<std::byte>()).first;
  DeviceBuffer<std::byte>& buffer = found->second;
  if (buffer.size() < bytes) {
    buffer = {};  // first, so that the old and the new one need not fit together
    buffer = DeviceBuffer<std::byte>(bytes, where);
  }
  return buffer.data();
}

std::size_t workspace_size(std::string_view tag) {
  const auto found = buffers().find(tag);
  return found == buffers().end() ? 0 : found->second.size();
}

}  // namespace tutorial
