/// @file
/// T, P and f, which prepare() leaves to the tensor-core stages, against Eigen's triangular solve and products.

#include <cuda_runtime.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "05_deltanet_wy/chunk/blocks.hpp"
#include "05_deltanet_wy/chunk/cpu_chunks.hpp"
#include "05_deltanet_wy/chunk/prepare.hpp"
#include "05_deltanet_wy/test/stages.hpp"
#include "common/device/error.hpp"
#include "common/device/stream.hpp"

namespace tutorial::delta_rule {
namespace {

constexpr int kRows = kBlocks * kBlock;

template <class T>
std::vector<T> download(const T* device, std::int64_t count) {
  std::vector<T> host;
  host.resize(std::size_t(count));
  check(cudaStreamSynchronize(current_stream()));
  check(cudaMemcpy(host.data(), device, host.size() * sizeof(T), cudaMemcpyDefault));
  return host;
}

float bf16(std::uint32_t bits) {
  return std::bit_cast<float>(bits << 16);
}

/// A chunk's matrix [64, 64] from the ten blocks that are kept of it.
Matrix unpacked(const uint4* fragments) {
  Matrix whole = Matrix::Zero(kRows, kRows);
  for (int r = 0; r < kBlocks; ++r) {
    for (int c = 0; c <= r; ++c) {
      for (int lane = 0; lane < 32; ++lane) {
        const uint4& unit = fragments[lower_block(r, c) * 32 + lane];
        const std::uint32_t registers[] = {unit.x, unit.y, unit.z, unit.w};
        for (int i = 0; i < 4; ++i) {
          const int row = r * kBlock + lane / 4 + i / 2 * 8, column = c * kBlock + lane % 4 * 2 + i % 2 * 8;
          whole(row, column) = double(bf16(registers[i] & 0xFFFFu));
          whole(row, column + 1) = double(bf16(registers[i] >> 16));
        }
      }
    }
  }
  return whole;
}

double relative_error(const Matrix& found, const Matrix& right) {
  return (found - right).norm() / right.norm();
}

/// A chunk's rows, and zeros up to 64.
Matrix padded(const Matrix& rows) {
  Matrix all = Matrix::Zero(kRows, rows.cols());
  all.topRows(rows.rows()) = rows;
  return all;
}

/// Every chunk's T, P and f.
void expect_prepared(const Operator& definition, const Problem& problem) {
  StageTensors gpu(definition, problem, Processor::gpu, Dtype::bf16, Dtype::fp32);
  StageTensors cpu(definition, problem, Processor::cpu, Dtype::fp32, Dtype::fp32);
  const Call call = gpu.call(), host_call = cpu.call();
  const Prepared prepared = prepare(Bf16Arguments::bind(call));
  const FloatArguments a = FloatArguments::bind(host_call);
  const std::int64_t chunks = std::int64_t(a.B) * a.H * prepared.N, units = kLowerBlocks * 32;
  const std::vector<uint4> T = download(prepared.T, chunks * 2 * units), P = download(prepared.P, chunks * units);
  const std::vector<float> factors = download(prepared.factors, chunks * kRows);
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    SCOPED_TRACE("chunk " + std::to_string(chunk));
    const int head = int(chunk / prepared.N), b = head / a.H, h = head % a.H, t = int(chunk % prepared.N) * kRows;
    const int rows = std::min(kRows, a.L - t);
    const Matrix Q = padded(read_rows(a.q, b, h, t, rows, a.Dk)), K = padded(read_rows(a.k, b, h, t, rows, a.Dk));
    const Vector beta = padded(read_rows(a.beta, b, h, t, rows, 1)).col(0);
    Vector f = Vector::Ones(kRows);
    if (a.normalize_keys) f = (K.rowwise().squaredNorm().array() + double(kKeyEps)).rsqrt();
    const Matrix normalized = f.asDiagonal() * K, right = beta.asDiagonal();
    const Matrix A = beta.asDiagonal() * (normalized * normalized.transpose());
    const Matrix exact_T = A.triangularView<Eigen::UnitLower>().solve(right);
    const Matrix exact_P = (Q * K.transpose()).triangularView<Eigen::Lower>();
    const uint4* high = &T[std::size_t(chunk * 2 * units)];
    EXPECT_LE(relative_error(unpacked(high) + unpacked(high + units), exact_T), 1e-4);
    EXPECT_LE(relative_error(unpacked(&P[std::size_t(chunk * units)]), exact_P), 1e-2);
    EXPECT_LE(relative_error(
                  Eigen::Map<const Eigen::VectorXf>(&factors[std::size_t(chunk * kRows)], kRows).cast<double>(), f),
              1e-5);
  }
}

TEST(PrepareTest, TAndPAreEigens) {
  for (const Operator* definition : {&delta_rule_operator(), &normalized_operator()}) {
    for (const std::int64_t Dk : {16, 64, 80, 128, 256}) {
      SCOPED_TRACE(definition->label() + " Dk " + std::to_string(Dk));
      for (const std::int64_t L : {1, 64, 100}) expect_prepared(*definition, drawn(1, 2, L, Dk, 16, 64, *definition));
    }
  }
}

TEST(PrepareTest, KeysThatAreAlike) {
  for (const float beta : {0.5f, 0.99f, 1.0f}) {
    Problem problem = drawn(1, 1, 128, 64, 16);
    correlate(problem, 0.9);
    fill(problem.inputs.at("beta"), beta);
    expect_prepared(delta_rule_operator(), problem);
  }
}

}  // namespace
}  // namespace tutorial::delta_rule
