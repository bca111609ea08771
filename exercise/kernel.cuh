#pragma once
/// @file
/// What the file of an exercise needs: arrays that watch their accesses on the emulator and are plain memory on a GPU,
/// and launch().
///
/// On the emulator `x[i]` knows its line. The checker learns of each access: an index outside of the array, two threads
/// at one element without a barrier between them, an element that is read before it is written, and how often each
/// array is read.

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

/// Who did something to an element last.
struct Access {
  std::uint32_t launch;  ///< 0, or all bits set as in fresh shared memory: nobody
  std::uint32_t block;
  std::uint32_t thread;
  std::uint32_t block_barriers;
  std::uint32_t warp_barriers;
  std::uint32_t line;
};

/// What the checker knows of an element.
struct Cell {
  Access write;
  Access read;
  Access other_read;  ///< by another thread than `read`
};

/// What the checker knows of an array in global memory.
struct Record {
  const char* name;
  std::int64_t size;
  Cell* cells;
  bool is_input;  ///< written by the host
  std::uint64_t reads = 0;
  std::uint64_t writes = 0;
};

/// What an access is about. `record` is null for shared memory, whose cells lie beside its elements.
struct Place {
  Cell* cells;
  std::int64_t size;
  Record* record;
  Index index;
  std::int64_t row = -1;    ///< of an array of two dimensions
  std::int64_t offset = 0;  ///< of this row, in elements
};

/// The checker's side, in checker.cpp. They return false for an index outside of the array.
bool note_read(const Place& place);
bool note_write(const Place& place);
/// An address is taken, for an atomic operation: no order is asked for.
bool note_address(const Place& place);

/// What x[i] is: reading it and assigning to it are accesses. An access outside of the array reads a zero and writes
/// nowhere.
template <class T>
class Element {
 public:
  Element(T* data, const Place& place) : data_(data), place_(place) {}
  Element(const Element&) = default;

  operator T() const { return note_read(place_) ? *address() : T{}; }
  const Element& operator=(T value) const {
    if (note_write(place_)) *address() = value;
    return *this;
  }
  const Element& operator=(const Element& other) const { return *this = static_cast<T>(other); }
  const Element& operator+=(T value) const { return *this = static_cast<T>(*this) + value; }
  const Element& operator-=(T value) const { return *this = static_cast<T>(*this) - value; }
  const Element& operator*=(T value) const { return *this = static_cast<T>(*this) * value; }
  const Element& operator/=(T value) const { return *this = static_cast<T>(*this) / value; }
  T* operator&() const {
    static thread_local T nowhere;
    return note_address(place_) ? address() : &nowhere;
  }

 private:
  T* address() const { return data_ + place_.offset + place_.index.value; }

  T* data_;
  Place place_;
};

/// An array in global memory.
template <class T>
class Global {
 public:
  Global() = default;
  Global(T* data, Record* record) : data_(data), record_(record) {}

  auto operator[](Index i) const {
    const Place place{record_->cells, record_->size, record_, i};
    if constexpr (std::is_const_v<T>) {
      return note_read(place) ? data_[i.value] : std::remove_const_t<T>{};
    } else {
      return Element<T>(data_, place);
    }
  }
  /// The address, for copies and matrix instructions: accesses through it are not watched.
  T* data() const { return data_; }

 private:
  T* data_ = nullptr;
  Record* record_ = nullptr;
};

/// An array in shared memory: `__shared__ Shared<float, 64> tile;`, or one of rows: `Shared<float, 16, 32>`.
template <class T, int kRows, int kColumns = 0>
class Shared {
 public:
  /// A row of it.
  class Row {
   public:
    Row(Shared& array, Index row) : array_(array), row_(row) {}
    Element<T> operator[](Index column) const {
      // A row or column outside of its range gets an index outside of the row.
      if (row_.value < 0 || row_.value >= kRows) return {array_.values_, {array_.cells_, kRows, nullptr, row_}};
      const std::int64_t start = row_.value * kColumns;
      return {array_.values_, {array_.cells_ + start, kColumns, nullptr, column, row_.value, start}};
    }

   private:
    Shared& array_;
    Index row_;
  };

  auto operator[](Index i) {
    if constexpr (kColumns > 0) {
      return Row(*this, i);
    } else {
      return Element<T>(values_, {cells_, kRows, nullptr, i});
    }
  }
  /// The address, for copies and matrix instructions: accesses through it are not watched.
  T* data() { return values_; }

 private:
  alignas(16) T values_[kColumns > 0 ? kRows* kColumns : kRows];
  Cell cells_[kColumns > 0 ? kRows* kColumns : kRows];
};

#else

/// An array in global memory.
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
