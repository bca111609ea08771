/// @file
/// Stage 2, `gpu`: the layer's parts on the GPU, one after the other, in fp32.
///
/// Idea: the matrix products are a library's, cuBLAS; gla is its dispatch; between them two small kernels do what is
/// left, each as one pass over its matrix. What one part writes, the next one reads: nothing goes to the host.
/// Mends: stage 1 has as many threads as cores. Same: the equations, and the matrices between the parts.
///
///   gates_kernel           g = logsigmoid(low W2^T + b) / normalizer, low = x W1^T: a product of inner side `rank`
///                          = 16 writes H Dk / 16 numbers for each that it reads of `low`, so it is done where its
///                          result is needed, and the logits never reach memory
///   norm_and_gate_kernel   u = o / sqrt(mean(o^2) + eps) * w * r sigmoid(r)
///
/// Shapes: x, y [B, L, d_model]; q, k, g [B L, H Dk]; v, r, o, u [B L, H Dv]; low [B L, rank]; W as in gla_layer.hpp;
/// all fp32 in device memory. gla sees the heads through strides.
/// Who does what: in gates_kernel a block has 16 positions and 128 columns of g, a thread a column; in
/// norm_and_gate_kernel a warp has one head of a position, and adds up its squares with shuffles.
/// Resources: in gates_kernel 16 sums and 16 numbers of W2 a thread, and 1 KB of shared memory for the block's `low`,
/// with two barriers for each 16 of `rank`.
/// Work: 2 B L d_model (2 H Dk + 3 H Dv) in the products, and gla's. Bytes: x, y, the weights once; every matrix
/// between them is written once and read once, x four times more.
/// Limit: fp32 arithmetic. Tensor cores would take the products as TF32, whose 11 bits err by 3e-4: it is off.
/// Needs: B L < 2^31 - 16, H Dk <= 8388480, and what gla's dispatch needs.
/// Weakness: the products do not use the units that a GPU has for products. Stage 3 does.
/// Source: arXiv 2312.06635, section 4.4; cuBLAS: NVIDIA's documentation of cublasGemmEx.

#include "03_gla/gla_layer/on_gpu.cuh"

namespace tutorial::gla_layer {

void gpu(const FloatArguments& a) {
  layer(a);
}

std::string gpu_limits(const FloatArguments& a) {
  return layer_limits(a);
}

std::int64_t gpu_memory(const FloatArguments& a) {
  return layer_memory(a);
}

std::string gpu_note(const FloatArguments& a) {
  return layer_note(a);
}

}  // namespace tutorial::gla_layer
