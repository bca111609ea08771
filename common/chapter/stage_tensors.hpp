#pragma once
/// @file
/// The tensors of a problem as the stages of one processor and type take them. What takes or moves memory of the device
/// throws CudaError (cudaErrorMemoryAllocation where there is too little), of the host std::bad_alloc.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/chapter/call.hpp"
#include "common/chapter/operator.hpp"
#include "common/chapter/problem.hpp"
#include "common/device/buffer.hpp"
#include "common/tensor.hpp"

namespace tutorial {

/// How the [B, H, L, D] tensors of a call lie in memory. States and tensors without B are always packed.
struct Layout {
  bool heads_inside = false;     ///< [B, L, H, D] instead of [B, H, L, D]
  std::int64_t row_padding = 0;  ///< unused elements after each row of D; an odd number unaligns the rows
};

/// Outputs by name, as packed fp32 tensors on the host.
using Outputs = std::map<std::string, Tensor, std::less<>>;

/// A tensor in host or device memory, in the strides of a layout.
class StridedTensor {
 public:
  /// `shape`, in elements, belongs to `dims`. The memory is poisoned: see poison().
  StridedTensor(Processor processor, Dtype dtype, const Dims& dims, const Shape& shape, const Layout& layout);

  /// Sets the elements from a packed tensor on the host, of as many elements; another type is converted.
  void upload(const Tensor& packed);
  /// Every byte 0xFF, which no computation leaves: an element that stays so was never written. On a GPU this is queued
  /// on current_stream().
  void poison();
  /// The elements as a packed fp32 tensor. Throws std::runtime_error, which names the tensor, where the padding between
  /// the rows was written to.
  Tensor download(const std::string& name) const;

  /// What a call gets of it.
  TensorReference reference(bool writable);
  /// Bytes of memory that it takes, gaps between rows included.
  std::size_t bytes() const { return static_cast<std::size_t>(memory_elements_) * size_of(dtype_); }

 private:
  template <class F>
  void for_each_row(F f) const;
  bool has_row_padding() const { return stride_l_ != width_; }

  Processor processor_;
  Dtype dtype_;
  Shape shape_;
  std::int64_t B_ = 1, H_ = 1, L_ = 1, width_ = 1;  // the shape as rows of `width_` elements
  std::int64_t stride_b_ = 0, stride_h_ = 0, stride_l_ = 0;
  std::int64_t memory_elements_ = 0;
  Tensor host_;  // one of the two holds the elements
  DeviceBuffer<std::byte> device_;
};

/// All tensors of a problem for the stages of one processor and element type.
class StageTensors {
 public:
  /// `dtype` is that of `half` tensors, as the stages take and give them; others are fp32. `rounded_to` is the type
  /// that `half` inputs are rounded to before: for a reference in fp32 of a stage in bf16.
  StageTensors(const Operator& definition, const Problem& problem, Processor processor, Dtype dtype, Dtype rounded_to,
               const Layout& layout = {});

  /// A call with all inputs that are present and all outputs. It points into these tensors, as graph_call() does.
  Call call();
  /// A call as the graph measure makes it: without initial and final states.
  Call graph_call();

  /// Fills outputs with NaN.
  void poison_outputs();
  /// The outputs as packed fp32 tensors on the host; throws std::runtime_error as StridedTensor::download().
  /// @param without outputs that are left out
  Outputs download_outputs(const std::vector<std::string>& without = {}) const;

  /// Bytes of all inputs and outputs: what a stage must move at least.
  std::size_t bytes() const;

 private:
  Call call_of(bool whole);

  const Operator& definition_;
  Sizes sizes_;
  double scale_;
  Parameters parameters_;
  std::map<std::string, StridedTensor, std::less<>> inputs_;
  std::map<std::string, StridedTensor, std::less<>> outputs_;
};

/// The type of `half` tensors of a stage: its own where that has 16 bits, else fp32.
Dtype storage_of(const Stage& stage);

}  // namespace tutorial
