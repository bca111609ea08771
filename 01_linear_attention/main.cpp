/// @file
/// Chapter 01, the table of contents: from softmax attention's O(L^2) scores to a matrix-valued state, and that state
/// onto the GPU. (common/chapter/main.cpp runs it.)

#include "01_linear_attention/linear_attention.hpp"
#include "01_linear_attention/operators.hpp"
#include "common/chapter/chapter.hpp"

namespace tutorial {

Chapter chapter() {
  Chapter chapter("01_linear_attention", "Softmax out, feature map in: attention as an RNN with a matrix for a state");
  {
    using namespace causal_dot_product;
    chapter.add(definition())
        .cpu("quadratic", quadratic, "the masked score matrix, then its product with V: the truth, O(L^2)")
        .dtype(Dtype::fp64)
        .limits(quadratic_limits)
        .stage_work(quadratic_work)
        .cpu("recurrent", recurrent, "a state instead of scores: plain loops, one thread")
        .cpu("recurrent_eigen", recurrent_eigen, "the same two lines in Eigen, heads over threads")
        .gpu("atomic", atomic, "8 rows of the state a block, outputs added up atomically")
        .limits(atomic_limits)
        .gpu("lmha", lmha, "the state in registers, a block a head, tiles of q, k, v loaded ahead")
        .limits(lmha_limits)
        .gpu("lmha_low_occupancy", lmha_low_occupancy, "for few heads: time steps in parallel by prefix sums")
        .limits(lmha_low_occupancy_limits)
        .gpu("dispatch", dispatch, "what a user calls: the right one of the three for this GPU")
        .limits(dispatch_limits)
        .note(dispatch_note);
  }
  {
    using namespace causal_attention;
    chapter.add(definition())
        .cpu("quadratic", quadratic, "every similarity phi(q) . phi(k), normalised")
        .dtype(Dtype::fp64)
        .limits(quadratic_limits)
        .stage_work(quadratic_work)
        .cpu("recurrent", recurrent, "two states, S and its normaliser z")
        .gpu("gpu", gpu, "feature map, causal_dot_product with a column of ones, division")
        .limits(gpu_limits);
  }
  {
    using namespace bidirectional_attention;
    chapter.add(definition())
        .cpu("quadratic", quadratic, "every query with every key")
        .dtype(Dtype::fp64)
        .limits(quadratic_limits)
        .stage_work(quadratic_work)
        .cpu("eigen", eigen, "one state for all queries: two matrix products")
        .gpu("gpu", gpu, "the two products in tiles through shared memory")
        .limits(gpu_limits);
  }
  return chapter;
}

}  // namespace tutorial
