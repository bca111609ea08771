#pragma once
/// @file
/// What the chapter's runner must know of the operator: inputs, outputs, sizes, operations, reference.
/// Work is that of one call, for sizes that are complete; std::out_of_range where one is missing.

#include "common/chapter/operator.hpp"

namespace tutorial::linear_attention {

/// Its operations are those of the fp32 stages that take the sequence in chunks of 64.
Operator definition();
/// The same with the normaliser, for --normalize.
Operator normalized_definition();
/// The gradients, for --backward. Its operations are those of the tensor-core stages.
Operator backward_definition();
/// The same with the normaliser, for --backward --normalize.
Operator normalized_backward_definition();

// The operations of the other stages.
Work recurrent_work(const Sizes&);           ///< stage 1
Work parallel_work(const Sizes&);            ///< stage 2
Work chunkwise_work(const Sizes&);           ///< stage 3, in chunks of --chunk
Work tensor_work(const Sizes&);              ///< the tensor-core stages, in chunks of 64
Work recurrent_backward_work(const Sizes&);  ///< stage 1 of the gradients
Work chunkwise_backward_work(const Sizes&);  ///< stage 2 of the gradients, in chunks of --chunk
Work tensor_backward_work(const Sizes&);     ///< their tensor-core stages, in chunks of 64

}  // namespace tutorial::linear_attention
