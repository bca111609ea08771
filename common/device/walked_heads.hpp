#pragma once
/// @file
/// Two ways to walk a head, of which the GPU chooses one without asking the host, so that a CUDA graph can do it,
/// too. The first kernel walks the heads whose segments need no past, and writes for each segment of each head whether
/// it has done so. The kernels behind it walk the other heads, all segments of them.

#include <cuda_runtime.h>

namespace tutorial {

/// What that kernel writes.
struct WalkedHeads {
  int* walked = nullptr;  ///< [B, H, segments]: 1 or 0. Null if there is no such kernel: then no head has been walked
  int segments = 0;
};

}  // namespace tutorial
