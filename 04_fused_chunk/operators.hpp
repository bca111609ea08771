#pragma once
/// @file
/// What the chapter's runner needs to know about the operators: inputs, outputs, sizes, operations, reference. The
/// operator `gla` itself is chapter 03's.
/// Work is that of one call, for complete sizes; it throws std::out_of_range if one is missing.

#include "common/chapter/operator.hpp"

namespace tutorial::fused_gla {

/// The least operations of the stages from five_steps to intra_fused, in sub-chunks of 16. (intra_fused computes the
/// pairs once per 64 columns of v; they are counted once.)
Work sub_chunk_work(const Sizes&);

}  // namespace tutorial::fused_gla

namespace tutorial::simple_gla {

/// Its operations are those of chunks of 64 on tensor cores.
Operator definition();
/// The operator on packed sequences, for --lengths.
Operator packed_definition();

// The operations of the other stages.
Work recurrent_work(const Sizes&);  ///< of recurrent
Work chunkwise_work(const Sizes&);  ///< of chunkwise, in chunks of --chunk

/// The gradients. Their operations are those of chunks of 64 on tensor cores.
Operator backward_definition();
Work recurrent_backward_work(const Sizes&);  ///< of recurrent
Work chunkwise_backward_work(const Sizes&);  ///< of chunkwise, in chunks of --chunk

// What the errors of a stage may be.
double fp32_backward_tolerance(const Sizes&);   ///< of recurrent and chunkwise
double bf16_backward_tolerance(const Sizes&);   ///< of the other GPU stages
double walks_backward_tolerance(const Sizes&);  ///< of walks

}  // namespace tutorial::simple_gla
