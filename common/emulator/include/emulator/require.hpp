#pragma once
/// @file
/// What some instructions need of the device beyond compute capability 8.0.

#include <source_location>

namespace emulator {

/// See common/device/architecture.cuh, which has the same two conditions for a GPU.
enum class Feature {
  /// Bulk copies, barriers in shared memory, clusters, stmatrix, elect: from compute capability 9.0 on.
  bulk_copies,
  /// wgmma, setmaxnreg and the multicast of bulk copies, as compiled for sm_90a: compute capability 9.0 alone.
  warpgroup_products
};

/// Ends the launch with a report if the device that EMULATOR_DEVICE chose lacks the feature. To be called in kernels
/// only. @param instruction PTX's name, for the report
void require(Feature feature, const char* instruction, std::source_location where);

}  // namespace emulator
