#pragma once
/// @file
/// The tree of scan_affine: which runs of leaves are composed on the way up, and which states are computed on the way
/// down.
///
/// A run begins at a leaf that is a multiple of its length s = 1, 2, 4, ... Its map is stored at its last leaf, in
/// place of that leaf's own map: a right half is never read again once it is composed. The state before a run is stored
/// at its first leaf, so a left half finds it where its parent has it.
///
///     up, s = 1, 2, ...:     map of [f, f + 2 s)  = map of [f + s, f + 2 s) after map of [f, f + s)
///     down, s = ..., 2, 1:   state before f + s   = map of [f, f + s) applied to the state before f
///
///     leaf           0     1     2     3     4     5                     six leaves
///     up   s = 1         0-1         2-3                                  4-5 ends the sequence
///          s = 2                     0-3
///     down s = 4                           [4]                           the state before leaf 4, by the map 0-3
///          s = 2               [2]                                       before leaf 2, by 0-1
///          s = 1         [1]         [3]         [5]                     by 0, by 2, by 4
///
/// Only maps that a leaf follows are computed. So the number of leaves n may be any number from 1 on, and the last leaf
/// may be short; s is a power of two.
/// Source: Blelloch, CMU-CS-90-190, section 1.3, with states in place of maps on the way down.

#include <cstdint>

namespace tutorial::scan {

inline constexpr int kLeaf = 32;  ///< steps of a leaf

inline constexpr const char* kRunsTag = "delta_rule: maps and states of runs";  ///< of the workspace

/// Leaves of a sequence of L steps.
inline int leaf_count(int L) {
  return (L - 1) / kLeaf + 1;
}

/// Runs [f, f + 2 s) that are composed, of n leaves: f = 0, 2 s, ..., and a leaf comes after it.
inline int pairs_going_up(int n, int s) {
  return (n - 1) / (2 * s);
}

/// States that are computed: before f + s, f = 0, 2 s, ..., if there is such a leaf.
inline int states_going_down(int n, int s) {
  return n > s ? (n - s - 1) / (2 * s) + 1 : 0;
}

/// The length of the longest run that has a right neighbour: the first s on the way down. 0 for a single leaf.
inline int longest_run(int n) {
  int s = n > 1 ? 1 : 0;
  while (s > 0 && s < n - s) s *= 2;
  return s;
}

}  // namespace tutorial::scan
