#include "common/chapter/stage_tensors.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "common/device/error.hpp"
#include "common/device/stream.hpp"

namespace tutorial {
StridedTensor::StridedTensor(Processor processor, Dtype dtype, const Dims& dims, const Shape& shape,
                             const Layout& layout)
    : processor_(processor), dtype_(dtype), shape_(shape) {
  const bool has_b = !dims.empty() && (dims[0] == "B" || dims[0] == "N" || dims[0] == "slots");
  const bool has_h = has_b && has_heads(dims);
  const std::size_t first_outer = has_b + has_h;  // where L is
  if (has_b) B_ = shape[0];
  if (has_h) H_ = shape[1];
  if (first_outer < shape.size()) L_ = shape[first_outer];
  for (std::size_t i = first_outer + 1; i < shape.size(); ++i) width_ *= shape[i];

  const bool spread = has_positions(dims);
  const std::int64_t row = width_ + (spread ? layout.row_padding : 0);
  const bool heads_inside = spread && layout.heads_inside;
  stride_l_ = heads_inside ? H_ * row : row;
  stride_h_ = !has_h ? 0 : heads_inside ? row : L_ * row;
  stride_b_ = has_b ? H_ * L_ * row : 0;
  memory_elements_ = B_ * H_ * L_ * row;

  if (processor == Processor::gpu) {
    device_ = DeviceBuffer<std::byte>(static_cast<std::size_t>(memory_elements_) * size_of(dtype));
  } else {
    host_ = Tensor(dtype, {memory_elements_});
  }
  poison();
}

// Calls f(offset of a row in packed memory, offset in this memory), in elements.
template <class F>
void StridedTensor::for_each_row(F f) const {
  for (std::int64_t b = 0; b < B_; ++b) {
    for (std::int64_t h = 0; h < H_; ++h) {
      for (std::int64_t t = 0; t < L_; ++t) {
        f(((b * H_ + h) * L_ + t) * width_, b * stride_b_ + h * stride_h_ + t * stride_l_);
      }
    }
  }
}

void StridedTensor::upload(const Tensor& packed) {
  if (packed.dtype() != dtype_) return upload(packed.to(dtype_));
  Tensor arranged;
  if (has_row_padding()) {
    arranged = Tensor(dtype_, {memory_elements_});
    // Between the rows lies a NaN other than the outputs' poison: a stage that carries it there is found.
    std::fill_n(reinterpret_cast<std::uint16_t*>(arranged.raw()), bytes() / 2, std::uint16_t{0x7FFF});
    const std::size_t element = size_of(dtype_);
    for_each_row([&](std::int64_t from, std::int64_t to) {
      std::memcpy(arranged.raw() + to * element, packed.raw() + from * element, width_ * element);
    });
  }
  const std::byte* source = has_row_padding() ? arranged.raw() : packed.raw();
  if (processor_ == Processor::gpu) {
    device_.upload({source, bytes()});
  } else {
    std::memcpy(host_.raw(), source, bytes());
  }
}

void StridedTensor::poison() {
  if (processor_ == Processor::gpu) {
    device_.fill_bytes(0xFF);
  } else {
    host_.fill_bytes(0xFF);
  }
}

Tensor StridedTensor::download(const std::string& name) const {
  Tensor memory(dtype_, has_row_padding() ? Shape{memory_elements_} : shape_);
  if (processor_ == Processor::gpu) {
    check(cudaMemcpyAsync(memory.raw(), device_.data(), bytes(), cudaMemcpyDeviceToHost, current_stream()));
    check(cudaStreamSynchronize(current_stream()));
  } else {
    std::memcpy(memory.raw(), host_.raw(), bytes());
  }
  if (!has_row_padding()) return dtype_ == Dtype::fp32 ? std::move(memory) : memory.to(Dtype::fp32);

  Tensor packed(dtype_, shape_);
  const std::size_t element = size_of(dtype_);
  for_each_row([&](std::int64_t to, std::int64_t from) {
    std::memcpy(packed.raw() + to * element, memory.raw() + from * element, width_ * element);
    std::memset(memory.raw() + from * element, 0xFF, width_ * element);
  });
  for (std::size_t i = 0; i < memory.bytes(); ++i) {  // what remains is padding
    if (memory.raw()[i] != std::byte{0xFF}) {
      throw std::runtime_error(name + " was written to between its rows, at element " + std::to_string(i / element));
    }
  }
  return packed.to(Dtype::fp32);
}

TensorReference StridedTensor::reference(bool writable) {
  void* data = processor_ == Processor::gpu ? static_cast<void*>(device_.data()) : host_.raw();
  return {data, dtype_, writable, stride_b_, stride_h_, stride_l_};
}

StageTensors::StageTensors(const Operator& definition, const Problem& problem, Processor processor, Dtype dtype,
                           Dtype rounded_to, const Layout& layout)
    : definition_(definition), sizes_(problem.sizes), scale_(problem.scale), parameters_(problem.parameters) {
  const bool has_reciprocal = std::isfinite(1 / static_cast<float>(scale_));
  for (const Input& spec : definition.inputs()) {
    const auto found = problem.inputs.find(spec.name);
    if (found == problem.inputs.end()) continue;
    const bool is_bf16 = spec.bf16 && spec.dtype == Dtype::fp32;
    StridedTensor tensor(processor, is_bf16 ? dtype : spec.dtype, spec.dims, found->second.shape(), layout);
    if (spec.times_scale && !has_reciprocal && processor == Processor::gpu) {  // see Operator::backward()
      Tensor zeros(Dtype::fp32, found->second.shape());
      zeros.fill_bytes(0);
      tensor.upload(zeros);
      scale_ = 1;
    } else if (is_bf16 && rounded_to != Dtype::fp32) {
      tensor.upload(found->second.to(rounded_to).to(Dtype::fp32));
    } else {
      tensor.upload(found->second);
    }
    inputs_.emplace(spec.name, std::move(tensor));
  }
  for (const Output& spec : definition.outputs()) {
    outputs_.emplace(spec.name, StridedTensor(processor, spec.bf16 ? dtype : Dtype::fp32, spec.dims,
                                              shape_of(spec.dims, problem.sizes), layout));
  }
}

Call StageTensors::call() {
  return call_of(true);
}

Call StageTensors::graph_call() {
  return call_of(false);
}

Call StageTensors::call_of(bool whole) {
  Call call(sizes_, scale_, parameters_);
  for (const Input& spec : definition_.inputs()) {
    const auto found = inputs_.find(spec.name);
    if (found != inputs_.end() && (whole || spec.in_graph)) call.add(spec.name, found->second.reference(false));
  }
  for (const Output& spec : definition_.outputs()) {
    if (whole || spec.in_graph) call.add(spec.name, outputs_.find(spec.name)->second.reference(true));
  }
  return call;
}

void StageTensors::poison_outputs() {
  for (auto& [name, tensor] : outputs_) tensor.poison();
}

Outputs StageTensors::download_outputs(const std::vector<std::string>& without) const {
  Outputs outputs;
  for (const auto& [name, tensor] : outputs_) {
    if (std::find(without.begin(), without.end(), name) != without.end()) continue;
    outputs.insert_or_assign(name, tensor.download(name));
  }
  return outputs;
}

std::size_t StageTensors::bytes() const {
  std::size_t sum = 0;
  for (const auto& [name, tensor] : inputs_) sum += tensor.bytes();
  for (const auto& [name, tensor] : outputs_) sum += tensor.bytes();
  return sum;
}

Dtype storage_of(const Stage& stage) {
  return size_of(stage.dtype) == 2 ? stage.dtype : Dtype::fp32;
}

}  // namespace tutorial
