#pragma once
/// @file
/// What the chapter's runner must know of the operators: inputs, outputs, sizes, operations, reference.
/// Work is that of one call, for sizes that are complete; std::out_of_range where one is missing.

#include "common/chapter/operator.hpp"

namespace tutorial::gla {

/// Its operations are those of stage 6, in chunks of 64.
Operator definition();

// The operations of the other stages.
Work recurrent_work(const Sizes&);          ///< stages 1 and 5
Work parallel_unstable_work(const Sizes&);  ///< stage 2
Work parallel_log_work(const Sizes&);       ///< stage 3
Work chunkwise_work(const Sizes&);          ///< stage 4, in chunks of C
Work chunk_gpu_work(const Sizes&);          ///< stage 6
Work subchunk_work(const Sizes&);           ///< stage 7
Work subchunk_walk_work(const Sizes&);      ///< stages 8 and 9

}  // namespace tutorial::gla

namespace tutorial::retention {

/// Its operations are those of gla's stage 6, in chunks of 64.
Operator definition();
Work chunkwise_work(const Sizes&);  ///< stage 1, in chunks of --chunk

}  // namespace tutorial::retention

namespace tutorial::gla_layer {

/// The operator without its stages, which the table of contents adds.
Operator definition();

/// Of the stages in fp32: 1e-5, and above that for L < 100. o_1 = scale (q_1 . k_1) v_1, and where q_1 . k_1 is close
/// to 0, its rounding, 1e-7 of |q_1| |k_1|, is divided by as little as sqrt(eps) = 3e-3: such a row errs by up to 1e-4,
/// and one row of L does so at most.
double float_tolerance(const Sizes&);

// The operations of the stages.
Work cpu_work(const Sizes&);
Work gpu_work(const Sizes&);
Work gpu_bf16_work(const Sizes&);

}  // namespace tutorial::gla_layer
