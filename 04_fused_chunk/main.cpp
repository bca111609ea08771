/// @file
/// Chapter 04, the table of contents: what fusing buys. Five kernels of a first release become one, step by step; then
/// the scalar gate, where fusing meets its limit. (common/chapter/main.cpp runs it.)

#include "03_gla/operators.hpp"
#include "04_fused_chunk/fused_gla.hpp"
#include "04_fused_chunk/gla/dispatch/chapter_03.hpp"
#include "04_fused_chunk/operators.hpp"
#include "04_fused_chunk/packed_backward.hpp"
#include "04_fused_chunk/packed_gla.hpp"
#include "04_fused_chunk/packed_simple_gla.hpp"
#include "04_fused_chunk/simple_gla.hpp"
#include "04_fused_chunk/simple_gla/bounded_start.hpp"
#include "04_fused_chunk/simple_gla/dispatch/walks.hpp"
#include "04_fused_chunk/simple_gla_backward.hpp"
#include "04_fused_chunk/simple_gla_backward/requirements.hpp"
#include "common/chapter/chapter.hpp"

namespace tutorial {

Chapter chapter() {
  Chapter chapter("04_fused_chunk", "What fusing buys: fewer launches, fewer bytes, and what they cost");
  {
    using namespace fused_gla;
    chapter.add(gla::definition())
        .stage({.name = "five_steps",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = five_steps,
                .idea = "sub-chunks of 16: five kernels, all in memory between them",
                .unsupported = five_steps_unsupported,
                .memory = five_steps_memory,
                .bytes_moved = five_steps_bytes_moved,
                .work = sub_chunk_work})
        .stage(
            {.name = "intra_fused",
             .processor = Processor::gpu,
             .dtype = Dtype::bf16,
             .run = intra_fused,
             .idea = "what a sub-chunk needs in one kernel, then one walk with all of Dk that computes the scores, too",
             .unsupported = five_steps_unsupported,
             .memory = intra_fused_memory,
             .bytes_moved = intra_fused_bytes_moved,
             .work = sub_chunk_work})
        .stage({.name = "one_kernel",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = one_kernel,
                .idea = "warps that prepare beside warps that walk: no workspace, v is read once",
                .unsupported = one_kernel_unsupported,
                .bytes_moved = one_kernel_bytes_moved,
                .work = gla::subchunk_walk_work})
        .stage({.name = "specialized",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = specialized,
                .idea = "Hopper: the same, with the walk on products of warpgroups",
                .unsupported = specialized_unsupported,
                .bytes_moved = specialized_bytes_moved,
                .work = gla::subchunk_walk_work})
        .stage({.name = "score_levels",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = score_levels,
                .idea = "Hopper: an anchor for every pair, so that all scores are products; warps that multiply them",
                .unsupported = score_levels_unsupported,
                .bytes_moved = score_levels_bytes_moved,
                .work = gla::subchunk_walk_work})
        .stage({.name = "segments",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = segments,
                .idea = "Hopper: segments of the sequence at once, whose first states read k, v and g alone",
                .unsupported = score_levels_unsupported,
                .note = segments_note,
                .memory = segments_memory,
                .bytes_moved = segments_bytes_moved,
                .work = gla::subchunk_walk_work})
        .stage({.name = "dispatch",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = dispatch,
                .idea = "what a user calls: one kernel or chapter 03's, by estimated times",
                .unsupported = dispatch_unsupported,
                .note = dispatch_note,
                .memory = dispatch_memory,
                .bytes_moved = dispatch_bytes_moved,
                .work = gla::subchunk_walk_work})
        .variant({.name = "chapter_03",
                  .processor = Processor::gpu,
                  .dtype = Dtype::bf16,
                  .run = chapter_03,
                  .idea = "chapter 03's dispatch",
                  .unsupported = chapter_03_unsupported,
                  .note = chapter_03_note,
                  .memory = chapter_03_memory,
                  .bytes_moved = chapter_03_bytes_moved,
                  .work = gla::subchunk_walk_work});
    const Operator packed_sequences = gla::packed_definition();
    chapter.add(packed_sequences)
        .stage({.name = "recurrent",
                .dtype = Dtype::fp64,
                .run = packed_sequences.on_each_sequence(on<gla::FloatArguments>(gla::recurrent)),
                .idea = "one sequence after the other, each by itself",
                .work = gla::recurrent_work})
        .stage({.name = "dispatch",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = dispatch_packed,
                .idea = "what a user calls: the kernels of segments on chapter 02's list of segments, or chapter 03",
                .unsupported = dispatch_packed_unsupported,
                .note = dispatch_packed_note,
                .memory = dispatch_packed_memory,
                .work = gla::subchunk_walk_work});
  }
  {
    using namespace simple_gla;
    chapter.add(definition())
        .stage({.name = "recurrent",
                .dtype = Dtype::fp64,
                .run = recurrent,
                .idea = "decay the state, add the outer product, read it: the truth, in double",
                .work = recurrent_work})
        .stage({.name = "chunkwise",
                .run = chunkwise,
                .idea = "chunks; the decay of a score is one factor, put on after the product",
                .memory = chunkwise_memory,
                .work = chunkwise_work})
        .stage({.name = "fused",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = fused,
                .idea = "on bf16: chapter 02's walk with three decays, the state in registers",
                .unsupported = fused_unsupported,
                .bytes_moved = fused_bytes_moved})
        .stage({.name = "specialized",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = specialized,
                .idea = "Hopper: the warpgroups with the scores make the decays, the state's only multiplies",
                .unsupported = specialized_unsupported,
                .bytes_moved = specialized_bytes_moved})
        .stage({.name = "register_scores",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = register_scores,
                .idea = "Hopper: P stays in registers, and the state waits for no scores",
                .unsupported = specialized_unsupported,
                .bytes_moved = specialized_bytes_moved})
        .stage({.name = "bounded_start",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = bounded_start,
                .idea = "Hopper: segments at once; each starts from zeros, as much earlier as its gates want",
                .unsupported = specialized_unsupported,
                .note = bounded_start_note})
        .stage({.name = "dispatch",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = dispatch,
                .idea = "what a user calls: as many segments and as wide tiles as this problem wants",
                .unsupported = dispatch_unsupported,
                .note = dispatch_note,
                .memory = dispatch_memory,
                .bytes_moved = dispatch_bytes_moved})
        .variant({.name = "two_kernels",
                  .processor = Processor::gpu,
                  .dtype = Dtype::bf16,
                  .run = two_kernels,
                  .idea = "the chunks' states into memory, then all outputs at once",
                  .unsupported = two_kernels_unsupported,
                  .memory = two_kernels_memory,
                  .bytes_moved = two_kernels_bytes_moved})
        .variant({.name = "segments",
                  .processor = Processor::gpu,
                  .dtype = Dtype::bf16,
                  .run = segments,
                  .idea = "segments of the sequence walked at once",
                  .unsupported = fused_unsupported,
                  .memory = segments_memory,
                  .bytes_moved = segments_bytes_moved});
    chapter.add(backward_definition())
        .stage({.name = "recurrent",
                .run = recurrent_backward,
                .idea = "chapter 02's two passes with a gate; dg from q . dq - k . dk, no state stored",
                .memory = recurrent_backward_memory,
                .work = recurrent_backward_work,
                .tolerance = fp32_backward_tolerance})
        .stage({.name = "chunkwise",
                .run = chunkwise_backward,
                .idea = "the adjoint of each of a chunk's products has the decay of that product",
                .memory = chunkwise_backward_memory,
                .work = chunkwise_backward_work,
                .tolerance = fp32_backward_tolerance})
        .stage({.name = "walks",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = walks_backward,
                .idea = "S and dS on the chip; dg from fp32 registers, one number per position and walk",
                .unsupported = walks_backward_unsupported,
                .memory = walks_backward_memory,
                .tolerance = walks_backward_tolerance})
        .stage({.name = "segments",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = segments_backward,
                .idea = "the walks on segments of the sequence at once; dg starts anew at the end of each",
                .unsupported = walks_backward_unsupported,
                .note = segments_backward_note,
                .memory = segments_backward_memory,
                .tolerance = bf16_backward_tolerance})
        .stage({.name = "hopper_gradients",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = hopper_gradients_backward,
                .idea = "Hopper: the three walks by warpgroups, in one launch; runs of segments follow one another",
                .unsupported = hopper_gradients_backward_unsupported,
                .note = hopper_gradients_backward_note,
                .memory = hopper_gradients_backward_memory,
                .tolerance = bf16_backward_tolerance})
        .stage({.name = "dispatch",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = dispatch_backward,
                .idea = "what a user calls: pipelined, on copies with more columns where widths or rows need it",
                .unsupported = dispatch_backward_unsupported,
                .note = dispatch_backward_note,
                .memory = dispatch_backward_memory,
                .tolerance = bf16_backward_tolerance})
        .variant({.name = "pipelined",
                  .processor = Processor::gpu,
                  .dtype = Dtype::bf16,
                  .run = pipelined_backward,
                  .idea = "the next chunk's loads run under this chunk's products",
                  .unsupported = pipelined_backward_unsupported,
                  .note = segments_backward_note,
                  .memory = segments_backward_memory,
                  .tolerance = bf16_backward_tolerance});
    const Operator packed_sequences = packed_definition();
    chapter.add(packed_sequences)
        .stage({.name = "recurrent",
                .dtype = Dtype::fp64,
                .run = packed_sequences.on_each_sequence(on<FloatArguments>(recurrent)),
                .idea = "one sequence after the other, each by itself",
                .work = recurrent_work})
        .stage({.name = "dispatch",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = dispatch_packed,
                .idea = "what a user calls: chapter 02's list of segments, each with its decay",
                .unsupported = dispatch_packed_unsupported,
                .note = dispatch_packed_note,
                .memory = dispatch_packed_memory});
    const Operator packed_gradients = backward_definition().packed();
    chapter.add(packed_gradients)
        .stage({.name = "chunkwise",
                .run = packed_gradients.on_each_sequence(on<FloatBackwardArguments>(chunkwise_backward)),
                .idea = "one sequence after the other, each by itself",
                .memory = chunkwise_backward_memory,
                .work = chunkwise_backward_work,
                .tolerance = fp32_backward_tolerance})
        .stage({.name = "dispatch",
                .processor = Processor::gpu,
                .dtype = Dtype::bf16,
                .run = dispatch_packed_backward,
                .idea = "what a user calls",
                .unsupported = dispatch_packed_backward_unsupported,
                .note = dispatch_packed_backward_note,
                .memory = dispatch_packed_backward_memory,
                .tolerance = bf16_backward_tolerance});
  }
  return chapter;
}

}  // namespace tutorial
