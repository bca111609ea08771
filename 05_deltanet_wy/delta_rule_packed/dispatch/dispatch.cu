/// @file
/// `dispatch` of delta_rule on packed sequences: what a user calls.
///
/// Idea: the sequences one after the other, each as a problem of its own. The host reads cu_seqlens and waits for it, which
/// a CUDA graph that is being captured refuses.
/// Weakness: a short sequence leaves most multiprocessors idle.

#include <cuda_runtime.h>

#include "05_deltanet_wy/packed_delta_rule.hpp"
#include "common/tile/sequences_alone.cuh"

namespace tutorial::delta_rule {

void dispatch_packed(const PackedBf16Arguments& p) {
  tile::for_each_sequence(p, [](const Bf16Arguments& a) { dispatch(a); });
}

std::string dispatch_packed_unsupported(const PackedBf16Arguments& p) {
  return dispatch_unsupported(p.all);
}

std::string dispatch_packed_note(const PackedBf16Arguments&) {
  return "one sequence after the other";
}

std::int64_t dispatch_packed_memory(const PackedBf16Arguments& p) {
  return dispatch_memory(p.all);
}

}  // namespace tutorial::delta_rule
