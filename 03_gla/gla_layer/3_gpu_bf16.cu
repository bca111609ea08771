/// @file
/// Stage 3, `gpu_bf16`: the same parts with matrices in bf16, as layers are run.
///
/// Idea: in bf16 the products are tensor-core work, ten times as fast and more, and every matrix has half the bytes.
/// What must not be rounded stays in fp32: the gates, because a decay is a product of many and their errors add up, and
/// what they come from, x W1^T, which has 16 columns and costs nothing; inside the kernels, every sum.
/// Mends: stage 2 leaves the tensor cores idle. Same: the kernels, at another type; the order of the parts.
///
///   low [B L, rank] = x W1^T                 bf16 operands, sums and result in fp32
///   q, k, v, r, u, y                         sums in fp32, rounded once
///   o = gla(q, k, v, g)                      gla's dispatch for bf16
///
/// Shapes: as in stage 2; x, y, the matrices W, q, k, v, r, o and u in bf16; b, w, low and g in fp32.
/// Who does what, resources, work: as in stage 2. Bytes: half, but for g.
/// Limit: tensor cores, if gla keeps up with them: it is a small part of the operations and moves along L. The parts'
/// times tell.
/// Needs: as stage 2.
/// Weakness: q, k and v pass through memory between the products and gla, r and o between gla and the norm. A product
/// that applied norm and gate while it loads u, or the projections and gla in one kernel, would spare that; both are
/// matrix products with more in them, and cuBLAS has no place for it.
/// Source: arXiv 2312.06635, section 4.4; Micikevicius et al., "Mixed Precision Training", arXiv 1710.03740.

#include "03_gla/gla_layer/on_gpu.cuh"

namespace tutorial::gla_layer {

void gpu_bf16(const HalfArguments& a) {
  layer(a);
}

std::string gpu_bf16_limits(const HalfArguments& a) {
  return layer_limits(a);
}

std::int64_t gpu_bf16_memory(const HalfArguments& a) {
  return layer_memory(a);
}

std::string gpu_bf16_note(const HalfArguments& a) {
  return layer_note(a);
}

}  // namespace tutorial::gla_layer
