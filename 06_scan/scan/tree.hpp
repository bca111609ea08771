#pragma once
/// @file
/// The two sweeps of `blelloch` over any vector of a power of two elements, 1 or more: of maps, or of their names
/// (trace.cpp).
/// Source: Blelloch, "Scans as Primitive Parallel Operations", IEEE Trans. Comput. 38, 1989; CMU-CS-90-190, figure 1.4.

#include <bit>
#include <cstddef>
#include <utility>
#include <vector>

namespace tutorial::scan {

/// The least power of two that has so many leaves.
inline std::size_t tree_size(std::size_t leaves) {
  return std::bit_ceil(leaves);
}

/// Turns the elements, in place, into the nodes of a tree: element i into the composition of as many as its node
/// covers.
/// @param compose (first, second) -> second after first
/// @param level called after each level
template <class T, class Compose, class Level>
void up_sweep(std::vector<T>& m, Compose compose, Level level) {
  for (std::size_t d = 1; d < m.size(); d *= 2) {
    for (std::size_t i = 2 * d - 1; i < m.size(); i += 2 * d) m[i] = compose(m[i - d], m[i]);
    level();
  }
}

/// Turns the nodes, the last of which has been replaced by the identity, into what comes before each element: the
/// exclusive scan. Parameters as in up_sweep().
template <class T, class Compose, class Level>
void down_sweep(std::vector<T>& m, Compose compose, Level level) {
  for (std::size_t d = m.size() / 2; d > 0; d /= 2) {
    for (std::size_t i = 2 * d - 1; i < m.size(); i += 2 * d) {
      const T left = std::exchange(m[i - d], m[i]);
      m[i] = compose(m[i], left);
    }
    level();
  }
}

/// Nothing is done after a level.
template <class T, class Compose>
void up_sweep(std::vector<T>& m, Compose compose) {
  up_sweep(m, compose, [] {});
}

/// Nothing is done after a level.
template <class T, class Compose>
void down_sweep(std::vector<T>& m, Compose compose) {
  down_sweep(m, compose, [] {});
}

}  // namespace tutorial::scan
