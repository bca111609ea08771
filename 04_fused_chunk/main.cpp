/// @file
/// Chapter 04, the table of contents: what fusing buys. Five kernels of a first release become one, step by step; then
/// the scalar gate, where fusing meets its limit. (common/chapter/main.cpp runs it.)

#include "03_gla/operators.hpp"
#include "04_fused_chunk/fused_gla.hpp"
#include "04_fused_chunk/operators.hpp"
#include "04_fused_chunk/simple_gla.hpp"
#include "common/chapter/chapter.hpp"

namespace tutorial {

Chapter chapter() {
  Chapter chapter("04_fused_chunk", "What fusing buys: fewer launches, fewer bytes, and what they cost");
  {
    using namespace fused_gla;
    chapter.add(gla::definition())
        .gpu("chapter_03", chapter_03, "chapter 03's last stage")
        .dtype(Dtype::bf16)
        .limits(chapter_03_limits)
        .memory(chapter_03_memory)
        .moved(chapter_03_moved)
        .note(chapter_03_note)
        .stage_work(gla::subchunk_walk_work)
        .gpu("five_steps", five_steps, "windows of 16: four kernels and an addition, all in memory between them")
        .dtype(Dtype::bf16)
        .limits(window_limits)
        .memory(five_steps_memory)
        .moved(five_steps_moved)
        .stage_work(window_work)
        .gpu("prepare_fused", prepare_fused, "sums of gates, and what they do to q and k, in one pass")
        .dtype(Dtype::bf16)
        .limits(window_limits)
        .memory(five_steps_memory)
        .moved(prepare_fused_moved)
        .stage_work(window_work)
        .gpu("intra_fused", intra_fused, "the walk computes the scores, too, and gives o itself: two kernels")
        .dtype(Dtype::bf16)
        .limits(window_limits)
        .memory(intra_fused_memory)
        .moved(intra_fused_moved)
        .stage_work(window_work)
        .gpu<HalfArguments>("one_kernel", one_kernel,
                            "warps that prepare beside warps that walk: no workspace, v is read once")
        .dtype(Dtype::bf16)
        .limits(one_kernel_limits)
        .memory(one_kernel_memory)
        .moved(one_kernel_moved)
        .stage_work(gla::subchunk_walk_work)
        .gpu("dispatch", dispatch, "what a user calls: chapter 03's, for a reason")
        .dtype(Dtype::bf16)
        .limits(dispatch_limits)
        .memory(dispatch_memory)
        .moved(dispatch_moved)
        .note(dispatch_note)
        .stage_work(gla::subchunk_walk_work);
  }
  {
    using namespace simple_gla;
    chapter.add(definition())
        .cpu("recurrent", recurrent, "decay the state, add the outer product, read it: the truth, in double")
        .dtype(Dtype::fp64)
        .stage_work(recurrent_work)
        .cpu("chunkwise", chunkwise, "chunks; the decay of a score is one factor, put on after the product")
        .memory(chunkwise_memory)
        .stage_work(chunkwise_work)
        .gpu("two_kernels", two_kernels, "on bf16: the chunks' states into memory, then all outputs at once")
        .dtype(Dtype::bf16)
        .limits(two_kernels_limits)
        .memory(two_kernels_memory)
        .moved(two_kernels_moved)
        .gpu<HalfArguments>("fused", fused, "one walk, the state in registers: no state in memory")
        .dtype(Dtype::bf16)
        .limits(fused_limits)
        .memory(fused_memory)
        .moved<HalfArguments>(fused_moved)
        .gpu<HalfArguments>("sequence_parallel", sequence_parallel, "segments of the sequence walked at once")
        .dtype(Dtype::bf16)
        .limits(fused_limits)
        .memory<HalfArguments>(sequence_parallel_memory)
        .moved<HalfArguments>(sequence_parallel_moved)
        .gpu("dispatch", dispatch, "what a user calls: as many segments and as wide tiles as this problem wants")
        .dtype(Dtype::bf16)
        .limits(dispatch_limits)
        .memory(dispatch_memory)
        .moved(dispatch_moved)
        .note(dispatch_note);
  }
  return chapter;
}

}  // namespace tutorial
