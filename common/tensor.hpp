#pragma once
/// @file
/// A tensor on the host: an element type, a shape and packed bytes.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/dtype.hpp"

namespace tutorial {

/// Sizes of the dimensions, the outermost first.
using Shape = std::vector<std::int64_t>;

/// Elements of a tensor of this shape; 1 for the empty shape. Throws UsageError on a negative dimension and where the
/// product or its size in bytes does not fit in 63 bits.
std::int64_t element_count(const Shape& shape);

/// "[2, 1, 70, 40]".
std::string to_string(const Shape& shape);

/// The index of element `offset` of a packed tensor of this shape, which has such an element.
Shape index_of(const Shape& shape, std::int64_t offset);

/// A packed tensor that owns its memory (aligned to 64 bytes). Moved, not copied: a copy is asked for with to().
class Tensor {
 public:
  Tensor() = default;
  /// The elements are left unwritten: see fill_bytes(). UsageError as in element_count(), std::bad_alloc where the
  /// memory is not there.
  Tensor(Dtype dtype, Shape shape);

  Dtype dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  std::int64_t size() const { return size_; }
  /// Of all elements.
  std::size_t bytes() const { return static_cast<std::size_t>(size_) * size_of(dtype_); }

  std::byte* raw() { return memory_.get(); }
  const std::byte* raw() const { return memory_.get(); }

  /// The elements as T, which must be the tensor's type (else std::logic_error). A bf16 or fp16 tensor's bits are
  /// reached through raw().
  template <class T>
  std::span<T> elements() {
    require(DtypeOf<T>::value);
    return {reinterpret_cast<T*>(raw()), static_cast<std::size_t>(size_)};
  }
  /// The same, to be read.
  template <class T>
  std::span<const T> elements() const {
    require(DtypeOf<T>::value);
    return {reinterpret_cast<const T*>(raw()), static_cast<std::size_t>(size_)};
  }

  /// Element `offset` of the packed memory, whatever the type; it is not checked against size().
  double value(std::int64_t offset) const;

  /// The same elements under another shape of as many; std::logic_error for one of more or fewer.
  void reshape(Shape shape);

  /// Every byte set to `byte`. 0xFF makes every element of a floating-point type a NaN.
  void fill_bytes(unsigned char byte);

  /// A copy in another type (or the same), rounded to nearest, ties to even; from double to 16 bits by way of fp32.
  /// Between integer and floating-point types: std::logic_error. An int64 that does not fit in int32: UsageError.
  Tensor to(Dtype dtype) const;

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  void require(Dtype dtype) const;

  Dtype dtype_ = Dtype::fp32;
  Shape shape_;
  std::int64_t size_ = 0;
  std::unique_ptr<std::byte[], Free> memory_;
};

/// A packed copy in which the second and the third dimension, which there are, have changed places.
Tensor swap_second_and_third(const Tensor& tensor);

/// Rounds every element of an fp32 tensor to the nearest bf16 value, ties to even, in place. std::logic_error for a
/// tensor of another type.
void round_to_bf16(Tensor& tensor);

}  // namespace tutorial
