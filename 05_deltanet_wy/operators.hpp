#pragma once
/// @file
/// What the chapter's runner needs to know about the operator: inputs, outputs, sizes, operations, reference.
/// Work is that of one call, for complete sizes; it throws std::out_of_range if one is missing.

#include "common/chapter/operator.hpp"

namespace tutorial::delta_rule {

/// Its operations are those of `ut_transform` in chunks of 64, on tensor cores.
Operator definition();

/// The same with `--normalize-keys`: k is drawn of any length, and every stage brings it to length 1.
Operator normalized_definition();

/// The gradients of either of them, with `--backward`.
Operator backward_definition(const Operator& forward);
/// Warns of keys that are too long for a step of the recurrence; empty if none is.
std::string warn_of_long_keys(const Problem&);

// The operations of the other stages.
Work recurrent_work(const Sizes&);      ///< recurrent and recurrent_gpu
Work dense_product_work(const Sizes&);  ///< dense_product
Work wy_work(const Sizes&);             ///< wy, in chunks of C
Work ut_transform_work(const Sizes&);   ///< ut_transform and chunk_gpu, in chunks of C
Work recurrent_backward_work(const Sizes&);
Work chunkwise_backward_work(const Sizes&);  ///< in chunks of C

}  // namespace tutorial::delta_rule

namespace tutorial::gated_delta_rule {

/// Its operations are those of `chunkwise` in chunks of 64, on tensor cores.
Operator definition();

/// The same with `--normalize-keys`.
Operator normalized_definition();

/// The gradients of either of them, with `--backward`.
Operator backward_definition(const Operator& forward);

// The operations of the other stages.
Work recurrent_work(const Sizes&);  ///< recurrent and recurrent_gpu
Work chunkwise_work(const Sizes&);  ///< chunkwise, in chunks of C
Work recurrent_backward_work(const Sizes&);
Work chunkwise_backward_work(const Sizes&);  ///< in chunks of C

}  // namespace tutorial::gated_delta_rule

namespace tutorial::kda {

/// Its operations are those of its kernels on tensor cores, in chunks of 64.
Operator definition();

/// The same with `--normalize-keys`.
Operator normalized_definition();

/// The gradients of either of them, with `--backward`.
Operator backward_definition(const Operator& forward);

// The operations of the other stages.
Work recurrent_work(const Sizes&);  ///< and of recurrent_gpu
Work chunkwise_work(const Sizes&);  ///< in chunks of C
Work recurrent_backward_work(const Sizes&);
Work chunkwise_backward_work(const Sizes&);  ///< in chunks of C

}  // namespace tutorial::kda
