/// @file
/// `gpu`: the parts of the layer on the GPU, one after the other, in fp32.
///
/// Idea: a library, cuBLAS, computes the matrix products, and gla's dispatch computes gla. Two small kernels do the
/// rest, each in one pass over its matrix. Each part reads what the one before has written to device memory; nothing
/// goes to the host.
/// Grows out of: 1_cpu.cpp; port to the GPU: the parts are cuBLAS, gla's dispatch and two kernels (on_gpu.cuh).
/// Improves on: `cpu` has only as many threads as cores.
/// Unchanged: the equations, and the matrices between the parts.
/// Equation:
///
///     gates_kernel           g = logsigmoid(low W2^T + bias) / normalizer, low = x W1^T
///     norm_and_gate_kernel   u = o / sqrt(mean(o^2) + eps) * w * z sigmoid(z)
///
/// With an inner side of `rank` = 16 the product low W2^T writes H Dk / 16 numbers for each that it reads of `low`. So
/// it is computed where its result is used, and the logits never reach memory.
/// Shapes: x, y [B, L, d_model]; q, k, g [B L, H Dk]; v, z, o, u [B L, H Dv]; low [B L, rank]; W as in gla_layer.hpp;
/// all fp32 in device memory. gla sees the heads through strides.
/// Thread mapping: in gates_kernel a block has 16 positions and 128 columns of g, one thread per column. In
/// norm_and_gate_kernel a warp has one head of a position, and adds up its squares with shuffles.
/// Resources: in gates_kernel 16 sums and 16 numbers of W2 per thread, and 1 KB of shared memory for the block's `low`,
/// with two barriers for each 16 of `rank`.
/// Work: 2 B L d_model (2 H Dk + 3 H Dv) operations in the products, and gla's.
/// Bytes: x, y and the weights once; every matrix between them is written once and read once, x four times more.
/// Bound by: fp32 arithmetic. Tensor cores could compute the products in TF32, but its 11 bits cause errors of 3e-4, so
/// it is off.
/// Requires: B L < 2^31 - 16, H Dk <= 8388480, and what gla's dispatch requires.
/// Weakness: the products do not use the units that a GPU has for products.
/// Sources: arXiv 2312.06635, section 4.4; cuBLAS: NVIDIA's documentation of cublasGemmEx.

#include "03_gla/gla_layer/on_gpu.cuh"

namespace tutorial::gla_layer {

void gpu(const FloatArguments& a) {
  layer(a);
}

std::string gpu_unsupported(const FloatArguments& a) {
  return layer_unsupported(a);
}

std::int64_t gpu_memory(const FloatArguments& a) {
  return layer_memory(a);
}

std::string gpu_note(const FloatArguments& a) {
  return layer_note(a);
}

}  // namespace tutorial::gla_layer
