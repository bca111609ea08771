#pragma once
/// @file
/// The stream that all work of the calling host thread goes to.

#include <cuda_runtime.h>

namespace tutorial {

/// The stream that launch(), DeviceBuffer and the stages use. The default stream unless it was set.
cudaStream_t current_stream();

/// Sends the work of this host thread to `stream` from now on. Graphs can be captured from any stream but the default
/// one, so the timer sets one of its own. The stream stays the caller's, who does not destroy it while it is set.
void set_current_stream(cudaStream_t stream);

}  // namespace tutorial
