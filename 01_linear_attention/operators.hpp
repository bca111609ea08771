#pragma once
/// @file
/// What the chapter's runner must know of the three operators: inputs, outputs, sizes, operations, reference.

#include "common/chapter/operator.hpp"

namespace tutorial {

namespace causal_dot_product {
Operator definition();
Work quadratic_work(const Sizes&);  ///< operations of stage 1
}  // namespace causal_dot_product
namespace causal_attention {
Operator definition();
Work quadratic_work(const Sizes&);  ///< operations of stage 1
}  // namespace causal_attention
namespace bidirectional_attention {
Operator definition();
Work quadratic_work(const Sizes&);  ///< operations of stage 1
}  // namespace bidirectional_attention

}  // namespace tutorial
