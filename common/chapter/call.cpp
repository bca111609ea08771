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

Call Call::sequence(int number, std::int64_t begin, std::int64_t length,
                    const std::set<std::string>& of_sequences) const {
  Call part(*this);
  part.sizes_["L"] = length;
  for (auto& [name, tensor] : part.tensors_) {
    const std::int64_t entry = number * sizes_.at("B");
    const std::int64_t elements = of_sequences.contains(name) ? entry * tensor.stride_b : begin * tensor.stride_l;
    tensor.data = static_cast<std::byte*>(tensor.data) + elements * std::int64_t(size_of(tensor.dtype));
  }
  part.tensors_.erase(kOffsets);
  return part;
}

Call Call::grouped(const std::set<std::string>& of_key_heads) const {
  Call groups(*this);
  const std::int64_t heads = sizes_.at("H") / sizes_.at("Hk");  // of a group
  groups.sizes_["B"] = sizes_.at("B") * sizes_.at("Hk");
  groups.sizes_["H"] = heads;
  for (auto& [name, tensor] : groups.tensors_) {
    const bool is_of_group = of_key_heads.contains(name);
    tensor.stride_b = is_of_group ? tensor.stride_h : heads * tensor.stride_h;
    if (is_of_group) tensor.stride_h = 0;
  }
  return groups;
}

const TensorReference* Call::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
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
