/// @file
/// `blelloch`: up a tree and down again.
///
/// Idea: `hillis_steele` composes the same runs of steps again for every step. Here each run is composed once, in a
/// tree. On the way up, the map of each node is that of its right child after that of its left child, and the root
/// stands for the whole sequence. On the way down, each node receives the map of everything before it. It passes this
/// map to its left child, and this map followed by the left child's own to its right child. Each leaf then has the map
/// of all steps before it.
/// Grows out of: 2_hillis_steele.cpp
/// Improves on: `hillis_steele` does log2(L) times the work of `sequential`. The tree has L - 1 compositions up, L - 1
/// down, and L that compose each step with the map before it.
/// Unchanged: rounds whose compositions do not depend on each other, but twice as many of them.
/// Equation:
///
///   up,   d = 1, 2, 4, ...:   m[i]  <- m[i] after m[i - d]                       i = 2d - 1, 4d - 1, ...  (from 0)
///   down, d = ..., 4, 2, 1:   m[i - d], m[i]  <-  m[i],  (m[i - d] after m[i])   m[last] = identity before
///   y_t = (step t after m[t])(y_0)
///
/// In a scan of sums, the operands of the composition on the way down may be swapped. Here their order matters: before
/// the assignment, m[i] is what comes before the node and m[i - d] is its left half, so the left half comes second.
/// `--trace` prints the tree for eight steps.
/// Shapes: as `sequential`; the tree of a channel is computed in place, on L rounded up to a power of two; the added
/// steps are identities.
/// Thread mapping: OpenMP gives each thread one channel at a time. Within a channel there is one thread.
/// Resources: 16 bytes for each node of the tree and 16 L for the steps, per thread.
/// Work: at most 3 L compositions per channel.
/// Bytes: x, g and y once, and the tree from a cache while it fits.
/// Bound by: exponentials.
/// Weakness: a CPU does not have L processors, and one thread with the loop of `sequential` does a third of the work.
/// The tree pays only on a GPU.
/// Sources: Blelloch, "Scans as Primitive Parallel Operations", IEEE Trans. Comput. 38, 1989; CMU-CS-90-190, figure
/// 1.4.

#include "06_scan/scan.hpp"
#include "06_scan/scan/scan_channels.hpp"
#include "06_scan/scan/tree.hpp"

namespace tutorial::scan {
namespace {

Maps inclusive_scan(const Maps& steps) {
  Maps tree = steps;
  tree.resize(tree_size(steps.size()));
  up_sweep(tree, compose<double>);
  tree.back() = {};
  down_sweep(tree, compose<double>);
  tree.resize(steps.size());
  for (std::size_t t = 0; t < steps.size(); ++t) tree[t] = compose(tree[t], steps[t]);
  return tree;
}

}  // namespace

void blelloch(const Arguments& a) {
  scan_channels(a, inclusive_scan);
}

}  // namespace tutorial::scan
