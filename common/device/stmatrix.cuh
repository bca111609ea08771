#pragma once
/// @file
/// Stores one, two or four 8 x 8 matrices of 16-bit elements from fragments to shared memory, by all lanes of a warp in
/// one instruction: the reverse of ldmatrix.cuh, whose pictures show which lane holds what. For GPUs of compute
/// capability 9.0 and later.
///
/// The accumulators of mma_m16n8k16(), packed in pairs, are such fragments: d[0], d[1] and d[2], d[3] are two registers
/// of two matrices, one below the other.
///
/// Bulk copies and products of warpgroups see what was stored after fence_async_proxy() (proxy_fence.cuh).
///
/// Source: PTX ISA, "Warp-level matrix instructions: stmatrix".

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include "common/device/source_location.hpp"

#if TUTORIAL_EMULATOR
#include <emulator/async_proxy.hpp>
#include <emulator/require.hpp>
#include <emulator/warp_gather.hpp>

#include "common/device/alignment.hpp"
#else
#include "common/device/architecture.cuh"
#include "common/device/shared_address.cuh"
#endif

namespace tutorial {

/// Stores as many matrices as the fragment has registers: 1, 2 or 4. Called by all lanes of a warp. A row that is not
/// aligned to 16 bytes ends the kernel, on the emulator with a report.
/// @tparam kTransposed if true, the two elements of a register are neighbours of a column
/// @param row the row in shared memory whose address this lane brings, aligned to 16 bytes: lanes 0 to 7 those of the
/// first matrix, and so on
template <bool kTransposed = false, int kMatrices>
__device__ __forceinline__ void stmatrix(void* row, const std::uint32_t (&fragment)[kMatrices],
                                         [[maybe_unused]] SourceLocation where = SourceLocation::current()) {
  static_assert(kMatrices == 1 || kMatrices == 2 || kMatrices == 4);
#if TUTORIAL_EMULATOR
  emulator::require(emulator::Feature::bulk_copies, "stmatrix", where);
  const unsigned lane = emulator::lane();
  if (lane < 8 * kMatrices) check_alignment(row, 16, where);
  const auto rows = emulator::gather(~0u, static_cast<std::uint16_t*>(row), where);
  for (unsigned matrix = 0; matrix < kMatrices; ++matrix) {
    std::uint16_t pair[2];
    std::memcpy(pair, &fragment[matrix], sizeof pair);
    for (unsigned i = 0; i < 2; ++i) {
      const unsigned across = lane / 4, along = lane % 4 * 2 + i;
      std::uint16_t* element = kTransposed ? &rows[matrix * 8 + along][across] : &rows[matrix * 8 + across][along];
      emulator::write_for_async_proxy(element, pair[i]);
    }
  }
#elif TUTORIAL_SM90
  const std::uint32_t address = shared_address(row);
  if constexpr (kMatrices == 1 && !kTransposed) {
    asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" : : "r"(address), "r"(fragment[0]) : "memory");
  } else if constexpr (kMatrices == 1) {
    asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};"
                 :
                 : "r"(address), "r"(fragment[0])
                 : "memory");
  } else if constexpr (kMatrices == 2 && !kTransposed) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};"
                 :
                 : "r"(address), "r"(fragment[0]), "r"(fragment[1])
                 : "memory");
  } else if constexpr (kMatrices == 2) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};"
                 :
                 : "r"(address), "r"(fragment[0]), "r"(fragment[1])
                 : "memory");
  } else if constexpr (!kTransposed) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(address), "r"(fragment[0]), "r"(fragment[1]), "r"(fragment[2]), "r"(fragment[3])
                 : "memory");
  } else {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(address), "r"(fragment[0]), "r"(fragment[1]), "r"(fragment[2]), "r"(fragment[3])
                 : "memory");
  }
#else
  (void)row, (void)fragment;
  __trap();
#endif
}

}  // namespace tutorial
