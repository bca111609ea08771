#pragma once
/// @file
/// What the chapter's runner needs to know about the operators: inputs, outputs, sizes, operations, reference.
/// `simple_gla` and `delta_rule` are defined by chapters 04 and 05. Work is that of one call, for complete sizes; it
/// throws std::out_of_range if one is missing.

#include "06_scan/decode.hpp"
#include "06_scan/over_devices.hpp"
#include "common/chapter/operator.hpp"

namespace tutorial::scan {

/// Its operations are those of the loop: a multiply-add per step and channel, and the gate's exponential.
Operator definition();

/// With `--backward` the adjoint: reads dy, writes the gradients.
Operator backward_definition();

// The operations of the other stages.
Work hillis_steele_work(const Sizes&);
Work blelloch_work(const Sizes&);  ///< of blelloch and blelloch_gpu
Work scan_states_work(const Sizes&);
Work scan_tiles_work(const Sizes&);  ///< of scan_tiles and scan_fused
Work affine_chain_work(const Sizes&);
Work scan_affine_work(const Sizes&);

}  // namespace tutorial::scan

namespace tutorial::decode {

/// Its operations are those of the recurrence. simple_gla is the operator, the other rules are its variants.
template <Rule kRule>
Operator definition();
/// The same on states in the slots of a pool, for --pool.
template <Rule kRule>
Operator pool_definition();
/// The error of states in bf16, which each token rounds by up to 2^-8 of an element. Where no gate forgets, these errors
/// add up like a random walk.
double bf16_states_tolerance(const Sizes&);

// The operations of the other stages.
template <Rule kRule>
Work prefill_work(const Sizes&);
template <Rule kRule>
Work step_work(const Sizes&);

}  // namespace tutorial::decode

namespace tutorial::over_devices {

/// The operator of the rule's chapter as the variant `devices`.
template <Rule kRule>
Operator definition();
/// Its gradients, for `--backward --devices`.
template <Rule kRule>
Operator backward_definition();

}  // namespace tutorial::over_devices

namespace tutorial::convolution {

/// Its operations are those of the direct sum.
Operator definition();

// The operations of the other stages.
Work fft_work(const Sizes&);  ///< of fft and cufft
Work by_scan_work(const Sizes&);

}  // namespace tutorial::convolution

namespace tutorial::short_convolution {

Operator definition();           ///< W multiply-adds per element
Operator backward_definition();  ///< twice as many

}  // namespace tutorial::short_convolution
