/// @file
/// Chapter 02, the table of contents: one step after the other, all steps at once, and chunks, which combine both in
/// matrix products. (common/chapter/main.cpp runs it.)

#include "02_chunkwise/linear_attention.hpp"
#include "02_chunkwise/linear_attention/requirements.hpp"
#include "02_chunkwise/linear_attention_backward.hpp"
#include "02_chunkwise/linear_attention_backward/requirements.hpp"
#include "02_chunkwise/normalized.hpp"
#include "02_chunkwise/normalized_backward.hpp"
#include "02_chunkwise/operators.hpp"
#include "02_chunkwise/packed.hpp"
#include "02_chunkwise/packed_backward.hpp"
#include "02_chunkwise/prefix_sum/prefix_sum.hpp"
#include "common/chapter/chapter.hpp"

namespace tutorial {

Chapter chapter() {
  Chapter chapter("02_chunkwise", "Recurrent, parallel, chunkwise: the same sum in three orders");
  chapter.demonstration("prefix_sum", "the warm-up: prefix sums in chunks, in two passes",
                        [] { return prefix_sum(12, 4); });
  {
    using namespace linear_attention;
    chapter.add(definition())
        .stage({.name = "recurrent",
                .processor = Processor::gpu,
                .run = recurrent,
                .idea = "chapter 01's last stage: the positions in line",
                .unsupported = recurrent_unsupported,
                .memory = recurrent_memory,
                .work = recurrent_work,
                .without = {"final_state"}})
        .stage({.name = "parallel",
                .run = parallel,
                .idea = "two matrix products with a mask between them, O(L^2)",
                .unsupported = parallel_unsupported,
                .memory = parallel_memory,
                .work = parallel_work})
        .stage({.name = "chunkwise",
                .run = chunkwise,
                .idea = "scores inside a chunk, a state between chunks",
                .memory = chunkwise_memory,
                .work = chunkwise_work})
        .stage({.name = "materialized",
                .processor = Processor::gpu,
                .run = materialized,
                .idea = "all chunks at once, their states in device memory: three kernels",
                .unsupported = materialized_unsupported,
                .memory = materialized_memory})
        .stage({.name = "fused",
                .processor = Processor::gpu,
                .run = fused,
                .idea = "the state stays in shared memory, a block walks the chunks: one kernel",
                .unsupported = fused_unsupported})
        .stage({.name = "mma_products",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = mma_products,
                .idea = "the same walk on bf16: the four products by mma, on tensor cores",
                .unsupported = mma_products_unsupported,
                .work = tensor_work})
        .stage({.name = "register_state",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = register_state,
                .idea = "the state in registers: a sum of mma that is an operand of the next",
                .unsupported = register_state_unsupported,
                .work = tensor_work})
        .stage({.name = "tensor_core",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = tensor_core,
                .idea = "swizzled tiles, and only the scores up to the diagonal",
                .unsupported = tensor_core_unsupported,
                .work = tensor_work})
        .stage({.name = "pipelined",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = pipelined,
                .idea = "the next chunk's loads under this chunk's products: cp.async",
                .unsupported = tensor_core_unsupported,
                .work = tensor_work})
        .stage({.name = "segments",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = segments,
                .idea = "segments of the sequence walked at once",
                .unsupported = tensor_core_unsupported,
                .memory = segments_memory,
                .work = tensor_work})
        .stage({.name = "bulk_copies",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = bulk_copies,
                .idea = "Hopper: one thread asks for a tile, an mbarrier says that it is there",
                .unsupported = bulk_copies_unsupported,
                .work = tensor_work})
        .stage({.name = "warpgroup_mma",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = warpgroup_mma,
                .idea = "Hopper: products of four warps, straight from shared memory: wgmma",
                .unsupported = warpgroup_mma_unsupported,
                .work = tensor_work})
        .stage({.name = "specialized",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = specialized,
                .idea = "Hopper: one warpgroup loads, one computes scores, one has the state",
                .unsupported = warpgroup_mma_unsupported,
                .work = tensor_work})
        .stage({.name = "balanced_roles",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = balanced_roles,
                .idea = "Hopper: the state's warpgroup does nothing that another can do",
                .unsupported = warpgroup_mma_unsupported,
                .work = tensor_work})
        .stage({.name = "queued_products",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = queued_products,
                .idea = "Hopper: while a product runs, the next one is in the queue",
                .unsupported = warpgroup_mma_unsupported,
                .work = tensor_work})
        .stage({.name = "dispatch",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = dispatch,
                .idea = "what a user calls: as many segments and as wide tiles as this problem wants",
                .unsupported = dispatch_unsupported,
                .note = dispatch_note,
                .memory = dispatch_memory,
                .work = tensor_work})
        .variant({.name = "cluster",
                  .processor = Processor::gpu,
                  .dtype = Dtype::bf16,
                  .run = cluster,
                  .idea = "Hopper: two blocks share a head's Q and K, and each computes half of the scores",
                  .unsupported = warpgroup_mma_unsupported,
                  .work = tensor_work});
    chapter.add(normalized_definition())
        .stage({.name = "recurrent",
                .run = normalized_recurrent,
                .idea = "z beside S, position after position",
                .work = recurrent_work})
        .stage({.name = "dispatch",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = dispatch_normalized,
                .idea = "z inside the walk of the same kernels",
                .unsupported = dispatch_normalized_unsupported,
                .note = dispatch_normalized_note,
                .memory = dispatch_normalized_memory,
                .work = tensor_work});
    chapter.add(backward_definition())
        .stage({.name = "recurrent",
                .run = recurrent_backward,
                .idea = "position after position, forwards for dq and backwards for dk and dv",
                .work = recurrent_backward_work})
        .stage({.name = "chunkwise",
                .run = chunkwise_backward,
                .idea = "the adjoint of each of a chunk's four products",
                .memory = chunkwise_backward_memory,
                .work = chunkwise_backward_work})
        .stage({.name = "walks",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = walks_backward,
                .idea = "each gradient is the operator on other inputs: the same walk, forwards or from the end",
                .unsupported = gradients_unsupported})
        .stage({.name = "dispatch",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = dispatch_backward,
                .idea = "what a user calls: the operator's fastest walks in both directions, in segments",
                .unsupported = dispatch_backward_unsupported,
                .note = dispatch_backward_note,
                .memory = dispatch_backward_memory})
        .variant({.name = "materialized",
                  .processor = Processor::gpu,
                  .dtype = Dtype::bf16,
                  .run = materialized_backward,
                  .idea = "all chunks at once by mma, their states and those states' gradients in device memory",
                  .unsupported = gradients_unsupported,
                  .memory = materialized_backward_memory});
    chapter.add(normalized_backward_definition())
        .stage({.name = "recurrent",
                .run = normalized_recurrent_backward,
                .idea = "through the quotient, position after position, z and its gradient beside S and dS",
                .work = recurrent_backward_work})
        .stage({.name = "dispatch",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = dispatch_normalized_backward,
                .idea = "the walks of --backward with do / denominator, and two running sums of rows",
                .unsupported = dispatch_normalized_backward_unsupported,
                .note = dispatch_normalized_backward_note,
                .memory = dispatch_normalized_backward_memory});
    const Operator packed_sequences = packed_definition();
    chapter.add(packed_sequences)
        .stage({.name = "chunkwise",
                .run = packed_sequences.on_each_sequence(on<FloatArguments>(chunkwise)),
                .idea = "one sequence after the other, each by itself",
                .memory = chunkwise_memory,
                .work = chunkwise_work})
        .stage({.name = "packed",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = packed_walk,
                .idea = "segments begin where the sequences do, the longest ones first",
                .unsupported = packed_unsupported,
                .memory = packed_memory,
                .work = tensor_work})
        .stage({.name = "dispatch",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = dispatch_packed,
                .idea = "what a user calls: with the walk of warpgroups on Hopper",
                .unsupported = dispatch_packed_unsupported,
                .note = dispatch_packed_note,
                .memory = dispatch_packed_memory,
                .work = tensor_work});
    const Operator packed_gradients = backward_definition().packed();
    chapter.add(packed_gradients)
        .stage({.name = "chunkwise",
                .run = packed_gradients.on_each_sequence(on<FloatBackwardArguments>(chunkwise_backward)),
                .idea = "one sequence after the other, each by itself",
                .memory = chunkwise_backward_memory,
                .work = chunkwise_backward_work})
        .stage({.name = "dispatch",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = dispatch_packed_backward,
                .idea = "what a user calls",
                .unsupported = dispatch_packed_backward_unsupported,
                .note = dispatch_packed_backward_note,
                .memory = dispatch_packed_backward_memory});
  }
  return chapter;
}

}  // namespace tutorial
