#pragma once
/// @file
/// What the exercises compute, in double.

#include <cmath>
#include <cstddef>
#include <vector>

#include "exercise/checker.hpp"

namespace exercise {

/// What a sequence leaves.
struct Sequence {
  std::vector<double> outputs;              ///< [length, value_dim]
  std::vector<double> state;                ///< [key_dim, value_dim], the last one
  std::vector<std::vector<double>> states;  ///< before each position, and the last one
};

/// A row vector times a matrix [size of the vector, columns].
inline std::vector<double> product(const std::vector<double>& row, const std::vector<double>& matrix,
                                   std::size_t columns) {
  std::vector<double> result(columns);
  for (std::size_t d = 0; d < row.size(); ++d) {
    for (std::size_t j = 0; j < columns; ++j) result[j] += row[d] * matrix[d * columns + j];
  }
  return result;
}

/// A row of a matrix.
template <class Matrix>
std::vector<double> row_of(const Matrix& matrix, std::size_t t, std::size_t columns) {
  std::vector<double> row(columns);
  for (std::size_t d = 0; d < columns; ++d) row[d] = matrix[t * columns + d];
  return row;
}

/// Gated linear attention: S_t = diag(gate_t) S_{t-1} + k_t^T v_t, o_t = q_t S_t. @param gates [length, key_dim]; empty
/// for gates of 1 @param initial S_{-1}; empty for zeros
template <class Matrix>
Sequence gated_product(const Matrix& q, const Matrix& k, const Matrix& v, const std::vector<double>& gates,
                       std::size_t key_dim, std::size_t value_dim, const std::vector<double>& initial = {}) {
  Sequence result;
  result.state = initial.empty() ? std::vector<double>(key_dim * value_dim) : initial;
  for (std::size_t t = 0; t < k.size() / key_dim; ++t) {
    result.states.push_back(result.state);
    for (std::size_t d = 0; d < key_dim; ++d) {
      for (std::size_t j = 0; j < value_dim; ++j) {
        double& element = result.state[d * value_dim + j];
        element = (gates.empty() ? 1 : gates[t * key_dim + d]) * element + k[t * key_dim + d] * v[t * value_dim + j];
      }
    }
    for (const double o : product(row_of(q, t, key_dim), result.state, value_dim)) result.outputs.push_back(o);
  }
  result.states.push_back(result.state);
  return result;
}

/// The same without gates.
template <class Matrix>
Sequence causal_product(const Matrix& q, const Matrix& k, const Matrix& v, std::size_t key_dim, std::size_t value_dim) {
  return gated_product(q, k, v, {}, key_dim, value_dim);
}

/// The delta rule: S_t = S_{t-1} + beta_t k_t^T (v_t - k_t S_{t-1}), o_t = q_t S_t.
template <class Matrix>
Sequence delta_rule(const Matrix& q, const Matrix& k, const Matrix& v, const std::vector<double>& beta,
                    std::size_t key_dim, std::size_t value_dim) {
  Sequence result;
  result.state.resize(key_dim * value_dim);
  for (std::size_t t = 0; t < beta.size(); ++t) {
    result.states.push_back(result.state);
    const std::vector<double> held = product(row_of(k, t, key_dim), result.state, value_dim);
    for (std::size_t d = 0; d < key_dim; ++d) {
      for (std::size_t j = 0; j < value_dim; ++j) {
        result.state[d * value_dim + j] += beta[t] * k[t * key_dim + d] * (v[t * value_dim + j] - held[j]);
      }
    }
    for (const double o : product(row_of(q, t, key_dim), result.state, value_dim)) result.outputs.push_back(o);
  }
  result.states.push_back(result.state);
  return result;
}

/// A matrix whose rows have the length 1.
inline std::vector<double> unit_rows(std::vector<double> matrix, std::size_t columns) {
  for (std::size_t first = 0; first < matrix.size(); first += columns) {
    double squares = 0;
    for (std::size_t d = 0; d < columns; ++d) squares += matrix[first + d] * matrix[first + d];
    for (std::size_t d = 0; d < columns; ++d)
      matrix[first + d] = static_cast<float>(matrix[first + d] / std::sqrt(squares));
  }
  return matrix;
}

/// A square matrix without its diagonal and what lies above.
inline std::vector<double> strictly_lower(std::vector<double> matrix, std::size_t size) {
  for (std::size_t i = 0; i < matrix.size(); ++i) {
    if (i % size >= i / size) matrix[i] = 0;
  }
  return matrix;
}

/// beta_i k_i . k_j for j < i, and 0 elsewhere.
inline std::vector<double> overlaps(const std::vector<double>& keys, const std::vector<double>& beta,
                                    std::size_t key_dim) {
  const std::size_t size = beta.size();
  std::vector<double> result(size * size);
  for (std::size_t i = 0; i < result.size(); ++i) {
    for (std::size_t d = 0; d < key_dim; ++d) {
      result[i] += beta[i / size] * keys[i / size * key_dim + d] * keys[i % size * key_dim + d];
    }
  }
  return strictly_lower(result, size);
}

/// (I + lower)^-1 for a strictly lower matrix.
inline std::vector<double> unit_lower_inverse(const std::vector<double>& lower, std::size_t size) {
  std::vector<double> result(size * size);
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t c = 0; c < size; ++c) {
      result[i * size + c] = i == c;
      for (std::size_t j = 0; j < i; ++j) result[i * size + c] -= lower[i * size + j] * result[j * size + c];
    }
  }
  return result;
}

/// y_t = a_t y_{t-1} + x_t, for sequences of `length` steps.
template <class Matrix>
std::vector<double> affine_scan(const std::vector<double>& a, const Matrix& x, std::size_t length) {
  std::vector<double> y(a.size());
  for (std::size_t t = 0; t < a.size(); ++t) y[t] = x[t] + (t % length > 0 ? a[t] * y[t - 1] : 0);
  return y;
}

}  // namespace exercise
