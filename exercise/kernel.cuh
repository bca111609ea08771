#pragma once
/// @file
/// What the file of an exercise needs: arrays that know their size on the emulator and are plain memory on a GPU, and
/// launch().
///
/// On the emulator `x[i]` knows its line, and an index outside of the array is reported. What is read and written is seen
/// without the arrays: the compiler tells of each access (emulator/races.hpp).

#include <cuda_runtime.h>

#include "common/device/launch.cuh"

#if TUTORIAL_EMULATOR
#include <concepts>
#include <cstdint>
#include <source_location>
#include <type_traits>
#endif

namespace exercise {

#if TUTORIAL_EMULATOR

/// An index, and the place of the source where it stands.
struct Index {
  /// Any integer converts to it.
  template <std::integral Integer>
  Index(Integer i, std::source_location location = std::source_location::current()) : value(i), where(location) {}

  std::int64_t value;
  std::source_location where;
};

/// Notes an index outside of an array. @param name nullptr: that of the variable before the brackets
/// @param row of an array of two dimensions, -1 for others
void note_stray(const char* name, std::int64_t size, const Index& index, std::int64_t row);

/// What an index outside of an array gives. Not zero at first, so that it does not lie among the shared arrays.
template <class T>
inline thread_local std::remove_const_t<T> nowhere = std::remove_const_t<T>(1);

/// Element `index` of `size` elements.
template <class T>
__forceinline__ T& element(T* data, std::int64_t size, const Index& index, const char* name, std::int64_t row = -1) {
  if (index.value >= 0 && index.value < size) [[likely]]
    return data[index.value];
  note_stray(name, size, index, row);
  return nowhere<T>;
}

/// An array in device memory.
template <class T>
class Global {
 public:
  Global() = default;
  Global(T* data, std::int64_t size, const char* name) : data_(data), size_(size), name_(name) {}

  __forceinline__ T& operator[](Index i) const { return element(data_, size_, i, name_); }
  /// The address, for copies and matrix instructions.
  T* data() const { return data_; }

 private:
  T* data_ = nullptr;
  std::int64_t size_ = 0;
  const char* name_ = nullptr;
};

/// An array in shared memory: `__shared__ Shared<float, 64> tile;`, or one of rows: `Shared<float, 16, 32>`.
template <class T, int kRows, int kColumns = 0>
class Shared {
 public:
  /// A row of it.
  class Row {
   public:
    Row(T* data, std::int64_t row) : data_(data), row_(row) {}
    __forceinline__ T& operator[](Index column) const { return element(data_, kColumns, column, nullptr, row_); }
    /// Its address, as a row of a plain array gives it. A template, so that brackets are those above.
    template <class Pointer>
    requires std::same_as<Pointer, T*> || std::same_as<Pointer, const T*>
    operator Pointer() const { return data_; }

   private:
    T* data_;
    std::int64_t row_;
  };

  __forceinline__ decltype(auto) operator[](Index i) {
    if constexpr (kColumns > 0) {
      if (i.value >= 0 && i.value < kRows) [[likely]]
        return Row(values_ + i.value * kColumns, i.value);
      note_stray(nullptr, kRows, i, -1);
      return Row(values_, 0);
    } else {
      return element(values_, kRows, i, nullptr);
    }
  }
  /// The address, for copies and matrix instructions.
  T* data() { return values_; }

 private:
  alignas(16) T values_[kColumns > 0 ? kRows* kColumns : kRows];
};

#else

/// An array in device memory.
template <class T>
struct Global {
  T* elements = nullptr;
  __device__ T& operator[](long long i) const { return elements[i]; }
  __host__ __device__ T* data() const { return elements; }
};

/// The type of an array's element or row.
template <class T, int kColumns>
struct Rows {
  using Type = T[kColumns];
};
template <class T>
struct Rows<T, 0> {
  using Type = T;
};

/// An array in shared memory: `__shared__ Shared<float, 64> tile;`, or one of rows: `Shared<float, 16, 32>`.
template <class T, int kRows, int kColumns = 0>
struct Shared {
  alignas(16) typename Rows<T, kColumns>::Type elements[kRows];
  __device__ auto& operator[](int i) { return elements[i]; }
  __device__ T* data() { return reinterpret_cast<T*>(elements); }
};

#endif

}  // namespace exercise

using exercise::Global;  // so that the file of an exercise looks like a kernel's
using exercise::Shared;
using namespace tutorial;
