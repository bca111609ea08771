#pragma once
/// @file
/// Chunks on the CPU, for `dense_product`, `wy` and `ut_transform`: the walk over them. Everything is in double, because
/// here the algebra is the lesson. The GPU stages show what rounding does to it.

#include <Eigen/Dense>
#include <algorithm>

#include "05_deltanet_wy/delta_rule.hpp"

namespace tutorial::delta_rule {

/// In double, rows packed.
using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
/// A column vector.
using Vector = Eigen::VectorXd;

/// The inputs of the C positions of a chunk.
struct Chunk {
  Matrix Q, K, V;  ///< [C, Dk], [C, Dk], [C, Dv]; K normalised if normalize_keys
  Vector beta;     ///< [C]
  int b, h, t;     ///< its batch entry, its head and its first position
};

/// Some rows of a head in double, from position t on: [rows, columns].
inline Matrix read_rows(const View<const float>& view, int b, int h, int t, int rows, int columns) {
  using Rows = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  return Eigen::Map<const Rows, 0, Eigen::OuterStride<>>(view.row(b, h, t), rows, columns,
                                                         Eigen::OuterStride<>(view.stride_l))
      .cast<double>();
}

/// Writes the rows from position t on, rounded to fp32.
inline void write_rows(const View<float>& view, int b, int h, int t, const Matrix& rows) {
  for (Eigen::Index i = 0; i < rows.rows(); ++i) {
    for (Eigen::Index j = 0; j < rows.cols(); ++j) view.row(b, h, t + i)[j] = float(rows(i, j));
  }
}

/// Walks the chunks of each head; OpenMP gives each thread one head at a time.
/// @param step Matrix O = step(const Chunk&, Matrix& S): turns S at the chunk's start into S at its end, and returns
/// the outputs [C, Dv] of the chunk before the scale
template <class Step>
void walk_chunks(const FloatArguments& a, Step step) {
  const int longest = std::min(a.C, a.L);
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) {
      Matrix S = Matrix::Zero(a.Dk, a.Dv);
      if (a.initial_state.data) S = read_rows(a.initial_state, b, h, 0, a.Dk, a.Dv);
      for (int t = 0, C; t < a.L; t += C) {
        C = std::min(longest, a.L - t);
        const auto rows = [&](const auto& view, int columns) { return read_rows(view, b, h, t, C, columns); };
        Chunk chunk{rows(a.q, a.Dk), rows(a.k, a.Dk), rows(a.v, a.Dv), rows(a.beta, 1), b, h, t};
        if (a.normalize_keys) {
          const Vector lengths = (chunk.K.rowwise().squaredNorm().array() + double(kKeyEps)).sqrt();
          chunk.K = lengths.cwiseInverse().asDiagonal() * chunk.K;
        }
        write_rows(a.o, b, h, t, double(a.scale) * step(chunk, S));
      }
      if (a.final_state.data) write_rows(a.final_state, b, h, 0, S);
    }
  }
}

}  // namespace tutorial::delta_rule
