#pragma once
/// @file
/// The definitions of the three operators for the chapter's runner: inputs, outputs, sizes, operations, reference. Work
/// is that of one call. The functions need all sizes and throw std::out_of_range if one is missing.

#include "common/chapter/operator.hpp"

namespace tutorial {

namespace causal_dot_product {
/// The operator without its stages, which the table of contents adds.
Operator definition();
Work quadratic_work(const Sizes&);  ///< operations of `quadratic`
}  // namespace causal_dot_product
namespace causal_dot_product_backward {
/// The gradients: the variant `backward` without its stages.
Operator definition();
Work walks_work(const Sizes&);  ///< operations of three products
}  // namespace causal_dot_product_backward
namespace causal_attention {
/// The operator without its stages, which the table of contents adds.
Operator definition();
}  // namespace causal_attention
namespace bidirectional_attention {
/// The operator without its stages, which the table of contents adds.
Operator definition();
}  // namespace bidirectional_attention
namespace causal_attention_backward {
/// The gradients: the variant `backward` without its stages.
Operator definition();
}  // namespace causal_attention_backward
namespace bidirectional_attention_backward {
/// The gradients: the variant `backward` without its stages.
Operator definition();
}  // namespace bidirectional_attention_backward

}  // namespace tutorial
