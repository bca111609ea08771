#pragma once
/// @file
/// What the chapter's runner must know of the operator `scan`: inputs, outputs, sizes, operations, reference. The
/// operators `simple_gla` and `delta_rule` themselves are those of chapters 04 and 05.

#include "common/chapter/operator.hpp"

namespace tutorial::scan {

/// Its operations are those of the loop: a multiply-add a step and channel, and the gate's exponential.
Operator definition();

/// With `--backward` the adjoint: reads dy, writes the gradients.
Operator backward_definition();

// The operations of the other stages.
Work hillis_steele_work(const Sizes&);
Work blelloch_work(const Sizes&);  ///< stages 3 and 5
Work scan_states_work(const Sizes&);
Work scan_fused_work(const Sizes&);
Work scan_affine_work(const Sizes&);

}  // namespace tutorial::scan
