#pragma once
/// @file
/// Transposes an 8 x 8 matrix of 16-bit elements in the registers of a warp: movmatrix.
///
/// A lane has two neighbours of a row in one register, as in the fragments of mma.cuh: row lane / 4, columns p and
/// p + 1 with p = 2 (lane % 4). Afterwards it has those of the transposed matrix: what were column lane / 4, rows p and
/// p + 1.
///
/// Source: PTX ISA, "Warp-level matrix transpose instruction: movmatrix".

#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/source_location.hpp"

#if TUTORIAL_EMULATOR
#include <emulator/warp_gather.hpp>
#endif

namespace tutorial {

/// Called by all lanes of a warp: undefined on a GPU where some do not, a report on the emulator.
/// @param two the lane's two elements, the one of smaller column in the lower half
/// @returns its two of the transposed matrix, likewise
__device__ __forceinline__ std::uint32_t transpose_8x8(
    std::uint32_t two, [[maybe_unused]] SourceLocation where = SourceLocation::current()) {
#if TUTORIAL_EMULATOR
  const auto lanes = emulator::gather(~0u, two, where);
  const unsigned row = emulator::lane() / 4, column = emulator::lane() % 4 * 2;
  const auto element = [&](unsigned i, unsigned j) { return lanes[i * 4 + j / 2] >> (j % 2 * 16) & 0xFFFFu; };
  return element(column, row) | element(column + 1, row) << 16;
#else
  std::uint32_t transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(two));
  return transposed;
#endif
}

}  // namespace tutorial
