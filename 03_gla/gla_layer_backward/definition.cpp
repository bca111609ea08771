/// @file
/// What the runner must know of the layer's gradients.

#include "03_gla/gla_layer_backward.hpp"
#include "03_gla/operators.hpp"

namespace tutorial::gla_layer {

BackwardArguments BackwardArguments::bind(const Call& call) {
  return {.layer = FloatArguments::bind(call),
          .dy = call.data<const float>("dy"),
          .dx = call.data<float>("dx"),
          .dWq = call.data<float>("dq_proj.weight"),
          .dWk = call.data<float>("dk_proj.weight"),
          .dWv = call.data<float>("dv_proj.weight"),
          .dWz = call.data<float>("dg_proj.weight"),
          .dW1 = call.data<float>("dgk_proj.0.weight"),
          .dW2 = call.data<float>("dgk_proj.1.weight"),
          .dbias = call.data<float>("dgk_proj.1.bias"),
          .dw = call.data<float>("dg_norm_swish_gate.weight"),
          .dWo = call.data<float>("do_proj.weight"),
          .dWq_subtracted = call.data<float>(subtracted_of("dq_proj.weight")),
          .dWk_subtracted = call.data<float>(subtracted_of("dk_proj.weight"))};
}

Operator backward_definition() {
  return definition()
      .backward("from dy to dx and the gradient of every weight")
      .cancels("dq_proj.weight")
      .cancels("dk_proj.weight")
      .reference(backward_reference, backward_reference_memory)
      .work(cpu_backward_work);
}

Work cpu_backward_work(const Sizes& s) {
  // The projections again and twice as much for their gradients, and gla with its own gradients.
  Work work = cpu_work(s);
  Sizes chunked = s;
  chunked["C"] = 64;
  const Work forward = gla::chunkwise_work(chunked), gradients = gla::chunkwise_backward_work(chunked);
  work.fma_flops += 2 * (work.fma_flops - forward.fma_flops) + gradients.fma_flops;
  work.exponentials += gradients.exponentials;
  return work;
}

}  // namespace tutorial::gla_layer
