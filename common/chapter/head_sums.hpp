#pragma once
/// @file
/// Gradients of what several heads share.

#include "common/chapter/call.hpp"
#include "common/chapter/operator.hpp"

namespace tutorial {

/// Rows of each head of each group, [groups, heads, L, D], one behind the other, of the type of their sum.
struct HeadParts {
  const void* data;
  int groups, heads, L, D;
};

/// Adds up the heads of each group, in fp32. On a GPU it starts a kernel on current_stream().
/// @param sum [groups, L, D] with the strides of [B, Hk, L, D] memory, Hk = `key_heads`
/// @throws CudaError if the launch is refused
void add_up_heads(const HeadParts& parts, const TensorReference& sum, int key_heads, Processor processor);

}  // namespace tutorial
