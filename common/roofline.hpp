#pragma once
/// @file
/// What this machine can do at most, measured: memory bandwidth and arithmetic rates. Every function takes some tens of
/// milliseconds.

#include <cstddef>

namespace tutorial {

/// Rates of a processor; 0 where a rate was not measured or there is no such unit.
struct Roofline {
  double copy_bytes_s = 0;    ///< bytes read and bytes written in a second, while copying
  double fma_flops_s = 0;     ///< fp32 operations in a second, a multiply-add counting as two
  double tensor_flops_s = 0;  ///< bf16 tensor core operations in a second, through mma.sync m16n8k16
  double exponentials_s = 0;  ///< ex2 instructions in a second
};

/// Which of the arithmetic rates are worth measuring.
struct WantedRates {
  bool fma = false;
  bool tensor = false;
  bool exponentials = false;
};

/// All threads of this machine's processor. The copy and the fp32 rate only.
/// @param available bytes of memory that are free: the copy takes a quarter of them at most
Roofline measure_cpu_roofline(std::size_t available);

/// The bytes of each of the two arrays that measure_cpu_roofline() copies: well above the caches where memory is free.
std::size_t copied_bytes(std::size_t available);

#if TUTORIAL_CUDA
/// The current GPU, on current_stream(). The copy is of up to 512 MB, or a quarter of the memory that is free.
/// @throws CudaError where a call of the runtime fails
Roofline measure_gpu_roofline(const WantedRates& wanted);
#endif

}  // namespace tutorial
