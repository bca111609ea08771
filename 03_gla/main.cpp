/// @file
/// Chapter 03, the table of contents: a state that forgets, products of gates that vanish, and what logarithms and
/// sub-chunks do about it. (common/chapter/main.cpp runs it.)

#include "03_gla/gla.hpp"
#include "03_gla/gla/matches_chapter_02.hpp"
#include "03_gla/gla/requirements.hpp"
#include "03_gla/gla_backward.hpp"
#include "03_gla/gla_backward/requirements.hpp"
#include "03_gla/gla_layer.hpp"
#include "03_gla/gla_layer_backward.hpp"
#include "03_gla/operators.hpp"
#include "03_gla/packed.hpp"
#include "03_gla/packed_backward.hpp"
#include "03_gla/retention.hpp"
#include "03_gla/retention/requirements.hpp"
#include "03_gla/retention_backward.hpp"
#include "common/chapter/chapter.hpp"

namespace tutorial {

Chapter chapter() {
  Chapter chapter("03_gla", "Gates: products that vanish, logarithms that do not, chunks within chunks");
  chapter.demonstration("matches_chapter_02", "gates of 1: gla is chapter 02's operator", gla::matches_chapter_02);
  {
    using namespace gla;
    chapter.add(definition())
        .stage({.name = "recurrent",
                .dtype = Dtype::fp64,
                .run = recurrent,
                .idea = "decay the state, add the outer product, read it: the truth, in double",
                .work = recurrent_work})
        .stage({.name = "parallel_unstable",
                .run = parallel_unstable,
                .idea = "matrix products of q times and k over the product of all gates",
                .unsupported = parallel_unstable_unsupported,
                .note = parallel_unstable_note,
                .memory = parallel_unstable_memory,
                .work = parallel_unstable_work})
        .stage({.name = "parallel_log",
                .run = parallel_log,
                .idea = "scores from differences of logarithms: stable, but no product any more",
                .unsupported = parallel_log_unsupported,
                .memory = parallel_log_memory,
                .work = parallel_log_work})
        .stage({.name = "chunkwise",
                .run = chunkwise,
                .idea = "chunks, and sub-chunks of 16 inside: products again, but on the diagonal",
                .memory = chunkwise_memory,
                .work = chunkwise_work})
        .stage({.name = "chunk_gpu",
                .processor = Processor::gpu,
                .run = chunk_gpu,
                .idea = "all chunks at once, scores pair by pair in log space: four kernels",
                .unsupported = chunk_gpu_unsupported,
                .memory = chunk_gpu_memory})
        .stage({.name = "subchunk_tensor_core",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = subchunk_tensor_core,
                .idea = "two levels on tensor cores, the diagonal once in fp32",
                .unsupported = subchunk_tensor_core_unsupported,
                .memory = subchunk_walk_memory,
                .work = subchunk_work})
        .stage({.name = "subchunk_walk",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = subchunk_walk,
                .idea = "from sub-chunk to sub-chunk through the state",
                .unsupported = subchunk_walk_unsupported,
                .memory = subchunk_walk_memory,
                .work = subchunk_walk_work})
        .stage({.name = "segments",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = walk_segments,
                .idea = "segments of the sequence walked at once",
                .unsupported = subchunk_walk_unsupported,
                .memory = walk_segments_memory,
                .work = subchunk_walk_work})
        .stage({.name = "warpgroup_walk",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = warpgroup_walk,
                .idea = "Hopper: products of warpgroups, whose sums are decayed in between",
                .unsupported = warpgroup_walk_unsupported,
                .memory = subchunk_walk_memory,
                .work = subchunk_walk_work})
        .stage({.name = "dispatch",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = on<Bf16Arguments>(dispatch),
                .idea = "what a user calls: as many segments as this problem wants",
                .unsupported = on<Bf16Arguments>(dispatch_unsupported),
                .note = on<Bf16Arguments>(dispatch_note),
                .memory = on<Bf16Arguments>(dispatch_memory),
                .work = subchunk_walk_work})
        .variant({.name = "recurrent_gpu",
                  .processor = Processor::gpu,
                  .run = recurrent_gpu,
                  .idea = "the state in registers, a block walks the positions: one kernel in fp32",
                  .unsupported = recurrent_gpu_unsupported,
                  .work = recurrent_work});
    chapter.add(backward_definition())
        .stage({.name = "recurrent",
                .dtype = Dtype::fp64,
                .run = recurrent_backward,
                .idea = "every state kept, for the gradient of the gate that multiplies it: the truth, in double",
                .memory = recurrent_backward_memory,
                .work = recurrent_backward_work})
        .stage({.name = "closed_form",
                .run = closed_form_backward,
                .idea = "dg = dg + q . dq - k . dk from the end: no state is kept",
                .memory = closed_form_backward_memory,
                .work = closed_form_backward_work})
        .stage({.name = "chunkwise",
                .run = chunkwise_backward,
                .idea = "two levels, and the adjoint of each product with its decays",
                .memory = chunkwise_backward_memory})
        .stage(
            {.name = "anchored_pairs",
             .processor = Processor::gpu,
             .dtype = Dtype::bf16,
             .run = anchored_pairs_backward,
             .idea =
                 "the states of all chunks, then all chunks at once: products of warpgroups, an anchor per sub-chunk",
             .unsupported = one_anchor_backward_unsupported,
             .memory = between_memory,
             .work = anchored_pairs_backward_work})
        .stage({.name = "one_anchor",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = one_anchor_backward,
                .idea = "an anchor for each chunk, so that states take one step per chunk and its pairs one product",
                .unsupported = one_anchor_backward_unsupported,
                .memory = between_memory,
                .work = one_anchor_backward_work})
        .stage({.name = "dispatch",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = on<Bf16BackwardArguments>(dispatch_backward),
                .idea = "what a user calls: any width up to 512, any stride",
                .unsupported = on<Bf16BackwardArguments>(dispatch_backward_unsupported),
                .note = dispatch_backward_note,
                .memory = dispatch_backward_memory,
                .work = one_anchor_backward_work})
        .variant({.name = "materialized",
                  .processor = Processor::gpu,
                  .dtype = Dtype::bf16,
                  .run = materialized_backward,
                  .idea = "the states of all chunks to memory, then one block per chunk, on products of warps",
                  .unsupported = materialized_backward_unsupported,
                  .memory = between_memory,
                  .work = materialized_backward_work})
        .variant({.name = "subchunk_walks",
                  .processor = Processor::gpu,
                  .dtype = Dtype::bf16,
                  .run = subchunk_walks_backward,
                  .idea = "wide heads: three walks, and fp32 for what stays inside a sub-chunk and for dg",
                  .unsupported = subchunk_walks_backward_unsupported,
                  .memory = subchunk_walks_backward_memory,
                  .work = subchunk_walks_backward_work});
    const Operator packed_gradients = backward_definition().packed();
    chapter.add(packed_gradients)
        .stage({.name = "chunkwise",
                .run = packed_gradients.on_each_sequence(on<FloatBackwardArguments>(chunkwise_backward)),
                .idea = "one sequence after the other, each by itself",
                .memory = chunkwise_backward_memory})
        .stage({.name = "dispatch",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = dispatch_packed_backward,
                .idea = "what a user calls",
                .unsupported = dispatch_packed_backward_unsupported,
                .note = dispatch_packed_backward_note,
                .memory = dispatch_packed_backward_memory,
                .work = materialized_backward_work});
    const Operator packed_sequences = packed_definition();
    chapter.add(packed_sequences)
        .stage({.name = "chunkwise",
                .run = packed_sequences.on_each_sequence(on<FloatArguments>(chunkwise)),
                .idea = "one sequence after the other, each by itself",
                .memory = chunkwise_memory,
                .work = chunkwise_work})
        .stage({.name = "dispatch",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = dispatch_packed,
                .idea = "what a user calls: chapter 02's list of segments, each with its decays",
                .unsupported = dispatch_packed_unsupported,
                .note = dispatch_packed_note,
                .memory = dispatch_packed_memory,
                .work = subchunk_walk_work});
  }
  {
    using namespace retention;
    chapter.add(definition())
        .stage({.name = "gpu",
                .processor = Processor::gpu,
                .run = gpu<float>,
                .idea = "gla's dispatch on one row of gates per head",
                .unsupported = gpu_unsupported<float>,
                .note = gpu_note<float>,
                .memory = gpu_memory<float>})
        .stage({.name = "gpu_bf16",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = gpu<__nv_bfloat16>,
                .idea = "the same in bf16",
                .unsupported = gpu_unsupported<__nv_bfloat16>,
                .note = gpu_note<__nv_bfloat16>,
                .memory = gpu_memory<__nv_bfloat16>,
                .work = gla::subchunk_walk_work});
    chapter.add(backward_definition())
        .stage({.name = "dispatch",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = dispatch_backward,
                .idea = "the gradients of gla, on one row of gates per head",
                .unsupported = dispatch_backward_unsupported,
                .note = dispatch_backward_note,
                .memory = dispatch_backward_memory});
  }
  {
    using namespace gla_layer;
    chapter.add(definition())
        .stage({.name = "cpu",
                .run = cpu,
                .idea = "the layer around gla: projections, low-rank gates, a norm and a swish gate",
                .memory = cpu_memory,
                .work = cpu_work,
                .tolerance = float_tolerance})
        .stage({.name = "gpu",
                .processor = Processor::gpu,
                .run = gpu<float>,
                .idea = "cuBLAS for the products, gla's dispatch, and two kernels for the rest",
                .unsupported = gpu_unsupported<float>,
                .note = gpu_note<float>,
                .memory = gpu_memory<float>,
                .work = gpu_work,
                .tolerance = float_tolerance})
        .stage({.name = "gpu_bf16",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = gpu<__nv_bfloat16>,
                .idea = "the same with matrices in bf16: tensor cores for the products",
                .unsupported = gpu_unsupported<__nv_bfloat16>,
                .note = gpu_note<__nv_bfloat16>,
                .memory = gpu_memory<__nv_bfloat16>,
                .work = gpu_bf16_work});
    chapter.add(backward_definition())
        .stage({.name = "cpu",
                .run = cpu_backward,
                .idea = "backwards through projections, norm and gates, with gla's gradients between them",
                .memory = cpu_backward_memory,
                .work = cpu_backward_work,
                .tolerance = float_tolerance});
  }
  return chapter;
}

}  // namespace tutorial
