#pragma once
/// @file
/// Rows in double, for `recurrent` of `--backward` of `delta_rule` and of the operators with gates: the products of a
/// step, and the gradient of a key that is normalised.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

#include "05_deltanet_wy/delta_rule.hpp"
#include "common/view.hpp"

namespace tutorial::delta_rule {

/// Rows, one after the other.
struct Rows {
  int count;
  std::size_t width;
  std::vector<double> data;

  /// Of zeros.
  Rows(int count, int width) : count(count), width(std::size_t(width)), data(std::size_t(count) * std::size_t(width)) {}
  /// The elements of a row.
  double* operator[](int row) { return &data[std::size_t(row) * width]; }
  /// The same.
  const double* operator[](int row) const { return &data[std::size_t(row) * width]; }
};

/// Of a head; zeros if the view has no data.
template <class Float>
Rows read(const View<Float>& view, int b, int h, int count, int width) {
  Rows rows(count, width);
  for (int t = 0; t < count && view.data; ++t) std::copy_n(view.row(b, h, t), width, rows[t]);
  return rows;
}

/// Writes the rows of a head, rounded to fp32; nothing if the view has no data.
inline void write(const View<float>& view, int b, int h, const Rows& rows) {
  for (int t = 0; t < rows.count && view.data; ++t) std::copy_n(rows[t], rows.width, view.row(b, h, t));
}

/// x . y.
inline double dot(const double* x, const double* y, std::size_t width) {
  return std::inner_product(x, x + width, y, 0.0);
}

/// S += factor x^T y, x [Dk], y [Dv].
inline void add_outer(Rows& S, double factor, const double* x, const double* y) {
  for (int d = 0; d < S.count; ++d) {
    for (std::size_t j = 0; j < S.width; ++j) S[d][j] += factor * x[d] * y[j];
  }
}

/// y += factor x S, x [Dk], y [Dv].
inline void add_read(double* y, double factor, const double* x, const Rows& S) {
  for (int d = 0; d < S.count; ++d) {
    for (std::size_t j = 0; j < S.width; ++j) y[j] += factor * x[d] * S[d][j];
  }
}

/// y += factor x S^T, x [Dv], y [Dk].
inline void add_transposed_read(double* y, double factor, const double* x, const Rows& S) {
  for (int d = 0; d < S.count; ++d) {
    for (std::size_t j = 0; j < S.width; ++j) y[d] += factor * x[j] * S[d][j];
  }
}

/// Brings the keys to length 1 and returns their factors.
inline std::vector<double> normalize(Rows& k) {
  std::vector<double> factors;
  for (int t = 0; t < k.count; ++t) {
    factors.push_back(1 / std::sqrt(dot(k[t], k[t], k.width) + double(kKeyEps)));
    for (std::size_t d = 0; d < k.width; ++d) k[t][d] *= factors.back();
  }
  return factors;
}

/// From the gradients for normalised keys to those for the keys: dk_t = f_t dy_t - f_t (dy_t . y_t) y_t.
/// @param dk dy, then dk @param subtracted filled with what is subtracted @param k normalised
inline void through_normalization(Rows& dk, Rows& subtracted, const Rows& k, const std::vector<double>& factors) {
  for (int t = 0; t < k.count; ++t) {
    const double f = factors[std::size_t(t)], along = dot(dk[t], k[t], k.width);
    for (std::size_t d = 0; d < k.width; ++d) {
      subtracted[t][d] = f * along * k[t][d];
      dk[t][d] = f * dk[t][d] - subtracted[t][d];
    }
  }
}

}  // namespace tutorial::delta_rule
