#pragma once
/// @file
/// The operator with chapter 01's normaliser, as `--normalize` runs it.
///
///     z_t = z_{t-1} + k_t,    o_t = scale q_t S_t / (scale q_t . z_t + eps)
///
/// It is meant for q and k from a positive feature map, so that no denominator vanishes. Chapter 01's
/// `causal_attention` is this operator with scale = 1, q = phi(q') and k = phi(k'). Errors and requirements are as in
/// linear_attention.hpp.
/// Source: Katharopoulos et al., arXiv 2006.16236, equations 18 to 20.

#include <cstdint>
#include <string>

#include "02_chunkwise/linear_attention.hpp"

namespace tutorial::linear_attention {

/// The arguments that the normaliser adds.
struct Normalizer {
  const float* initial_z = nullptr;  ///< z_0 [B, H, Dk]; null: 0
  float* final_z = nullptr;          ///< z_L [B, H, Dk]; null if it is unused
  float eps = 0;                     ///< added to the denominator
  const float* starts = nullptr;     ///< [B, H, segments - 1, Dk]: initial z of segments, as LaunchPlan::starts
};

/// @tparam T as in Arguments
template <class T>
struct NormalizedBy {
  Arguments<T> attention;  ///< o is the quotient
  Normalizer normalizer;

  static NormalizedBy bind(const Call& call);  ///< sizes and tensors of a call of the runner
};
// With tensors in fp32, and with q, k, v and o in bf16.
using NormalizedFloatArguments = NormalizedBy<float>;
using NormalizedBf16Arguments = NormalizedBy<__nv_bfloat16>;

/// In double on the CPU: the reference of the stages.
void normalized_double(const NormalizedFloatArguments&);
void normalized_recurrent(const NormalizedFloatArguments&);  ///< CPU: z beside S, position after position
void dispatch_normalized(const NormalizedBf16Arguments&);    ///< `dispatch` with the normaliser

// Why dispatch_normalized() cannot run the problem, what it chooses, and the bytes that it needs in addition to inputs
// and outputs.
std::string dispatch_normalized_unsupported(const NormalizedBf16Arguments&);
std::string dispatch_normalized_note(const NormalizedBf16Arguments&);
std::int64_t dispatch_normalized_memory(const NormalizedBf16Arguments&);

}  // namespace tutorial::linear_attention
