/// @file
/// `blelloch`: up a tree and down again.
///
/// Idea: what `hillis_steele` composes again and again for every step is composed once, in a tree. Up: each node is its
/// right child after its left child, and the root is the whole sequence. Down: each node is told what comes before it.
/// It tells its left child the same, and its right child that, followed by the left child. The leaves then know what is
/// before them.
/// Grows out of: 2_hillis_steele.cpp
/// Improves on: the work of `hillis_steele`. The tree has L - 1 compositions up, L - 1 down, and L that add each step
/// to what is before it.
/// Unchanged: rounds in which nothing waits, but twice as many.
/// Equation:
///
///   up,   d = 1, 2, 4, ...:   m[i]  <- m[i] after m[i - d]                       i = 2d - 1, 4d - 1, ...  (from 0)
///   down, d = ..., 4, 2, 1:   m[i - d], m[i]  <-  m[i],  (m[i - d] after m[i])   m[last] = identity before
///   y_t = (step t after m[t])(y_0)
///
/// A scan of sums may swap the sides of the last composition; here the order matters. Before the swap m[i] is what
/// comes before the node and m[i - d] its left half, so the left half comes second. `--trace` prints the tree for eight
/// steps.
/// Shapes: as `sequential`; a channel's tree is in place, on L rounded up to a power of two, filled with identities.
/// Thread mapping: OpenMP gives each thread one channel at a time. Within a channel there is one thread.
/// Resources: 16 bytes for each node of the tree and 16 L for the steps, per thread.
/// Work: 3 L compositions at most.
/// Bytes: x, g and y once, and the tree from a cache while it fits.
/// Bound by: exponentials.
/// Weakness: a CPU has no L processors, and one thread with the loop of `sequential` does a third of the work. The tree
/// is for a GPU.
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

std::int64_t blelloch_memory(const Arguments& a) {
  const auto nodes = std::int64_t(tree_size(std::size_t(a.L)));
  return std::int64_t(sizeof(Affine<double>)) * (nodes + a.L) * processor_count();
}

}  // namespace tutorial::scan
