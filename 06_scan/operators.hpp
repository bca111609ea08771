#pragma once
/// @file
/// What the chapter's runner must know of the operator: inputs, outputs, sizes, operations, reference.

#include "common/chapter/operator.hpp"

namespace tutorial::scan {

/// Its operations are those of the loop: a multiply-add a step and channel, and the gate's exponential.
Operator definition();

/// With `--backward` the adjoint: reads dy, writes the gradients.
Operator backward_definition();

// The operations of the other stages.
Work hillis_steele_work(const Sizes&);
Work blelloch_work(const Sizes&);  ///< stages 3 and 5

}  // namespace tutorial::scan
