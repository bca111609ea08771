#pragma once
/// @file
/// Device memory that frees itself. Copies and fills go to current_stream(); where the runtime refuses one, or an
/// earlier kernel of the stream has failed, they throw CudaError.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/device/error.hpp"
#include "common/device/stream.hpp"

namespace tutorial {

/// `size()` elements of T in device memory. They are not initialised; on the emulator they are NaN.
template <class T>
class DeviceBuffer {
  static_assert(std::is_trivially_destructible_v<T>, "elements are copied byte by byte");

 public:
  DeviceBuffer() = default;

  /// @throws CudaError with the code cudaErrorMemoryAllocation if the device has too little memory
  explicit DeviceBuffer(std::size_t size, std::source_location where = std::source_location::current()) : size_(size) {
    if (size > SIZE_MAX / sizeof(T)) check(cudaErrorMemoryAllocation, where);
    if (size > 0) check(cudaMalloc(reinterpret_cast<void**>(&data_), size * sizeof(T)), where);
  }

  /// A copy of `host`. @throws CudaError as above
  explicit DeviceBuffer(std::span<const T> host, std::source_location where = std::source_location::current())
      : DeviceBuffer(host.size(), where) {
    upload(host, where);
  }
  /// A copy of the host's elements. @throws CudaError as above
  explicit DeviceBuffer(const std::vector<T>& host, std::source_location where = std::source_location::current())
      : DeviceBuffer(std::span<const T>(host), where) {}

  ~DeviceBuffer() {
    if (data_ != nullptr) (void)cudaFree(data_);  // an error here is that of an earlier kernel; the next check has it
  }
  /// Takes the other's memory.
  DeviceBuffer(DeviceBuffer&& other) noexcept { swap(other); }
  /// Takes the other's memory.
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    DeviceBuffer(std::move(other)).swap(*this);
    return *this;
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return size_; }
  /// Of all elements.
  std::size_t bytes() const { return size_ * sizeof(T); }

  /// Overwrites the first elements with those of `host`, after the work that the stream has before. `host` may be
  /// changed when it returns. @throws std::length_error if they do not fit
  void upload(std::span<const T> host, std::source_location where = std::source_location::current()) {
    if (host.size() > size_) throw std::length_error("upload of more than a DeviceBuffer holds");
    copy(data_, host.data(), host.size(), cudaMemcpyHostToDevice, where);
  }

  /// A copy of all elements, taken after the work that the stream has before.
  std::vector<T> download(std::source_location where = std::source_location::current()) const {
    std::vector<T> host(size_);
    copy(host.data(), data_, size_, cudaMemcpyDeviceToHost, where);
    return host;
  }

  /// Sets every byte, in the order of the stream: 0xFF makes NaNs of floats.
  void fill_bytes(unsigned char value, std::source_location where = std::source_location::current()) {
    if (size_ > 0) check(cudaMemsetAsync(data_, value, bytes(), current_stream()), where);
  }

 private:
  void swap(DeviceBuffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

  static void copy(void* to, const void* from, std::size_t count, cudaMemcpyKind kind, std::source_location where) {
    if (count == 0) return;
    check(cudaMemcpyAsync(to, from, count * sizeof(T), kind, current_stream()), where);
    check(cudaStreamSynchronize(current_stream()), where);
  }

  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace tutorial
