/// @file
/// The products that eigen.hpp declares.

#include "common/eigen.hpp"

#ifdef TUTORIAL_EIGEN_PRODUCTS
namespace Eigen::internal {
TUTORIAL_EIGEN_PRODUCTS(, float)
TUTORIAL_EIGEN_PRODUCTS(, double)
}  // namespace Eigen::internal
#endif
