#pragma once
/// @file
/// The operators of a chapter that exists for the tests of the runner alone.

#include <cuda_bf16.h>

#include <cstdint>
#include <string>

#include "common/view.hpp"

namespace tutorial {

/// A running sum with a decay: s_t = exp(g_t) s_{t-1} + x_t, o_t = scale s_t; x_t counts as 0 from lengths[b] on.
template <class T>
struct RunningSum {
  int B, H, L, Dv;
  float scale;
  View<const T> x;              // [B, H, L, Dv]
  View<const float> g;          // [B, H, L], or null: no decay
  const std::int32_t* lengths;  // [B], or null: all positions count
  const float* initial_state;   // [B, H, Dv], or null: zeros
  View<T> o;                    // [B, H, L, Dv]
  float* final_state;           // [B, H, Dv], or null: not asked for

  static RunningSum bind(const Call& call);
};

/// The gradient of x for that of o, of the sum without a decay: dx_t = dx_{t+1} + do_t.
struct RunningSumBackward {
  int B, H, L, Dv;
  View<const float> d_o;  // [B, H, L, Dv]
  View<float> dx;         // [B, H, L, Dv]

  static RunningSumBackward bind(const Call& call);
};
void sum_backward(const RunningSumBackward&);  // CPU, in double

void sum_reference(const RunningSum<float>&);  // CPU, in double
void sum_plain(const RunningSum<float>&);      // CPU
void sum_kernel(const RunningSum<float>&);     // GPU
void sum_kernel_bf16(const RunningSum<__nv_bfloat16>&);
std::string sum_kernel_unsupported(const RunningSum<float>&);  // up to 64 columns
std::string sum_note(const RunningSum<float>&);
std::int64_t sum_bytes_moved(const RunningSum<float>& a);
std::int64_t sum_memory(const RunningSum<float>&);  // that of a score for each pair of positions

/// o = w x, with a weight for every column.
struct Scaling {
  int B, H, L, Dv;
  View<const float> x;  // [B, H, L, Dv]
  const float* w;       // [Dv]
  View<float> o;

  static Scaling bind(const Call& call);
};

void scaling_right(const Scaling&);
void scaling_wrong(const Scaling&);      // one element
void scaling_unwritten(const Scaling&);  // leaves one element out
void scaling_infinite(const Scaling&);   // one element
void scaling_once(const Scaling&);       // right only the first time
void scaling_throws(const Scaling&);
void scaling_refused(const Scaling&);         // a kernel launch with too many threads
std::int64_t scaling_memory(const Scaling&);  // a row
void scaling_outside(const Scaling&);         // copies one element more of a row than there is

}  // namespace tutorial
