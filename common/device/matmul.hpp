#pragma once
/// @file
/// Matrix products that are not the lesson: a library's, cuBLAS on a GPU and Eigen on the emulator.

#include <cuda_bf16.h>

#include <cstddef>

namespace tutorial {

/// C [m, n] = A [m, k] B [n, k]^T, all packed rows in device memory, on current_stream(). PyTorch's linear layer is
/// this: y = x W^T, W [out, in]. Products and sums are fp32, without TF32; C is rounded once, and does not overlap A or
/// B.
/// @throws CudaError where the library refuses; with the code cudaErrorMemoryAllocation where the device has too little
/// memory for the library itself
void matmul_transposed(const float* A, const float* B, float* C, int m, int n, int k);
void matmul_transposed(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int m, int n, int k);
void matmul_transposed(const __nv_bfloat16* A, const __nv_bfloat16* B, float* C, int m, int n, int k);

/// Bytes of device memory that the library's kernels take beside the matrices.
std::size_t matmul_memory();

}  // namespace tutorial
