/// @file
/// `dispatch` of the gradients of packed sequences: what a user calls.
///
/// Idea: one sequence after the other, each as a problem of its own, by `dispatch` of --backward. An empty one hands the
/// gradient of its final state on.
/// Weakness: the host reads cu_seqlens and waits for it, which a CUDA graph that is being captured refuses, and a short
/// sequence leaves most multiprocessors idle.

#include <cuda_runtime.h>

#include "05_deltanet_wy/packed_backward.hpp"
#include "common/tile/sequences_alone.cuh"

namespace tutorial::delta_rule {

void dispatch_packed_backward(const PackedBf16BackwardArguments& p) {
  tile::for_each_sequence(p, [](const Bf16BackwardArguments& a) { dispatch_backward(a); });
}

std::string dispatch_packed_backward_unsupported(const PackedBf16BackwardArguments& p) {
  return dispatch_backward_unsupported(p.all);
}

std::string dispatch_packed_backward_note(const PackedBf16BackwardArguments&) {
  return "one sequence after the other";
}

std::int64_t dispatch_packed_backward_memory(const PackedBf16BackwardArguments& p) {
  return dispatch_backward_memory(p.all);
}

}  // namespace tutorial::delta_rule
