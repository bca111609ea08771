#include "common/device/workspace.hpp"

#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "common/device/buffer.hpp"

namespace tutorial {
namespace {

using Buffers = std::map<std::string, DeviceBuffer<std::byte>, std::less<>>;

/// Those of the current device and of this thread, which alone uses them: only finding them needs the mutex. Keyed by the
/// thread's number and not thread_local, because a graph that a thread has captured may outlive it.
Buffers& buffers() {
  static std::mutex mutex;
  static auto& all =
      *new std::map<std::pair<int, std::thread::id>, Buffers>;  // never destroyed: CUDA may be gone before
  int device = 0;
  check(cudaGetDevice(&device));
  const std::lock_guard lock(mutex);
  return all[{device, std::this_thread::get_id()}];
}

}  // namespace

void* workspace_bytes(std::string_view tag, std::size_t bytes, std::source_location where) {
  Buffers& of_thread = buffers();
  auto found = of_thread.find(tag);
  if (found == of_thread.end()) found = of_thread.emplace(tag, DeviceBuffer<std::byte>()).first;
  DeviceBuffer<std::byte>& buffer = found->second;
  if (buffer.size() < bytes) {
    buffer = {};  // first, so that the old and the new one need not fit together
    buffer = DeviceBuffer<std::byte>(bytes, where);
  }
  return buffer.data();
}

std::size_t workspace_size(std::string_view tag) {
  const Buffers& of_thread = buffers();
  const auto found = of_thread.find(tag);
  return found == of_thread.end() ? 0 : found->second.size();
}

}  // namespace tutorial
