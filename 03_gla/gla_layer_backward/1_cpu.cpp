/// @file
/// `cpu` of --backward: the gradients of a whole layer, of x and of every weight.
///
/// Idea: backwards through the layer, part by part. A projection x W^T gives dW = dz^T x and adds dz W to dx. The norm
/// takes out of its gradient the part along its output, because the length of o does not count. The gates hand dg on
/// through logsigmoid. Between these parts, gla has its own gradients.
/// Grows out of: 03_gla/gla_layer/1_cpu.cpp
/// Improves on: the layer could not be trained.
/// Unchanged: the layer, which is computed again.
/// Equation: gla_layer_backward.hpp.
/// Shapes: x, dx, dy [B, L, d_model]; each gradient as its weight; fp32 in host memory.
/// Thread mapping: as in the layer's `cpu`; the norm's gradient on one thread, which also sums that of its weight.
/// Resources: all matrices between x and y, and their gradients.
/// Work: three times the operations of the layer's projections, and those of gla and of its gradients.
/// Bytes: the layer's for the forward pass; then each matrix, its gradient and each weight at least once more.
/// Bound by: the cores' arithmetic.
/// Requires: nothing.
/// Weakness: as the layer's `cpu`. Nothing of the forward pass is kept for the gradients.
/// Sources: arXiv 2312.06635, section 4.4, for the layer; the chain rule.

#include "03_gla/gla_layer_backward/on_cpu.hpp"

namespace tutorial::gla_layer {

void cpu_backward(const BackwardArguments& b) {
  layer_backward<float>(b, gla::chunkwise, gla::chunkwise_backward);
}

}  // namespace tutorial::gla_layer
