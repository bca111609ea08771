#pragma once
/// @file
/// The operator `delta_rule` of chapter 05 by a scan. Plain views and sizes only: .cu files include it.
///
///     S_t = S_{t-1} + beta_t k_t^T (v_t - k_t S_{t-1}),    o_t = scale q_t S_t,    S_0 = initial_state or 0
///
/// A step is the map S -> A_t S + b_t, A_t = I - beta_t k_t^T k_t [Dk, Dk], b_t = beta_t k_t^T v_t [Dk, Dv]: chapter
/// 06's maps, whose factor is a matrix. Inputs, sizes and the stages that this one is compared with are chapter 05's,
/// and so are its errors (05_deltanet_wy/delta_rule.hpp).
/// Source: Blelloch, CMU-CS-90-190, sections 1.3 and 1.4; Yang et al., arXiv 2406.06484.

#include <cstdint>
#include <string>

#include "05_deltanet_wy/delta_rule.hpp"

namespace tutorial::scan {

void scan_affine(const delta_rule::FloatArguments&);  ///< 3: GPU: a tree of matrix products over runs of 32 steps

/// What it cannot run, as a sentence; empty where it can.
std::string scan_affine_limits(const delta_rule::FloatArguments&);

/// Bytes of memory that it needs beside its inputs and outputs.
std::int64_t scan_affine_memory(const delta_rule::FloatArguments&);

/// Bytes that its kernels ask global memory for or give to it, be it a cache that serves them.
std::int64_t scan_affine_moved(const delta_rule::FloatArguments&);

}  // namespace tutorial::scan
