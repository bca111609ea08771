#pragma once
/// @file
/// The sizes of a problem by the symbols of the tutorial.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/tensor.hpp"

namespace tutorial {

/// Size by symbol: B, H, L, Dk, Dv, C, and what else an operator names (such as Lk, the number of keys).
using Sizes = std::map<std::string, std::int64_t, std::less<>>;

/// The dimensions of a tensor as symbols, outermost first: {"B", "H", "L", "Dk"}.
using Dims = std::vector<std::string>;

/// The shape of a tensor of these dimensions. std::out_of_range where one has no size.
inline Shape shape_of(const Dims& dims, const Sizes& sizes) {
  Shape shape;
  for (const std::string& symbol : dims) shape.push_back(sizes.at(symbol));
  return shape;
}

/// Whether a tensor has rows at positions of heads, [B, H, L] or [B, H, L, D], which memory may also hold as [B, L, H, D].
/// A state [B, H, Dk, Dv] does not.
inline bool has_positions(const Dims& dims) {
  return dims.size() >= 3 && dims[0] == "B" && dims[1] == "H" && dims[2].starts_with('L');
}

}  // namespace tutorial
