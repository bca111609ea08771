/// @file
/// Chapter 01, the table of contents: from softmax attention's O(L^2) scores to a matrix-valued state, and that state
/// onto the GPU. (common/chapter/main.cpp runs it.)

#include "01_linear_attention/attention.hpp"
#include "01_linear_attention/causal_dot_product.hpp"
#include "01_linear_attention/causal_dot_product_backward.hpp"
#include "01_linear_attention/operators.hpp"
#include "common/chapter/chapter.hpp"

namespace tutorial {

Chapter chapter() {
  Chapter chapter("01_linear_attention", "Softmax out, feature map in: attention as an RNN with a matrix for a state");
  {
    using namespace causal_dot_product;
    chapter.add(definition())
        .stage({.name = "quadratic",
                .dtype = Dtype::fp64,
                .run = quadratic,
                .idea = "the masked score matrix, then its product with V: the truth, O(L^2)",
                .unsupported = quadratic_unsupported,
                .work = quadratic_work})
        .stage({.name = "recurrent", .run = recurrent, .idea = "a state instead of scores: plain loops, one thread"})
        .stage({.name = "recurrent_eigen",
                .run = recurrent_eigen,
                .idea = "the same two lines in Eigen, heads over threads"})
        .stage({.name = "atomic",
                .processor = Processor::gpu,
                .run = atomic,
                .idea = "8 rows of the state per block, outputs added up atomically",
                .unsupported = atomic_unsupported})
        .stage({.name = "registers",
                .processor = Processor::gpu,
                .run = registers,
                .idea = "one block per head, the state in registers",
                .unsupported = registers_unsupported})
        .stage({.name = "lmha",
                .processor = Processor::gpu,
                .run = lmha,
                .idea = "double buffering: the next tile of q, k, v is loaded during this one",
                .unsupported = lmha_unsupported})
        .stage({.name = "lmha_low_occupancy",
                .processor = Processor::gpu,
                .run = lmha_low_occupancy,
                .idea = "for few heads: positions in parallel by prefix sums",
                .unsupported = lmha_low_occupancy_unsupported})
        .stage({.name = "dispatch",
                .processor = Processor::gpu,
                .run = dispatch,
                .idea = "what a user calls: the right one of the three for this GPU",
                .unsupported = dispatch_unsupported,
                .note = dispatch_note});
  }
  {
    using namespace causal_dot_product_backward;
    chapter.add(definition())
        .stage({.name = "recurrent",
                .run = recurrent,
                .idea = "the state from the start, its adjoint from the end: nothing is stored but inputs"})
        .stage({.name = "lmha",
                .processor = Processor::gpu,
                .run = lmha,
                .idea = "one kernel source for forward and backward: states in registers, double buffering",
                .unsupported = lmha_unsupported,
                .work = walks_work})
        .stage({.name = "dispatch",
                .processor = Processor::gpu,
                .run = dispatch,
                .idea = "what a user calls: all three products at once",
                .unsupported = dispatch_unsupported,
                .note = dispatch_note,
                .work = walks_work});
  }
  {
    using namespace causal_attention;
    chapter.add(definition())
        .stage({.name = "recurrent", .run = recurrent, .idea = "two states, S and its normaliser z"})
        .stage({.name = "gpu",
                .processor = Processor::gpu,
                .run = gpu,
                .idea = "feature map, causal_dot_product with a column of ones, division",
                .unsupported = gpu_unsupported});
  }
  {
    using namespace causal_attention_backward;
    chapter.add(definition())
        .stage(
            {.name = "recurrent", .run = recurrent, .idea = "a walk from each end, two numbers per position between"})
        .stage({.name = "dispatch",
                .processor = Processor::gpu,
                .run = dispatch,
                .idea = "division, causal_dot_product's gradients and feature map, each passes its gradient on",
                .unsupported = dispatch_unsupported});
  }
  {
    using namespace bidirectional_attention;
    chapter.add(definition())
        .stage({.name = "eigen",
                .run = eigen,
                .idea = "one state for all queries: two matrix products",
                .memory = eigen_memory})
        .stage({.name = "gpu",
                .processor = Processor::gpu,
                .run = gpu,
                .idea = "the two products in tiles through shared memory",
                .unsupported = gpu_unsupported});
  }
  {
    using namespace bidirectional_attention_backward;
    chapter.add(definition())
        .stage({.name = "eigen", .run = eigen, .idea = "the gradient of a matrix product is two matrix products"})
        .stage({.name = "dispatch",
                .processor = Processor::gpu,
                .run = dispatch,
                .idea = "one kernel for matrix products, six times",
                .unsupported = dispatch_unsupported});
  }
  return chapter;
}

}  // namespace tutorial
