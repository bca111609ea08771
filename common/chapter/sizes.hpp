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

/// The dimensions of a tensor as symbols, outermost first: {"B", "H", "L", "Dk"}. "N+1" is a dimension of N + 1 elements.
using Dims = std::vector<std::string>;

/// The symbol of a dimension, and what the dimension has beside the symbol's size: 1 of "N+1", else 0.
struct Dimension {
  std::string symbol;
  std::int64_t more;

  /// Of an entry of Dims.
  explicit Dimension(const std::string& text)
      : symbol(text.substr(0, text.find('+'))), more(symbol.size() == text.size() ? 0 : 1) {}
};

/// The shape of a tensor of these dimensions. std::out_of_range where one has no size.
inline Shape shape_of(const Dims& dims, const Sizes& sizes) {
  Shape shape;
  for (const std::string& text : dims) {
    const Dimension dimension(text);
    shape.push_back(sizes.at(dimension.symbol) + dimension.more);
  }
  return shape;
}

/// Whether a tensor has heads, in its second dimension: H, or Hk, which several heads share.
inline bool has_heads(const Dims& dims) {
  return dims.size() >= 2 && (dims[1] == "H" || dims[1] == "Hk");
}

/// Whether a tensor has rows at positions of heads, [B, H, L] or [B, H, L, D], which memory may also hold as [B, L, H, D].
/// A state [B, H, Dk, Dv] does not.
inline bool has_positions(const Dims& dims) {
  return dims.size() >= 3 && dims[0] == "B" && has_heads(dims) && dims[2].starts_with('L');
}

}  // namespace tutorial
