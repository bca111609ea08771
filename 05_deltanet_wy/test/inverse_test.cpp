/// @file
/// T, W and U of `ut_transform` and `chunk_gpu` against Eigen's triangular solve and against the vectors of `wy`.

#include <cuda_runtime.h>

#include <vector>

#include "05_deltanet_wy/chunk/write_vectors.hpp"
#include "05_deltanet_wy/delta_rule/chunk_vectors.hpp"
#include "05_deltanet_wy/test/rounding.hpp"
#include "05_deltanet_wy/test/stages.hpp"
#include "common/device/error.hpp"
#include "common/device/stream.hpp"

namespace tutorial::delta_rule {
namespace {

Matrix solved_by_eigen(const Matrix& K, const Vector& beta) {
  const Matrix A = lower_products(K, beta), diagonal = beta.asDiagonal();
  return A.triangularView<Eigen::UnitLower>().solve(diagonal);
}

Vector uniform_beta(Eigen::Index C) {
  Vector beta(C);
  const Random random(1, "beta");
  for (Eigen::Index i = 0; i < C; ++i) beta[i] = random.uniform(std::uint64_t(i));
  return beta;
}

TEST(InverseTest, TIsEigensSolution) {
  for (const Eigen::Index C : {1, 2, 16, 31, 32, 64, 100}) {
    for (const double cosine : {0.0, 0.5, 0.9, 1.0}) {
      SCOPED_TRACE("C " + std::to_string(C) + ", cosine " + std::to_string(cosine));
      const Matrix K = keys_with(cosine, 1, C, 48);
      for (const Vector& beta : {uniform_beta(C), Vector(Vector::Constant(C, 0.99)), Vector(Vector::Ones(C))}) {
        EXPECT_LE(relative_error(solve_for_T(K, beta), solved_by_eigen(K, beta)), 1e-13);
      }
    }
  }
}

TEST(InverseTest, TheProductsWithTAreTheVectorsOfWy) {
  for (const Eigen::Index C : {1, 16, 33, 64}) {
    for (const double cosine : {0.0, 0.9, 1.0}) {
      const Matrix K = keys_with(cosine, 2, C, 40), V = normals("v", 2, C, 24);
      const Vector beta = uniform_beta(C);
      const WriteVectors write = write_vectors(K, V, beta);
      const Matrix T = solve_for_T(K, beta);
      EXPECT_LE(relative_error(T * K, write.W), 1e-12) << C;
      EXPECT_LE(relative_error(T * V, write.U), 1e-12) << C;
    }
  }
}

/// The sum that `wy` writes is the product that `dense_product` forms.
TEST(InverseTest, TheSumOfWyIsTheDenseProduct) {
  const Matrix K = keys_with(0.5, 3, 20, 12), V = normals("v", 3, 20, 8);
  const Vector beta = uniform_beta(20);
  const WriteVectors write = write_vectors(K, V, beta);
  const Matrix I = Matrix::Identity(12, 12);
  Matrix Phi = I, H = Matrix::Zero(12, 8);
  for (Eigen::Index t = 0; t < 20; ++t) {
    const Matrix F = I - beta[t] * K.row(t).transpose() * K.row(t);
    Phi = F * Phi;
    H = F * H + beta[t] * K.row(t).transpose() * V.row(t);
  }
  EXPECT_LE(relative_error(I - K.transpose() * write.W, Phi), 1e-13);
  EXPECT_LE(relative_error(K.transpose() * write.U, H), 1e-13);
}

Matrix download(const float* device, Eigen::Index rows, Eigen::Index columns) {
  std::vector<float> host(std::size_t(rows * columns));
  check(cudaStreamSynchronize(current_stream()));
  check(cudaMemcpy(host.data(), device, host.size() * sizeof(float), cudaMemcpyDefault));
  return Eigen::Map<const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>(host.data(), rows,
                                                                                                 columns)
      .cast<double>();
}

/// T, W, U of every chunk of a problem, with the kernels of `chunk_gpu` and in double.
void expect_vectors(const Operator& definition, const Problem& problem) {
  StageTensors gpu(definition, problem, Processor::gpu, Dtype::fp32, Dtype::fp32);
  StageTensors cpu(definition, problem, Processor::cpu, Dtype::fp32, Dtype::fp32);
  const Call call = gpu.call();
  const ChunkVectors found = chunk_vectors(FloatArguments::bind(call));
  const Call host_call = cpu.call();
  const FloatArguments a = FloatArguments::bind(host_call);
  const int N = (a.L - 1) / a.C + 1;
  for (int head = 0; head < a.B * a.H; ++head) {
    for (int n = 0; n < N; ++n) {
      SCOPED_TRACE("head " + std::to_string(head) + ", chunk " + std::to_string(n));
      const int b = head / a.H, h = head % a.H, t = n * a.C, rows = std::min(a.C, a.L - t);
      Matrix K = read_rows(a.k, b, h, t, rows, a.Dk);
      const Matrix V = read_rows(a.v, b, h, t, rows, a.Dv);
      if (a.normalize_keys) {
        for (Eigen::Index i = 0; i < rows; ++i) K.row(i) /= std::sqrt(K.row(i).squaredNorm() + double(kKeyEps));
      }
      const Vector beta = read_rows(a.beta, b, h, t, rows, 1);
      const WriteVectors write = write_vectors(K, V, beta);
      const Matrix T = download(found.T + (std::int64_t(head) * N + n) * a.C * a.C, a.C, a.C);
      EXPECT_LE(relative_error(T.topLeftCorner(rows, rows), solved_by_eigen(K, beta)), 1e-6);
      EXPECT_EQ(T.bottomRows(a.C - rows).norm() + T.rightCols(a.C - rows).norm(), 0);
      EXPECT_LE(relative_error(download(found.W.row(b, h, t), rows, a.Dk), write.W), 1e-6);
      EXPECT_LE(relative_error(download(found.U.row(b, h, t), rows, a.Dv), write.U), 1e-6);
    }
  }
}

TEST(InverseTest, TAndVectorsOfChunkGpu) {
  for (const std::int64_t C : {1, 16, 30, 32, 64}) {
    SCOPED_TRACE("C " + std::to_string(C));
    for (const Operator* definition : {&delta_rule_operator(), &normalized_operator()}) {
      expect_vectors(*definition, drawn(1, 2, 100, 72, 40, C, *definition));
    }
  }
}

}  // namespace
}  // namespace tutorial::delta_rule
