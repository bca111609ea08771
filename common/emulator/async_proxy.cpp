#include "emulator/async_proxy.hpp"

#include <algorithm>
#include <cstring>

#include "block.hpp"
#include "latencies.hpp"
#include "sanitizer.hpp"

namespace emulator {
namespace {

constexpr std::size_t kReadBytes = 16;  // that a SharedRead stands for

}  // namespace

void AsyncProxyWrites::reset() {
  pending.clear();
  last_fence = 0;
}

void AsyncProxy::reset() {
  image_.clear();
  reads_.clear();
  fences_ = 0;
}

std::byte* AsyncProxy::image(const void* address, std::size_t bytes) {
  DynamicSharedMemory& memory = block_.dynamic_shared();
  if (!memory.contains(address, bytes)) return nullptr;
  // Most kernels do not need it.
  if (image_.empty()) image_.assign(memory.bytes(), static_cast<std::byte>(kPoison));
  return image_.data() + memory.offset(address);
}

void AsyncProxy::read(const void* address, std::byte* data, std::size_t bytes) {
  const std::byte* source = image(address, bytes);
  std::memcpy(data, source ? source : address, bytes);
}

void AsyncProxy::write(const void* address, const void* data, std::size_t bytes) {
  if (std::byte* place = image(address, bytes)) std::memcpy(place, data, bytes);
}

bool AsyncProxy::is_fenced(const void* address, std::size_t bytes) {
  const sanitizer::Unwatched unwatched;
  const std::byte* seen = image(address, bytes);
  return !seen || std::memcmp(seen, address, bytes) == 0;
}

void AsyncProxy::fence(bool orders_reads) {
  AsyncProxyWrites& writes = block_.thread().async_proxy_writes;
  for (const AsyncProxyWrites::Write& one : writes.pending) write(one.address, one.data, one.bytes);
  writes.pending.clear();
  ++fences_;
  if (orders_reads) writes.last_fence = fences_;
}

SharedRead* AsyncProxy::reads(const void* address, std::size_t bytes) {
  DynamicSharedMemory& memory = block_.dynamic_shared();
  if (reads_.empty() || !memory.contains(address, bytes)) return nullptr;
  return &reads_[memory.offset(address) / kReadBytes];
}

void AsyncProxy::note_read(const void* address, std::source_location where) {
  if (SharedRead* read = reads(address, kReadBytes)) *read = {&block_.thread(), fences_, where};
}

const SharedRead* AsyncProxy::unfenced_read(const void* address, std::size_t bytes, const KernelThread& writer) {
  const sanitizer::Unwatched unwatched;
  // Noted from the first load on: what is read before it, no load has written.
  if (reads_.empty()) reads_.resize(block_.dynamic_shared().bytes() / kReadBytes);
  const SharedRead* read = reads(address, bytes);
  if (!read) return nullptr;
  const SharedRead* const end = read + bytes / kReadBytes;
  const std::uint32_t fence_of_writer = writer.block == &block_ ? writer.async_proxy_writes.last_fence : 0;
  const auto is_unfenced = [&](const SharedRead& of) {
    return of.reader && std::max(of.reader->async_proxy_writes.last_fence, fence_of_writer) <= of.fences;
  };
  read = std::find_if(read, end, is_unfenced);
  return read == end ? nullptr : read;
}

void push_async_proxy_write(void* address, const void* value, std::size_t bytes) {
  const sanitizer::Unwatched unwatched;
  AsyncProxyWrites::Write write{.address = address, .bytes = bytes, .data = {}};
  std::memcpy(write.data, value, bytes);
  Block::current()->thread().async_proxy_writes.pending.push_back(write);
}

void note_shared_read(const void* address, std::source_location where) {
  const sanitizer::Unwatched unwatched;
  Block::current()->async_proxy().note_read(address, where);
  note_read(address, kReadBytes, where);
}

void fence_async_proxy(std::source_location where) {
  Block& block = *Block::current();
  block.require(Feature::bulk_copies, "fence.proxy.async", where);
  const sanitizer::Unwatched unwatched;
  if (block.skips(where)) return;
  using Fault = SkippedBarrier::Fault;
  block.async_proxy().fence(!block.has_fault(Fault::relaxed, where) && !block.has_fault(Fault::early, where));
  if (Recorder::active()) block.thread().clock += latencies::kProxyFence;
  if (races::Detector* detector = races::active()) detector->fence_proxy(where);
}

}  // namespace emulator
