#pragma once
/// @file
/// The operator `scan`, and one declaration per stage. Plain views and sizes only: .cu files include it.
///
///     y_t = exp(g_t) y_{t-1} + x_t,    y_0 = initial_state or 0
///
/// for each of D channels. g_t, the logarithm of the gate, is one number per step (Dg = 1) or one per step and channel
/// (Dg = D). It is at most 0, as in all operators with gates: where values grow, a rounding error grows with them, and
/// the product of a tile's gates is infinite before y is. Files with g > 0 are refused.
///
/// Views of CPU stages point into host memory, views of GPU stages into device memory. GPU stages only start their
/// kernels, on current_stream(); they throw CudaError if the runtime refuses. All sizes are 1 or more. A stage does not
/// check what it supports: scan/requirements.hpp tells. bind() throws std::logic_error if the call lacks a size or has a
/// tensor of another type.
/// Sources: Blelloch, "Prefix Sums and Their Applications", CMU-CS-90-190, 1990, section 1.4; Martin and Cundy,
/// "Parallelizing Linear Recurrent Neural Nets Over Sequence Length", arXiv 1709.04057.

#include "common/view.hpp"

namespace tutorial::scan {

/// The arguments of a stage.
struct Arguments {
  int B, H, L, D;
  int Dg;                           ///< 1 or D
  View<const float> x;              ///< [B, H, L, D]
  View<const float> log_decay;      ///< [B, H, L, Dg]: g
  View<const float> initial_state;  ///< [B, H, D]; data is null if y_0 = 0
  View<float> y;                    ///< [B, H, L, D]
  View<float> final_state;          ///< [B, H, D]: the last y; data is null if it is not wanted
  View<float> final_log_decay;      ///< [B, H, Dg]: the sum of g over time; data is null if it is not wanted
  /// False: g_1 is not in memory and counts as 0. For a sequence that is read from its end: see backwards().
  bool has_first_gate = true;

  static Arguments bind(const Call& call);  ///< sizes and tensors of a call of the runner
};

// On the CPU, in double.
void sequential(const Arguments&);     ///< a loop over time: what every stage is checked against
void hillis_steele(const Arguments&);  ///< log2(L) rounds over everything
void blelloch(const Arguments&);       ///< up a tree and down again

// On the GPU.
void sequential_gpu(const Arguments&);  ///< one thread per channel
void blelloch_gpu(const Arguments&);    ///< the tree in shared memory, tile after tile
void warp_shuffle(const Arguments&);    ///< scans in registers, tile after tile
void single_pass(const Arguments&);     ///< all tiles at once: look-back
void warp_look_back(const Arguments&);  ///< a warp looks at 32 predecessors at once
void wide_tiles(const Arguments&);      ///< tiles of 8192 steps that wait in shared memory
void channel_lanes(const Arguments&);   ///< lanes are channels
void dispatch(const Arguments&);        ///< what a user calls

}  // namespace tutorial::scan
