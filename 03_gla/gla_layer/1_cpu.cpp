/// @file
/// Stage 1, `cpu`: the whole layer, with gla where other layers have their attention.
///
/// Idea: what a model calls is not gla but a layer, from x to y of the same shape. Five matrices make q, k, v, the
/// gates and a second kind of gate r of x; gla moves along the positions; a norm, the gate and a matrix make y of o.
/// Only gla looks at more than one position.
/// Mends: gla's stages are given q, k, v and g, and here is where they come from. Same: gla's `chunkwise` as it is.
///
///   q, k, v, r = x Wq^T, x Wk^T, x Wv^T, x Wr^T       four matrix products
///   g = logsigmoid(x W1^T W2^T + b) / normalizer      a full matrix would be as large as Wq; rank numbers do
///   o = gla(q, k, v, g)
///   u = o / sqrt(mean(o^2) + eps) * w * r sigmoid(r)
///   y = u Wo^T
///
/// logsigmoid(a) is log(1 / (1 + exp(-a))), written min(a, 0) - log(1 + exp(-|a|)) so that nothing overflows. A logit
/// of 0 is a gate of 1/2; divided by 16 it is a gate of 0.96: the layer begins as one that remembers.
///
/// Shapes: x, y [B, L, d_model]; q, k, g [B L, H Dk] and v, r, o, u [B L, H Dv] between them, heads side by side in a
/// row, which gla sees as [B, H, L, D] through strides; fp32 in host memory.
/// Who does what: Eigen gives each thread a part of a product; gla each thread a head; the rest each thread some rows.
/// Memory: all of these matrices. Work: 2 B L d_model (2 H Dk + 3 H Dv) of the large matrices, against gla's B L H (4
/// Dk Dv + 65 (Dk + Dv)); with d_model = H Dv = 2 H Dk that is 8 d_model^2 a position, against about 2 d_model^2 / H.
/// Bytes: x, y and the weights once, and every matrix between them twice.
/// Limit: the cores' arithmetic. Needs: nothing.
/// Weakness: the products are work for matrix units, of which a GPU has many and a CPU few. Stage 2 goes there.
/// Source: arXiv 2312.06635, section 4.4.

#include "03_gla/gla_layer/on_cpu.hpp"

namespace tutorial::gla_layer {

void cpu(const FloatArguments& a) {
  layer<float, float>(a, gla::chunkwise);
}

std::int64_t cpu_memory(const FloatArguments& a) {
  const std::int64_t rows = std::int64_t(a.B) * a.L;
  // A copy of x; q, k, g and the logits; v, r, o and u; what the gates go through.
  const std::int64_t columns = a.d_model + 4 * std::int64_t(a.key_dim()) + 4 * std::int64_t(a.value_dim()) + a.rank;
  return std::int64_t(sizeof(float)) * rows * columns + gla::chunkwise_memory(attention(a));
}

}  // namespace tutorial::gla_layer
