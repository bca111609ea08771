/// @file
/// `dispatch`: what a user calls. It runs all walks at once, with the kernel that suits this GPU.
///
/// Idea: a walk computes L positions one after the other, whatever else runs. While multiprocessors are idle, three
/// walks side by side take hardly longer than one. So the walks become a dimension of the grid (walks of the same
/// widths: all three where Dk = Dv, else dq and dk together and dv alone). How a head is cut follows from B H times the
/// number of walks, by the rule of causal_dot_product's `dispatch`.
/// Improves on: `lmha` starts its walks one after the other, and supports neither Dk > 64 nor Dv > 64.
/// Unchanged: three walks, 12 Dk Dv operations per head and position.
/// Equation: as `lmha`
/// Shapes: q, k, dq, dk [B, H, L, Dk]; v, do, dv [B, H, L, Dv], fp32 in device memory.
/// Thread mapping: block (b h, columns, walk); the rest is as in the kernel that is chosen.
/// Resources: those of the kernel that is chosen.
/// Work: 12 Dk Dv operations per head and position.
/// Bytes: as `lmha`, times the blocks that a head is cut into for two of the three tensors that a walk reads.
/// Bound by: the latency of shared memory; with more blocks than multiprocessors, each block's share of shared memory.
/// Requires: Dk <= 1024 where Dv > 256, and Dv <= 1024 where Dk > 256.
/// Weakness: dS is added up twice, once for dk and once for dv. As in the forward pass, a position still waits for the
/// one before it. Chapter 02 computes whole chunks instead.
/// Sources: as `lmha`.

#include <cuda_runtime.h>

#include "01_linear_attention/causal_dot_product/dispatch/products.hpp"
#include "01_linear_attention/causal_dot_product_backward/walks.hpp"

namespace tutorial::causal_dot_product_backward {
namespace {

/// The number of walks, from the first on, that have the widths of the first.
std::size_t alike(const Arguments& a) {
  return a.Dk == a.Dv ? 3 : 2;
}

}  // namespace

void dispatch(const Arguments& a) {
  const auto all = walks(a);
  const std::span<const Product> rest(all);
  causal_dot_product::dispatch_at_once(rest.first(alike(a)));
  if (alike(a) < all.size()) causal_dot_product::dispatch_at_once(rest.subspan(alike(a)));
}

std::string dispatch_note(const Arguments& a) {
  const auto all = walks(a);
  const std::span<const Product> rest(all);
  if (alike(a) == all.size()) return "dq, dk, dv at once: " + causal_dot_product::dispatch_at_once_note(rest);
  return "dq, dk at once: " + causal_dot_product::dispatch_at_once_note(rest.first(2)) +
         "\ndv: " + causal_dot_product::dispatch_at_once_note(rest.subspan(2));
}

std::string dispatch_unsupported(const Arguments& a) {
  const std::string rows = causal_dot_product::dispatch_unsupported(dq_walk(a));
  if (rows.empty()) return causal_dot_product::dispatch_unsupported(dv_walk(a));
  return a.Dk > 1024 && a.Dv > 256 ? "Dk > 1024 with Dv > 256: one thread per column, and a block has 1024 threads"
                                   : rows;
}

}  // namespace tutorial::causal_dot_product_backward
