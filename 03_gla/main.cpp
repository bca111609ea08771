/// @file
/// Chapter 03, the table of contents: a state that forgets, gates that vanish, and logarithms and sub-chunks against
/// it. (common/chapter/main.cpp runs it.)

#include "03_gla/gla.hpp"
#include "03_gla/gla/against_chapter_02.hpp"
#include "03_gla/gla_layer.hpp"
#include "03_gla/operators.hpp"
#include "03_gla/retention.hpp"
#include "common/chapter/chapter.hpp"

namespace tutorial {

Chapter chapter() {
  Chapter chapter("03_gla", "Gates: products that vanish, logarithms that do not, chunks within chunks");
  chapter.demonstration("against_chapter_02", "gates of 1: gla is chapter 02's operator", gla::against_chapter_02);
  {
    using namespace gla;
    chapter.add(definition())
        .cpu("recurrent", recurrent, "decay the state, add the outer product, read it: the truth, in double")
        .dtype(Dtype::fp64)
        .stage_work(recurrent_work)
        .cpu("parallel_unstable", parallel_unstable, "matrix products on q times and k over the product of all gates")
        .limits(parallel_unstable_limits)
        .memory(parallel_unstable_memory)
        .note(parallel_unstable_note)
        .stage_work(parallel_unstable_work)
        .cpu("parallel_log", parallel_log, "scores from differences of logarithms: stable, but no product any more")
        .limits(parallel_log_limits)
        .memory(parallel_log_memory)
        .stage_work(parallel_log_work)
        .cpu("chunkwise", chunkwise, "chunks, and sub-chunks of 16 inside: products again, but on the diagonal")
        .memory(chunkwise_memory)
        .stage_work(chunkwise_work)
        .gpu("recurrent_gpu", recurrent_gpu, "the state in registers, a block walks the positions: one kernel")
        .limits(recurrent_gpu_limits)
        .memory(recurrent_gpu_memory)
        .stage_work(recurrent_work)
        .gpu("chunk_gpu", chunk_gpu, "all chunks at once, scores pair by pair in log space: four kernels")
        .limits(chunk_gpu_limits)
        .memory(chunk_gpu_memory)
        .gpu("subchunk_tensor_core", subchunk_tensor_core, "two levels on tensor cores, the diagonal once in fp32")
        .dtype(Dtype::bf16)
        .limits(subchunk_tensor_core_limits)
        .memory(subchunk_tensor_core_memory)
        .stage_work(subchunk_work)
        .gpu<HalfArguments>("subchunk_walk", subchunk_walk, "from sub-chunk to sub-chunk through the state; segments")
        .dtype(Dtype::bf16)
        .limits(subchunk_walk_limits)
        .memory<HalfArguments>(subchunk_walk_memory)
        .stage_work(subchunk_walk_work)
        .gpu<HalfArguments>("dispatch", dispatch, "what a user calls: as many segments as this problem wants")
        .dtype(Dtype::bf16)
        .limits<HalfArguments>(dispatch_limits)
        .memory<HalfArguments>(dispatch_memory)
        .note<HalfArguments>(dispatch_note)
        .stage_work(subchunk_walk_work);
  }
  {
    using namespace retention;
    chapter.add(definition())
        .cpu("chunkwise", chunkwise, "gla's stage of this name on one row of gates a head")
        .memory(chunkwise_memory)
        .stage_work(chunkwise_work)
        .gpu<FloatArguments>("gpu", gpu, "gla's dispatch in fp32 on the same row")
        .limits<FloatArguments>(gpu_limits)
        .memory<FloatArguments>(gpu_memory)
        .note<FloatArguments>(gpu_note)
        .gpu<HalfArguments>("gpu_bf16", gpu, "gla's dispatch")
        .dtype(Dtype::bf16)
        .limits<HalfArguments>(gpu_limits)
        .memory<HalfArguments>(gpu_memory)
        .note<HalfArguments>(gpu_note)
        .stage_work(gla::subchunk_walk_work);
  }
  {
    using namespace gla_layer;
    chapter.add(definition())
        .cpu("cpu", cpu, "the layer around gla: projections, low-rank gates, a norm and a swish gate")
        .memory(cpu_memory)
        .stage_work(cpu_work)
        .gpu("gpu", gpu, "cuBLAS for the products, gla's dispatch, and two kernels for the rest")
        .limits(gpu_limits)
        .memory(gpu_memory)
        .note(gpu_note)
        .stage_work(gpu_work)
        .gpu("gpu_bf16", gpu_bf16, "the same with matrices in bf16: tensor cores for the products")
        .dtype(Dtype::bf16)
        .limits(gpu_bf16_limits)
        .memory(gpu_bf16_memory)
        .note(gpu_bf16_note)
        .stage_work(gpu_bf16_work);
  }
  return chapter;
}

}  // namespace tutorial
