/// @file
/// The library's products in each type, against loops in double.

#include "common/device/matmul.hpp"

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/error.hpp"
#include "common/device/stream.hpp"

namespace tutorial {
namespace {

double to_double(float x) {
  return x;
}
double to_double(__nv_bfloat16 x) {
  return __bfloat162float(x);
}

template <class T>
std::vector<T> numbers(int count, int seed) {
  std::vector<T> x;
  for (int i = 0; i < count; ++i) x.push_back(T(float(std::sin(1.0 + i * 0.7 + i * i * 1e-3 + seed))));
  return x;
}

/// The relative error of C, as a device has it, in the Frobenius norm.
template <class In, class Out>
double error_of(const std::vector<In>& A, const std::vector<In>& B, const DeviceBuffer<Out>& C, int m, int n, int k) {
  const std::vector<Out> out = C.download();
  double wrong = 0, all = 0;
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      for (int l = 0; l < k; ++l) sum += to_double(A[std::size_t(i * k + l)]) * to_double(B[std::size_t(j * k + l)]);
      wrong += std::pow(to_double(out[std::size_t(i * n + j)]) - sum, 2);
      all += sum * sum;
    }
  }
  return std::sqrt(wrong / all);
}

template <class In, class Out>
void expect_right(int m, int n, int k, double tolerance) {
  SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k);
  const auto A = numbers<In>(m * k, 0), B = numbers<In>(n * k, 1);
  const DeviceBuffer<In> a(A), b(B);
  DeviceBuffer<Out> c(std::size_t(m * n));
  c.fill_bytes(0xFF);
  matmul_transposed(a.data(), b.data(), c.data(), m, n, k);
  EXPECT_LT(error_of(A, B, c, m, n, k), tolerance);
}

TEST(Matmul, EveryTypeAndShape) {
  for (const auto& [m, n, k] : {std::array{1, 1, 1}, {1, 7, 48}, {65, 16, 96}, {50, 3, 7}, {130, 70, 257}}) {
    expect_right<float, float>(m, n, k, 1e-6);                  // TF32 would err by 3e-4
    expect_right<__nv_bfloat16, float>(m, n, k, 1e-6);          // sums in fp32
    expect_right<__nv_bfloat16, __nv_bfloat16>(m, n, k, 4e-3);  // rounded once, by at most 2^-8 of an element
  }
}

// A graph repeats the product with what its operands hold by then.
TEST(Matmul, CanBeCaptured) {
  constexpr int m = 5, n = 6, k = 7;
  const auto A = numbers<float>(m * k, 2), B = numbers<float>(n * k, 3);
  DeviceBuffer<float> a(A), b(B), c(m * n);
  matmul_transposed(a.data(), b.data(), c.data(), m, n, k);  // the first call may allocate
  check(cudaStreamSynchronize(current_stream()));
  c.fill_bytes(0xFF);
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  check(cudaStreamSynchronize(current_stream()));
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  set_current_stream(stream);
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  matmul_transposed(a.data(), b.data(), c.data(), m, n, k);
  check(cudaStreamEndCapture(stream, &graph));
  EXPECT_TRUE(std::isnan(c.download()[0])) << "recorded, not run";
  const auto other = numbers<float>(m * k, 4);
  a.upload(other);
  check(cudaGraphInstantiate(&executable, graph, 0));
  check(cudaGraphLaunch(executable, stream));
  EXPECT_LT(error_of(other, B, c, m, n, k), 1e-6);
  set_current_stream(nullptr);
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

}  // namespace
}  // namespace tutorial
