#pragma once
/// @file
/// The operator with chapter 01's normaliser, as `--normalize` runs it.
///
///     z_t = z_{t-1} + k_t,    o_t = scale q_t S_t / (scale q_t . z_t + eps)
///
/// It is for q and k that a positive feature map made, so that no denominator vanishes: chapter 01's `causal_attention`
/// is this with scale = 1, q = phi(q') and k = phi(k'). Errors and limits as in linear_attention.hpp.
/// Source: Katharopoulos et al., arXiv 2006.16236, equations 18 to 20.

#include <cstdint>
#include <string>

#include "02_chunkwise/linear_attention.hpp"

namespace tutorial::linear_attention {

/// What the normaliser adds to the arguments.
struct Normalizer {
  const float* initial_z = nullptr;  ///< z_0 [B, H, Dk]; null: 0
  float* final_z = nullptr;          ///< z_L [B, H, Dk]; null where nobody asks for it
  float eps = 0;                     ///< added to the denominator
  const float* starts = nullptr;     ///< [B, H, segments - 1, Dk]: where segments start from, as LaunchPlan::starts
};

/// @tparam T as in Arguments
template <class T>
struct NormalizedBy {
  Arguments<T> attention;  ///< its o is the quotient
  Normalizer normalizer;

  static NormalizedBy bind(const Call& call);  ///< sizes and tensors of a call of the runner
};
// With tensors in fp32, and with q, k, v and o in bf16.
using NormalizedFloatArguments = NormalizedBy<float>;
using NormalizedBf16Arguments = NormalizedBy<__nv_bfloat16>;

/// In double on the CPU: what the stages are checked against.
void normalized_double(const NormalizedFloatArguments&);
void normalized_recurrent(const NormalizedFloatArguments&);  ///< 1: CPU: z beside S, position after position
void dispatch_normalized(const NormalizedBf16Arguments&);    ///< 2: stage 15 with the normaliser

// What it cannot run, what it picks, and the bytes that it needs beside inputs and outputs.
std::string dispatch_normalized_unsupported(const NormalizedBf16Arguments&);
std::string dispatch_normalized_note(const NormalizedBf16Arguments&);
std::int64_t dispatch_normalized_memory(const NormalizedBf16Arguments&);

}  // namespace tutorial::linear_attention
