#pragma once
/// @file
/// What the chapter's runner needs to know about the operators: inputs, outputs, sizes, operations, reference.
/// Work is that of one call, for complete sizes; it throws std::out_of_range if one is missing.

#include "common/chapter/operator.hpp"

namespace tutorial::gla {

/// Its operations are those of chunk_gpu, in chunks of 64.
Operator definition();
/// The operator on packed sequences, for --lengths.
Operator packed_definition();

// The operations of the other stages.
Work recurrent_work(const Sizes&);  ///< and of recurrent_gpu
Work parallel_unstable_work(const Sizes&);
Work parallel_log_work(const Sizes&);
Work chunkwise_work(const Sizes&);  ///< in chunks of C
Work chunk_gpu_work(const Sizes&);
Work subchunk_work(const Sizes&);       ///< of subchunk_tensor_core
Work subchunk_walk_work(const Sizes&);  ///< and of segments and dispatch: what one segment takes

/// The gradients (gla_backward_operators.cpp).
Operator backward_definition();
Work recurrent_backward_work(const Sizes&);       ///< with every state kept
Work closed_form_backward_work(const Sizes&);     ///< without
Work chunkwise_backward_work(const Sizes&);       ///< in chunks of C
Work subchunk_walks_backward_work(const Sizes&);  ///< from sub-chunk to sub-chunk
Work materialized_backward_work(const Sizes&);    ///< and of the two after it
Work anchored_pairs_backward_work(const Sizes&);  ///< with the pairs of sub-chunks on tensor cores
Work one_anchor_backward_work(const Sizes&);      ///< with all pairs of a chunk in one product

}  // namespace tutorial::gla

namespace tutorial::retention {

/// Its operations are those of gla's chunk_gpu, in chunks of 64.
Operator definition();
/// The gradients, with the operations of gla's.
Operator backward_definition();

}  // namespace tutorial::retention

namespace tutorial::gla_layer {

/// The operator without its stages, which the table of contents adds.
Operator definition();

/// Of the stages in fp32: 1e-5, and more for L < 100. o_1 = scale (q_1 . k_1) v_1. If q_1 . k_1 is close to 0, its
/// rounding error, 1e-7 of |q_1| |k_1|, is divided by as little as sqrt(eps) = 3e-3. The error of such a row is up to
/// 1e-4, and at most one of the L rows is such a row.
double float_tolerance(const Sizes&);

// The operations of the stages.
Work cpu_work(const Sizes&);
Work gpu_work(const Sizes&);
Work gpu_bf16_work(const Sizes&);

/// The gradients (gla_layer_backward/definition.cpp).
Operator backward_definition();
Work cpu_backward_work(const Sizes&);  ///< projections and gla's gradients

}  // namespace tutorial::gla_layer
