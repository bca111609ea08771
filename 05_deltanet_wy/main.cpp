/// @file
/// Chapter 05, the table of contents: a state that overwrites, and how its steps become matrix products again.
/// (common/chapter/main.cpp runs it.)

#include "05_deltanet_wy/delta_rule.hpp"
#include "05_deltanet_wy/delta_rule/against_chapter_02.hpp"
#include "05_deltanet_wy/operators.hpp"
#include "common/chapter/chapter.hpp"

namespace tutorial {
namespace {

void add_stages(Operator& definition) {
  using namespace delta_rule;
  definition.cpu("recurrent", recurrent, "read under the key, write the difference: the truth, in double")
      .dtype(Dtype::fp64)
      .stage_work(recurrent_work)
      .cpu("dense_product", dense_product, "a chunk's matrices I - beta k^T k multiplied out: why nobody does it")
      .dtype(Dtype::fp64)
      .memory(dense_product_memory)
      .stage_work(dense_product_work)
      .cpu("wy", wy, "their product is I minus a sum of outer products: its vectors, one after the other")
      .dtype(Dtype::fp64)
      .memory(wy_memory)
      .stage_work(wy_work)
      .cpu("ut_transform", ut_transform, "all vectors at once: T from a triangular solve, then matrix products")
      .dtype(Dtype::fp64)
      .memory(ut_transform_memory)
      .stage_work(ut_transform_work)
      .gpu("recurrent_gpu", recurrent_gpu, "the state in registers, a block walks the positions: one kernel")
      .limits(recurrent_gpu_limits)
      .memory(recurrent_gpu_memory)
      .moved(recurrent_gpu_moved)
      .stage_work(recurrent_work)
      .gpu("chunk_gpu", chunk_gpu, "the UT transform of all chunks at once, then a walk over them: four kernels")
      .limits(chunk_gpu_limits)
      .memory(chunk_gpu_memory)
      .moved(chunk_gpu_moved)
      .stage_work(ut_transform_work)
      .gpu("tensor_core", tensor_core, "T from its 16 x 16 blocks, all products on bf16: the same four kernels")
      .dtype(Dtype::bf16)
      .limits(tensor_core_limits)
      .memory(tensor_core_memory)
      .moved(tensor_core_moved)
      .gpu("fused", fused, "no W, no U, no states in memory: T, then one walk")
      .dtype(Dtype::bf16)
      .limits(fused_limits)
      .memory(fused_memory)
      .moved(fused_moved)
      .gpu("dispatch", dispatch,
           "what a user calls: fused, else tensor_core, or in fp32 what the tensor cores do not take")
      .dtype(Dtype::bf16)
      .limits(dispatch_limits)
      .memory(dispatch_memory)
      .moved(dispatch_moved)
      .note(dispatch_note);
}

}  // namespace

Chapter chapter() {
  Chapter chapter("05_deltanet_wy", "The delta rule: a state that overwrites, and the products hidden in it");
  chapter.demonstration("against_chapter_02", "orthonormal keys, beta = 1: delta_rule is chapter 02's operator",
                        delta_rule::against_chapter_02);
  add_stages(chapter.add(delta_rule::definition()));
  add_stages(chapter.add(delta_rule::normalized_definition()));
  return chapter;
}

}  // namespace tutorial
