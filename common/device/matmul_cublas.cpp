#include <cublas_v2.h>

#include <map>
#include <mutex>
#include <source_location>
#include <string>
#include <thread>
#include <utility>

#include "common/device/error.hpp"
#include "common/device/matmul.hpp"
#include "common/device/stream.hpp"
#include "common/device/workspace.hpp"

namespace tutorial {
namespace {

constexpr std::size_t kWorkspace = 32 << 20;  // what NVIDIA recommends for Hopper; 4 MB are enough elsewhere

void check(cublasStatus_t status, std::source_location where = std::source_location::current()) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw CudaError(status == CUBLAS_STATUS_ALLOC_FAILED ? cudaErrorMemoryAllocation : cudaErrorUnknown,
                  std::string("cuBLAS call failed with ") + cublasGetStatusName(status), where);
}

/// This thread's handle for the current device: one that two threads use is no longer set to the stream of the first.
/// Never destroyed: at the end of the process CUDA may be gone before.
cublasHandle_t& handle_of_thread() {
  static std::mutex mutex;
  static auto& handles = *new std::map<std::pair<int, std::thread::id>, cublasHandle_t>;
  int device = 0;
  tutorial::check(cudaGetDevice(&device));
  const std::lock_guard lock(mutex);
  return handles[{device, std::this_thread::get_id()}];
}

/// The same, set to the current stream.
cublasHandle_t handle() {
  cublasHandle_t& handle = handle_of_thread();
  if (handle == nullptr) {
    check(cublasCreate(&handle));
    // No TF32; and where a kernel splits a sum, its parts are not added up in bf16.
    check(cublasSetMathMode(handle,
                            cublasMath_t(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)));
  }
  check(cublasSetStream(handle, current_stream()));
  // After the stream, which resets it. With memory of its own cuBLAS would allocate in a graph that is being captured.
  check(cublasSetWorkspace(handle, workspace_bytes("cuBLAS", kWorkspace), kWorkspace));
  return handle;
}

/// cuBLAS reads memory by columns: there our rows are C^T [n, m] = B A^T, with B transposed and A^T as it lies.
void multiply(const void* A, const void* B, cudaDataType in, void* C, cudaDataType out, int m, int n, int k) {
  const float one = 1, zero = 0;
  check(cublasGemmEx(handle(), CUBLAS_OP_T, CUBLAS_OP_N, n, m, k, &one, B, in, k, A, in, k, &zero, C, out, n,
                     CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

}  // namespace

void matmul_transposed(const float* A, const float* B, float* C, int m, int n, int k) {
  multiply(A, B, CUDA_R_32F, C, CUDA_R_32F, m, n, k);
}

void matmul_transposed(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int m, int n, int k) {
  multiply(A, B, CUDA_R_16BF, C, CUDA_R_16BF, m, n, k);
}

void matmul_transposed(const __nv_bfloat16* A, const __nv_bfloat16* B, float* C, int m, int n, int k) {
  multiply(A, B, CUDA_R_16BF, C, CUDA_R_32F, m, n, k);
}

std::size_t matmul_memory() {
  return kWorkspace;
}

}  // namespace tutorial
