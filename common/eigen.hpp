#pragma once
/// @file
/// Eigen's dense matrices. The heart of a large product, which takes a compiler ten seconds, is compiled once
/// (eigen_products.cpp) and not in each file that multiplies. The file of a stage says `A * B` all the same.

#include <Eigen/Dense>

#if EIGEN_WORLD_VERSION == 3 && EIGEN_MAJOR_VERSION == 4

/// The kernel that multiplies packed panels, and the functions that pack them, for one type of numbers. `EXTERN` is `extern`
/// where they are declared and nothing where they are made.
#define TUTORIAL_EIGEN_PRODUCTS(EXTERN, Real)                                                                            \
  EXTERN template struct gebp_kernel<Real, Real, Index, blas_data_mapper<Real, Index, ColMajor, Unaligned, 1>,           \
                                     gebp_traits<Real, Real>::mr, gebp_traits<Real, Real>::nr, false, false>;            \
  EXTERN template struct gemm_pack_lhs<Real, Index, const_blas_data_mapper<Real, Index, ColMajor>,                       \
                                       gebp_traits<Real, Real>::mr, gebp_traits<Real, Real>::LhsProgress,                \
                                       gebp_traits<Real, Real>::LhsPacket4Packing, ColMajor, false, false>;              \
  EXTERN template struct gemm_pack_lhs<Real, Index, const_blas_data_mapper<Real, Index, RowMajor>,                       \
                                       gebp_traits<Real, Real>::mr, gebp_traits<Real, Real>::LhsProgress,                \
                                       gebp_traits<Real, Real>::LhsPacket4Packing, RowMajor, false, false>;              \
  EXTERN template struct gemm_pack_rhs<Real, Index, const_blas_data_mapper<Real, Index, ColMajor>,                       \
                                       gebp_traits<Real, Real>::nr, ColMajor, false, false>;                             \
  EXTERN template struct gemm_pack_rhs<Real, Index, const_blas_data_mapper<Real, Index, RowMajor>,                       \
                                       gebp_traits<Real, Real>::nr, RowMajor, false, false>;

namespace Eigen::internal {
TUTORIAL_EIGEN_PRODUCTS(extern, float)
TUTORIAL_EIGEN_PRODUCTS(extern, double)
}  // namespace Eigen::internal

#endif
