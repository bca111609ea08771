/// @file
/// `cpu`: the whole layer, with gla where other layers have their attention.
///
/// Idea: a model does not call gla itself. It calls a layer that turns x into y of the same shape. Five matrices
/// compute q, k, v, the logits of the gates and z from x; gla runs over the positions; a norm, a swish gate of z and a
/// matrix compute y from gla's o. Only gla connects positions; everything else computes each position by itself.
/// Grows out of: nothing
/// Unchanged: gla's `chunkwise`.
/// Equation:
///
///     q, k, v, z = x Wq^T, x Wk^T, x Wv^T, x Wz^T          four matrix products
///     g = logsigmoid(x W1^T W2^T + bias) / normalizer      W1 and W2 are far smaller than one matrix
///     o = gla(q, k, v, g)
///     u = o / sqrt(mean(o^2) + eps) * w * z sigmoid(z)
///     y = u Wo^T
///
/// logsigmoid(logit) is log(1 / (1 + exp(-logit))), written min(logit, 0) - log(1 + exp(-|logit|)) so that nothing
/// overflows. A logit of 0 makes a gate of 1/2, or, with g divided by 16, of 0.96: the layer begins as one that
/// remembers.
/// Shapes: x, y [B, L, d_model]; q, k, g [B L, H Dk] and v, z, o, u [B L, H Dv], heads side by side in a row, which gla
/// sees as [B, H, L, D] through strides; fp32 in host memory.
/// Thread mapping: Eigen gives each thread a part of a product, gla gives it one head, and all other parts give it some
/// rows.
/// Resources: all of these matrices.
/// Work: 2 B L d_model (2 H Dk + 3 H Dv) operations for the large matrices, B L H (4 Dk Dv + 65 (Dk + Dv)) for gla.
/// With d_model = H Dv = 2 H Dk that is 8 d_model^2 per position against about 2 d_model^2 / H.
/// Bytes: x, y and the weights once, and every matrix between them twice.
/// Bound by: the cores' arithmetic.
/// Requires: nothing.
/// Weakness: the products are work for matrix units, of which a GPU has many and a CPU few.
/// Sources: arXiv 2312.06635, section 4.4.

#include "03_gla/gla_layer/on_cpu.hpp"

namespace tutorial::gla_layer {

void cpu(const FloatArguments& a) {
  layer<float, float>(a, gla::chunkwise);
}

}  // namespace tutorial::gla_layer
