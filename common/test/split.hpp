#pragma once
/// @file
/// A sequence in two calls: for the tests that the final state of the first, as the initial state of the second, makes
/// them the sequence in one.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "common/chapter/problem.hpp"
#include "common/tensor.hpp"

namespace tutorial {

/// Positions begin to end of an fp32 tensor [B, H, L] or [B, H, L, D].
inline Tensor slice(const Tensor& whole, std::int64_t begin, std::int64_t end) {
  Shape shape = whole.shape();
  const std::int64_t L = shape[2], D = shape.size() > 3 ? shape[3] : 1;
  shape[2] = end - begin;
  Tensor part(Dtype::fp32, shape);
  for (std::int64_t head = 0; head < shape[0] * shape[1]; ++head) {
    const auto from = whole.elements<float>().subspan(std::size_t((head * L + begin) * D));
    std::copy_n(from.begin(), (end - begin) * D,
                part.elements<float>().subspan(std::size_t(head * (end - begin) * D)).begin());
  }
  return part;
}

/// Positions begin to end of a problem all of whose inputs but the states have positions, from a given state on.
inline Problem part_of(const Problem& whole, std::int64_t begin, std::int64_t end, const Tensor& state) {
  Problem part;
  part.sizes = whole.sizes;
  part.scale = whole.scale;
  part.parameters = whole.parameters;
  part.sizes["L"] = end - begin;
  for (const auto& [name, tensor] : whole.inputs) {
    if (!name.starts_with("initial_")) part.inputs.insert_or_assign(name, slice(tensor, begin, end));
  }
  part.inputs.insert_or_assign("initial_state", state.to(Dtype::fp32));
  return part;
}

}  // namespace tutorial
