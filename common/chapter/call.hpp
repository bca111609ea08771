#pragma once
/// @file
/// What a stage is called with: the named tensors of a problem, in the memory and the type that the stage asked for.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "common/chapter/sizes.hpp"
#include "common/dtype.hpp"
#include "common/view.hpp"

namespace tutorial {

/// The tensor type of 16-bit numbers.
template <>
struct DtypeOf<__nv_bfloat16> {
  static constexpr Dtype value = Dtype::bf16;
};
/// The tensor type of 16-bit numbers.
template <>
struct DtypeOf<__half> {
  static constexpr Dtype value = Dtype::fp16;
};

/// The tensor [N+1] of packed sequences: where each begins, and where the last one ends.
inline constexpr const char* kOffsets = "cu_seqlens";

/// Where a tensor of a call lies. Strides are in elements; what comes after the third dimension is packed.
struct TensorReference {
  void* data = nullptr;  ///< host memory for CPU stages, device memory for GPU stages
  Dtype dtype = Dtype::fp32;
  bool writable = false;      ///< an output
  std::int64_t stride_b = 0;  ///< of dimension B
  std::int64_t stride_h = 0;  ///< of dimension H; 0 where the tensor has none
  std::int64_t stride_l = 0;  ///< of the dimension that follows, a length in most tensors, Dk in a state [B, H, Dk, Dv]
};

/// Numbers that stages take beside sizes and scale, by name, such as eps.
using Parameters = std::map<std::string, double, std::less<>>;

/// One call of a stage. An operator's Arguments::bind turns it into the chapter's own plain struct.
class Call {
 public:
  /// A call without tensors yet.
  Call(Sizes sizes, double scale, Parameters parameters = {})
      : sizes_(std::move(sizes)), scale_(scale), parameters_(std::move(parameters)) {}

  /// Adds a tensor, in the place of one of the same name. An optional input that is absent, or an output that is not
  /// asked for, is not added.
  void add(const std::string& name, const TensorReference& tensor) { tensors_[name] = tensor; }

  /// The size of a symbol. std::logic_error where the operator has no such symbol.
  int size(std::string_view symbol) const;
  const Sizes& sizes() const { return sizes_; }

  /// What multiplies q; 1 for operators that take no scale.
  float scale() const { return static_cast<float>(scale_); }
  /// A number that the operator has named with Operator::parameter(). std::logic_error where it has not.
  float parameter(std::string_view name) const;
  /// Whether the operator has named it.
  bool has_parameter(std::string_view name) const { return parameters_.find(name) != parameters_.end(); }
  /// The chunk length in positions, size("C"); throws as that does.
  int chunk() const { return size("C"); }

  /// The part of one of the sequences that are packed into this call (Operator::packed()): a call with `length` positions
  /// from `begin` on. Its batch entries are one, or groups of heads.
  /// @param number of the sequence
  /// @param of_sequences the tensors that have an entry for each sequence, such as states; the others have positions
  Call sequence(int number, std::int64_t begin, std::int64_t length, const std::set<std::string>& of_sequences) const;

  /// The same problem with each group of heads as a batch entry (Operator::grouped()): B Hk entries of H / Hk heads. A
  /// tensor of Hk heads takes no step from head to head. In memory of [B, H, L, D], or of one batch entry, the groups of
  /// the others are equally far from each other.
  /// @param of_key_heads the tensors that have Hk heads
  Call grouped(const std::set<std::string>& of_key_heads) const;

  /// Whether an optional input is present, an output asked for.
  bool has(std::string_view name) const { return tensors_.find(name) != tensors_.end(); }

  /// The tensor of this name; nullptr where it is absent.
  const TensorReference* find(std::string_view name) const;

  /// A tensor [B, H, L, D], [B, L, D] (stride_h = 0), [B, H, L] (its rows have one element) or a state [B, H, Dk, Dv].
  /// Inputs are viewed as const T. Null where the tensor is absent. std::logic_error where T is not its type, or not
  /// const for an input.
  template <class T>
  View<T> view(std::string_view name) const {
    const TensorReference tensor = find<T>(name);
    return {static_cast<T*>(tensor.data), tensor.stride_b, tensor.stride_h, tensor.stride_l};
  }

  /// The first element of a tensor of any rank; nullptr where it is absent. std::logic_error as view().
  template <class T>
  T* data(std::string_view name) const {
    return static_cast<T*>(find<T>(name).data);
  }

 private:
  template <class T>
  TensorReference find(std::string_view name) const {
    return find(name, DtypeOf<std::remove_const_t<T>>::value, !std::is_const_v<T>);
  }
  TensorReference find(std::string_view name, Dtype dtype, bool writable) const;

  Sizes sizes_;
  double scale_;
  Parameters parameters_;
  std::map<std::string, TensorReference, std::less<>> tensors_;
};

}  // namespace tutorial
