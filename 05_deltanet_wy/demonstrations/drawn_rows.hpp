#pragma once
/// @file
/// Tensors for the chapter's demonstrations, which compare two operators on the same inputs.

#include <Eigen/Dense>

#include "common/random.hpp"
#include "common/tensor.hpp"
#include "common/view.hpp"

namespace tutorial::delta_rule {

/// Normal numbers in fp32, the same for the same name. @param shape [B, H, rows, columns]
inline Tensor drawn_rows(const char* name, Shape shape) {
  Tensor tensor(Dtype::fp32, std::move(shape));
  const Random random(2, name);
  std::uint64_t i = 0;
  for (float& x : tensor.elements<float>()) x = float(random.normal(i++));
  return tensor;
}

/// Of a tensor [B, H, rows, columns].
template <class T, class SomeTensor>
View<T> view_of(SomeTensor& tensor) {
  return packed<T>(tensor.template elements<float>().data(), tensor.shape()[1], tensor.shape()[2], tensor.shape()[3]);
}

/// Turns each head's keys [B, H, L, Dk], L <= Dk, into orthonormal ones that span the same space.
inline void make_orthonormal(Tensor& k) {
  using Rows = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Eigen::Index L = k.shape()[2], Dk = k.shape()[3];
  const auto elements = k.elements<float>();
  for (Eigen::Index first = 0; first < Eigen::Index(elements.size()); first += L * Dk) {
    Eigen::Map<Rows> K(&elements[std::size_t(first)], L, Dk);
    const Eigen::HouseholderQR<Eigen::MatrixXd> factors(K.cast<double>().transpose());
    const Eigen::MatrixXd basis = factors.householderQ() * Eigen::MatrixXd::Identity(Dk, L);
    K = basis.transpose().cast<float>();
  }
}

}  // namespace tutorial::delta_rule
