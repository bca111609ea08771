/// @file
/// `gpu_bf16`: the same parts with matrices in bf16, as layers are run.
///
/// Idea: in bf16 the products run on tensor cores, more than ten times as fast, and every matrix has half the bytes.
/// What must not be rounded stays in fp32: g, because a decay is a product of many gates whose errors add up; x W1^T,
/// from which g is computed and which has only 16 columns; and every sum inside the kernels.
/// Grows out of: 2_gpu.cu
/// Improves on: `gpu` leaves the tensor cores idle.
/// Unchanged: the kernels, for another type; the order of the parts.
/// Equation:
///
///     low [B L, rank] = x W1^T                 bf16 operands, sums and result in fp32
///     q, k, v, z, u, y                         sums in fp32, rounded once
///     o = gla(q, k, v, g)                      gla's dispatch for bf16
///
/// Shapes: as in `gpu`; x, y, the matrices W, q, k, v, z, o and u in bf16; bias, w, low and g in fp32.
/// Thread mapping, Resources, Work: as in `gpu`.
/// Bytes: half of those of `gpu`, except for g.
/// Bound by: tensor cores, unless gla takes longer. gla has a small part of the operations but runs along L; the times
/// of the parts show its share.
/// Requires: as `gpu`.
/// Weakness: q, k and v pass through device memory between the products and gla, o and z between gla and the norm. A
/// product that applied norm and swish gate while it loads u would save that, or one kernel for the projections and
/// gla. Both are matrix products with more inside, which cuBLAS does not offer.
/// Sources: arXiv 2312.06635, section 4.4; Micikevicius et al., "Mixed Precision Training", arXiv 1710.03740.

#include "03_gla/gla_layer/on_gpu.cuh"

namespace tutorial::gla_layer {

void gpu_bf16(const Bf16Arguments& a) {
  layer(a);
}

std::string gpu_bf16_unsupported(const Bf16Arguments& a) {
  return layer_unsupported(a);
}

std::int64_t gpu_bf16_memory(const Bf16Arguments& a) {
  return layer_memory(a);
}

std::string gpu_bf16_note(const Bf16Arguments& a) {
  return layer_note(a);
}

}  // namespace tutorial::gla_layer
