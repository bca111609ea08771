/// @file
/// Chapter 02, the table of contents: one step after the other, all steps at once, and the chunks between the two that
/// make matrix products of both. (common/chapter/main.cpp runs it.)

#include "02_chunkwise/linear_attention.hpp"
#include "02_chunkwise/normalized.hpp"
#include "02_chunkwise/operators.hpp"
#include "02_chunkwise/prefix_sum.hpp"
#include "common/chapter/chapter.hpp"

namespace tutorial {

Chapter chapter() {
  Chapter chapter("02_chunkwise", "Recurrent, parallel, chunkwise: the same sum in three orders");
  chapter.demonstration("prefix_sum", "the warm-up: prefix sums in chunks, in two passes",
                        [] { return prefix_sum(12, 4); });
  {
    using namespace linear_attention;
    chapter.add(definition())
        .gpu("recurrent", recurrent, "chapter 01's last stage: the positions in line")
        .limits(recurrent_limits)
        .memory(recurrent_memory)
        .stage_work(recurrent_work)
        .without_output("final_state")
        .cpu("parallel", parallel, "two matrix products with a mask between them, O(L^2)")
        .limits(parallel_limits)
        .memory(parallel_memory)
        .stage_work(parallel_work)
        .cpu("chunkwise", chunkwise, "scores inside a chunk, a state between chunks")
        .memory(chunkwise_memory)
        .stage_work(chunkwise_work)
        .gpu("materialized", materialized, "all chunks at once, their states in device memory: three kernels")
        .limits(materialized_limits)
        .memory(materialized_memory)
        .gpu<FloatArguments>("fused", fused, "the state stays in shared memory, a block walks the chunks: one kernel")
        .limits<FloatArguments>(fused_limits)
        .memory<FloatArguments>(fused_memory)
        .gpu("tensor_core", tensor_core, "the same walk on bf16: products by mma, the state in registers")
        .dtype(Dtype::bf16)
        .limits(tensor_core_limits)
        .memory(tensor_core_memory)
        .stage_work(tensor_work)
        .gpu<HalfArguments>("pipelined", pipelined, "the next chunk's loads under this chunk's products: cp.async")
        .dtype(Dtype::bf16)
        .limits(tensor_core_limits)
        .memory(tensor_core_memory)
        .stage_work(tensor_work)
        .gpu<HalfArguments>("sequence_parallel", sequence_parallel, "segments of the sequence walked at once")
        .dtype(Dtype::bf16)
        .limits(tensor_core_limits)
        .memory(sequence_parallel_memory)
        .stage_work(tensor_work)
        .gpu("dispatch", dispatch, "what a user calls: as many segments and as wide tiles as this problem wants")
        .dtype(Dtype::bf16)
        .limits(dispatch_limits)
        .memory(dispatch_memory)
        .note(dispatch_note)
        .stage_work(tensor_work);
    chapter.add(normalized_definition())
        .cpu("recurrent", normalized_recurrent, "z beside S, position after position")
        .stage_work(recurrent_work)
        .gpu("dispatch", dispatch_normalized, "z inside the walk of the same kernels")
        .dtype(Dtype::bf16)
        .limits(dispatch_normalized_limits)
        .memory(dispatch_normalized_memory)
        .note(dispatch_normalized_note)
        .stage_work(tensor_work);
  }
  return chapter;
}

}  // namespace tutorial
