#pragma once
/// @file
/// The operator `delta_rule` of chapter 05 by scans: one declaration per stage. Plain views and sizes only: .cu files
/// include it.
///
///     S_t = S_{t-1} + beta_t k_t^T (v_t - k_t S_{t-1}),    o_t = scale q_t S_t,    S_0 = initial_state or 0
///
/// A step is the map S -> F_t S + b_t, F_t = I - beta_t k_t^T k_t [Dk, Dk], b_t = beta_t k_t^T v_t [Dk, Dv]: chapter
/// 06's maps, whose factor is a matrix. Inputs, sizes and the stages that these are compared with are chapter 05's,
/// and so are its errors (05_deltanet_wy/delta_rule.hpp).
/// Source: Blelloch, CMU-CS-90-190, sections 1.3 and 1.4; Yang et al., arXiv 2406.06484.

#include "05_deltanet_wy/delta_rule.hpp"

namespace tutorial::scan {

void affine_chain(const delta_rule::FloatArguments&);  ///< GPU: runs of 32 steps as matrices, applied in line
void scan_affine(const delta_rule::FloatArguments&);   ///< GPU: a tree of products of these matrices

}  // namespace tutorial::scan
