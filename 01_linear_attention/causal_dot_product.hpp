#pragma once
/// @file
/// The operator causal_dot_product of chapter 01, and one declaration per stage. Plain views and sizes only: .cu files
/// include it.
///
/// Symbols: B batch, H heads, L positions, Dk and Dv the widths of a key and of a value; positions t and i.
/// Views of CPU stages point into host memory, views of GPU stages into device memory. GPU stages only start their
/// kernels, on current_stream(); they throw CudaError if the runtime refuses. So do the functions *_unsupported and
/// *_note if they query the device. All sizes are 1 or more. A stage does not check what it supports: calling it is
/// undefined if *_unsupported is not empty. bind() throws std::logic_error if the call lacks a size or has a tensor of
/// another type.

#include <string>

#include "common/view.hpp"

namespace tutorial {

/// The bare operator, without feature map and normaliser: o_t = q_t sum_{i<=t} k_i^T v_i.
/// Source: Katharopoulos et al., "Transformers are RNNs", arXiv 2006.16236, equations 10 to 12 and algorithm 1.
namespace causal_dot_product {

/// The arguments of a stage: sizes, and views of q, k, v and o.
struct Arguments {
  int B, H, L, Dk, Dv;
  View<const float> q;  ///< [B, H, L, Dk]
  View<const float> k;  ///< [B, H, L, Dk]
  View<const float> v;  ///< [B, H, L, Dv]
  View<float> o;        ///< [B, H, L, Dv]

  static Arguments bind(const Call& call);  ///< sizes and tensors of a call of the runner
};

// On the CPU.
void quadratic(const Arguments&);        ///< the masked score matrix in double, O(L^2)
void recurrent(const Arguments&);        ///< the state S, plain loops, one thread
void recurrent_eigen(const Arguments&);  ///< the same two lines in Eigen, batch and heads over threads
/// The recurrence in double: the reference for sequences that are too long for `quadratic`.
void recurrent_double(const Arguments&);

// On the GPU, fp32.
void atomic(const Arguments&);              ///< 8 rows of S per block, partial outputs added atomically
void registers(const Arguments&);           ///< S in registers, one block per (batch, head)
void lmha(const Arguments&);                ///< tiles of positions, loaded while the tile before is computed
void lmha_low_occupancy(const Arguments&);  ///< one block per (batch, head, value column), positions in parallel
void dispatch(const Arguments&);            ///< what a user calls

// Why a stage cannot run the problem, as a sentence; empty if it can.
std::string quadratic_unsupported(const Arguments&);
std::string atomic_unsupported(const Arguments&);
std::string registers_unsupported(const Arguments&);
std::string lmha_unsupported(const Arguments&);
std::string lmha_low_occupancy_unsupported(const Arguments&);
std::string dispatch_unsupported(const Arguments&);
/// The kernel that dispatch chooses on this GPU, and how it cuts a head, as text for the report.
std::string dispatch_note(const Arguments&);

}  // namespace causal_dot_product

}  // namespace tutorial
