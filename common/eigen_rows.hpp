#pragma once
/// @file
/// Rows of a tensor as an Eigen matrix, without a copy. For the stages on the CPU.

#include <Eigen/Dense>

#include "common/view.hpp"

namespace tutorial {

/// The rows from position t on of head h of batch entry b, as a map of [rows, columns].
/// @tparam M a row-major Eigen matrix, const where T is
template <class M, class T>
auto rows_of(const View<T>& view, int b, int h, int t, int rows, int columns) {
  return Eigen::Map<M, 0, Eigen::OuterStride<>>(view.row(b, h, t), rows, columns, Eigen::OuterStride<>(view.stride_l));
}

}  // namespace tutorial
