#include "common/tensor.hpp"

#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "common/error.hpp"
#include "common/parallel.hpp"
#include "common/small_float.hpp"

namespace tutorial {
namespace {

constexpr std::align_val_t kAlignment{64};

// How an element of a Dtype is stored and what it stands for. `Value` is the type that conversions go through.
template <class T>
struct Plain {
  using Storage = T;
  using Value = T;
  static Value load(Storage x) { return x; }
  static Storage store(double x) { return static_cast<T>(x); }
};
struct Bf16 {
  using Storage = std::uint16_t;
  using Value = float;
  static Value load(Storage x) { return float_from_bf16(x); }
  static Storage store(double x) { return bf16_from_float(static_cast<float>(x)); }
};
struct Fp16 {
  using Storage = std::uint16_t;
  using Value = float;
  static Value load(Storage x) { return float_from_fp16(x); }
  static Storage store(double x) { return fp16_from_float(static_cast<float>(x)); }
};

// Calls f with the element type of a Dtype.
template <class F>
auto with_element(Dtype dtype, F f) {
  switch (dtype) {
    case Dtype::fp32:
      return f(Plain<float>{});
    case Dtype::fp64:
      return f(Plain<double>{});
    case Dtype::bf16:
      return f(Bf16{});
    case Dtype::fp16:
      return f(Fp16{});
    case Dtype::int32:
      return f(Plain<std::int32_t>{});
    case Dtype::int64:
      return f(Plain<std::int64_t>{});
  }
  throw std::logic_error("not a Dtype");
}

template <class To, class From>
void convert(To, From, std::byte* to, const std::byte* from, std::int64_t count) {
  using FromValue = typename From::Value;
  using ToValue = typename To::Value;
  if constexpr (std::is_integral_v<FromValue> != std::is_integral_v<ToValue>) {
    throw std::logic_error("Tensor::to: between an integer and a floating-point type");
  } else {
    const auto* source = reinterpret_cast<const typename From::Storage*>(from);
    auto* target = reinterpret_cast<typename To::Storage*>(to);
    parallel_for(count, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        if constexpr (std::is_integral_v<ToValue>) {
          if (!std::in_range<ToValue>(source[i])) {
            throw UsageError(std::to_string(source[i]) + " does not fit in 32 bits");
          }
          target[i] = static_cast<ToValue>(source[i]);
        } else {
          target[i] = To::store(From::load(source[i]));
        }
      }
    });
  }
}

}  // namespace

std::int64_t element_count(const Shape& shape) {
  // Every size and every product times 8 bytes stays a non-negative std::int64_t; so a dimension after a zero is
  // checked, too.
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 8;
  std::int64_t count = 1;
  std::int64_t nonzero = 1;
  for (const std::int64_t size : shape) {
    if (size < 0) throw UsageError("shape " + to_string(shape) + " has a negative dimension");
    if (size > 0 && nonzero > kMost / size) throw UsageError("shape " + to_string(shape) + " has too many elements");
    nonzero *= size > 0 ? size : 1;
    count *= size;
  }
  return count;
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  }
  return text + "]";
}

Shape index_of(const Shape& shape, std::int64_t offset) {
  Shape index(shape.size());
  for (std::size_t i = shape.size(); i-- > 0;) {
    index[i] = offset % shape[i];
    offset /= shape[i];
  }
  return index;
}

void Tensor::Free::operator()(std::byte* memory) const {
  ::operator delete[](memory, kAlignment);
}

Tensor::Tensor(Dtype dtype, Shape shape) : dtype_(dtype), shape_(std::move(shape)), size_(element_count(shape_)) {
  memory_.reset(static_cast<std::byte*>(::operator new[](bytes(), kAlignment)));
}

void Tensor::require(Dtype dtype) const {
  if (dtype != dtype_) {
    throw std::logic_error("a tensor of " + std::string(name_of(dtype_)) + " asked for as " +
                           std::string(name_of(dtype)));
  }
}

double Tensor::value(std::int64_t offset) const {
  return with_element(dtype_, [&]<class Element>(Element) {
    const auto* data = reinterpret_cast<const typename Element::Storage*>(raw());
    return static_cast<double>(Element::load(data[offset]));
  });
}

void Tensor::reshape(Shape shape) {
  if (element_count(shape) != size_) {
    throw std::logic_error(to_string(shape_) + " has not as many elements as " + to_string(shape));
  }
  shape_ = std::move(shape);
}

void Tensor::fill_bytes(unsigned char byte) {
  if (bytes() > 0) std::memset(raw(), byte, bytes());
}

Tensor Tensor::to(Dtype dtype) const {
  Tensor result(dtype, shape_);
  if (dtype == dtype_) {
    if (bytes() > 0) std::memcpy(result.raw(), raw(), bytes());
    return result;
  }
  with_element(
      dtype, [&](auto to) { with_element(dtype_, [&](auto from) { convert(to, from, result.raw(), raw(), size_); }); });
  return result;
}

Tensor swap_second_and_third(const Tensor& tensor) {
  Shape shape = tensor.shape();
  const std::int64_t first = shape.at(0), second = shape.at(1), third = shape.at(2);
  std::swap(shape[1], shape[2]);
  Tensor swapped(tensor.dtype(), std::move(shape));
  if (tensor.size() == 0) return swapped;
  const std::size_t row = tensor.bytes() / static_cast<std::size_t>(first * second * third);
  const std::byte* from = tensor.raw();
  for (std::int64_t i = 0; i < first; ++i) {
    for (std::int64_t j = 0; j < second; ++j) {
      for (std::int64_t k = 0; k < third; ++k, from += row) {
        std::memcpy(swapped.raw() + static_cast<std::size_t>((i * third + k) * second + j) * row, from, row);
      }
    }
  }
  return swapped;
}

void round_to_bf16(Tensor& tensor) {
  const auto values = tensor.elements<float>();
  parallel_for(tensor.size(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) values[i] = float_from_bf16(bf16_from_float(values[i]));
  });
}

}  // namespace tutorial
