#pragma once
/// @file
/// GPU only: addresses as the instructions for shared memory want them.

#include <cuda_runtime.h>

#include <cstdint>

namespace tutorial {

/// A pointer to shared memory as a 32-bit offset into it in bytes, for the "r" operands of inline PTX. Undefined for
/// pointers to other memory.
__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

}  // namespace tutorial
