/// @file
/// The layer in double. Between its parts q, k, v, g and o are fp32, as gla's reference takes and gives them: that
/// errs by 6e-8 of each, a hundredth of what the stages are allowed.

#include "03_gla/gla_layer/on_cpu.hpp"

namespace tutorial::gla_layer {

void reference(const FloatArguments& a) {
  layer<double>(a, gla::recurrent);
}

}  // namespace tutorial::gla_layer
