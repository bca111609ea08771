/// @file
/// The layer's gradients in double.

#include "03_gla/gla_layer_backward/on_cpu.hpp"

namespace tutorial::gla_layer {

void backward_reference(const BackwardArguments& b) {
  layer_backward<double>(b, gla::recurrent, gla::closed_form_double_backward);
}

}  // namespace tutorial::gla_layer
