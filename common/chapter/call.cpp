#include "common/chapter/call.hpp"

namespace tutorial {

int Call::size(std::string_view symbol) const {
  const auto found = sizes_.find(symbol);
  if (found == sizes_.end()) throw std::logic_error("the operator has no size '" + std::string(symbol) + "'");
  return static_cast<int>(found->second);  // plan_problem() has seen to it that it fits
}

float Call::parameter(std::string_view name) const {
  const auto found = parameters_.find(name);
  if (found == parameters_.end()) throw std::logic_error("the operator has no parameter '" + std::string(name) + "'");
  return static_cast<float>(found->second);
}

TensorReference Call::find(std::string_view name, Dtype dtype, bool writable) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return {.dtype = dtype};
  const TensorReference& tensor = found->second;
  if (tensor.dtype != dtype) {
    throw std::logic_error("'" + std::string(name) + "' is " + std::string(name_of(tensor.dtype)) + ", asked for as " +
                           std::string(name_of(dtype)));
  }
  if (writable && !tensor.writable) throw std::logic_error("input '" + std::string(name) + "' asked for as writable");
  return tensor;
}

}  // namespace tutorial
