/// @file
/// The layer in double. Between its parts q, k, v, z, g and o are fp32, as gla's reference takes and gives them: that
/// errs by 6e-8 of each, a hundredth of what the stages are allowed.
///
/// For stages in bf16 the reference keeps q, k, v and z in bf16, too, and computes in double from there. At the first
/// positions of a sequence o is little more than one product, o_1 = scale (q_1 . k_1) v_1. Where q_1 . k_1 happens to
/// be small, the rounding of q_1 and k_1 decides its size and even its sign; the norm then makes a vector of root mean
/// square 1 of it. No bf16 layer can be near the unrounded one there, and how near would be no measure of its kernels.

#include "03_gla/gla_layer/on_cpu.hpp"

namespace tutorial::gla_layer {

void reference(const FloatArguments& a) {
  layer<double, float>(a, gla::recurrent);
}

void bf16_reference(const FloatArguments& a) {
  layer<double, Eigen::bfloat16>(a, gla::recurrent);
}

}  // namespace tutorial::gla_layer
