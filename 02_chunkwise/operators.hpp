#pragma once
/// @file
/// The operator's definition for the chapter's runner: inputs, outputs, sizes, operations, reference.
/// Work is that of one call. The functions need all sizes and throw std::out_of_range if one is missing.

#include "common/chapter/operator.hpp"

namespace tutorial::linear_attention {

/// The operator. Its operations are those of the fp32 stages that process the sequence in chunks of 64.
Operator definition();
/// The same with the normaliser, for --normalize.
Operator normalized_definition();
/// The operator on packed sequences, for --lengths.
Operator packed_definition();
/// The gradients, for --backward. Its operations are those of the tensor-core stages.
Operator backward_definition();
/// The same with the normaliser, for --backward --normalize.
Operator normalized_backward_definition();

// The operations of the stages.
Work gpu_work(const Sizes&);                 ///< the fp32 stages on a GPU, in chunks of 64
Work recurrent_work(const Sizes&);           ///< `recurrent`
Work parallel_work(const Sizes&);            ///< `parallel`
Work chunkwise_work(const Sizes&);           ///< `chunkwise`, in chunks of --chunk
Work tensor_work(const Sizes&);              ///< the tensor-core stages, in chunks of 64
Work recurrent_backward_work(const Sizes&);  ///< `recurrent` of the gradients
Work chunkwise_backward_work(const Sizes&);  ///< `chunkwise` of the gradients, in chunks of --chunk
Work tensor_backward_work(const Sizes&);     ///< their tensor-core stages, in chunks of 64

}  // namespace tutorial::linear_attention
