#pragma once
/// @file
/// Loads one, two or four 8 x 8 matrices of 16-bit elements from shared memory into the fragments of mma.cuh, by all
/// lanes of a warp in one instruction.
///
/// A row of a matrix is 16 contiguous bytes, aligned to 16; rows may be anywhere in shared memory. Lanes 0 to 7 give
/// the addresses of rows 0 to 7 of the first matrix, lanes 8 to 15 those of the second, and so on; the addresses of
/// the lanes left over are not used. Of each matrix every lane gets two elements in one register:
///
///     as stored: two neighbours of a row              _trans: two neighbours of a column
///
///             column  0 1   2 3   4 5   6 7                  column   0    1    2        7
///            row 0  | L0  | L1  | L2  | L3  |               row 0, 1 | L0 | L4 | L8 .. | L28 |
///            row 1  | L4  | L5  | L6  | L7  |               row 2, 3 | L1 | L5 | L9 .. | L29 |
///             ...                                           row 4, 5 | L2 | L6 | L10.. | L30 |
///            row 7  | L28 | L29 | L30 | L31 |               row 6, 7 | L3 | L7 | L11.. | L31 |
///
/// the first of the two in the lower half. So for mma_m16n8k16(d, a, b), with l the lane:
/// - A stored as rows of k, `T A[m][k]`: ldmatrix_x4(a, &A[l % 16][l / 16 * 8])
/// - A stored as rows of m, `T A[k][m]`: ldmatrix_x4_trans(a, &A[l / 16 * 8 + l % 8][l / 8 % 2 * 8])
/// - B stored as rows of k, `T B[n][k]`: ldmatrix_x2(b, &B[l % 8][l / 8 % 2 * 8])
/// - B stored as rows of n, `T B[k][n]`: ldmatrix_x2_trans(b, &B[l % 16][0])
///
/// Source: PTX ISA, "Warp-level matrix instructions: ldmatrix".

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include "common/device/source_location.hpp"

#if TUTORIAL_EMULATOR
#include <emulator/async_proxy.hpp>
#include <emulator/warp_gather.hpp>

#include "common/device/alignment.hpp"
#else
#include "common/device/shared_address.cuh"
#endif

namespace tutorial {

/// The six functions below in one: the number of matrices is that of the fragment's registers. A row that is not
/// aligned to 16 bytes ends the kernel, and so does on the emulator a warp whose lanes do not all call; both with a
/// report there.
template <bool kTransposed, int kMatrices>
__device__ __forceinline__ void ldmatrix(std::uint32_t (&fragment)[kMatrices], const void* row, SourceLocation where) {
  static_assert(kMatrices == 1 || kMatrices == 2 || kMatrices == 4);
#if TUTORIAL_EMULATOR
  const unsigned lane = emulator::lane();
  if (lane < 8 * kMatrices) {
    check_alignment(row, 16, where);
    emulator::note_shared_read(row, where);
  }
  const auto rows = emulator::gather(~0u, static_cast<const std::uint16_t*>(row), where);
  for (unsigned matrix = 0; matrix < kMatrices; ++matrix) {
    std::uint16_t pair[2];
    for (unsigned i = 0; i < 2; ++i) {
      const unsigned across = lane / 4, along = lane % 4 * 2 + i;
      pair[i] =
          emulator::read_unwatched(kTransposed ? &rows[matrix * 8 + along][across] : &rows[matrix * 8 + across][along]);
    }
    std::memcpy(&fragment[matrix], pair, sizeof pair);
  }
#else
  (void)where;
  const std::uint32_t address = shared_address(row);
  if constexpr (kMatrices == 1 && !kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(fragment[0]) : "r"(address) : "memory");
  } else if constexpr (kMatrices == 1) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                 : "=r"(fragment[0])
                 : "r"(address)
                 : "memory");
  } else if constexpr (kMatrices == 2 && !kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(fragment[0]), "=r"(fragment[1])
                 : "r"(address)
                 : "memory");
  } else if constexpr (kMatrices == 2) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(fragment[0]), "=r"(fragment[1])
                 : "r"(address)
                 : "memory");
  } else if constexpr (!kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
                 : "r"(address)
                 : "memory");
  }
#endif
}

/// Loads one 8 x 8 matrix. Called by all lanes of a warp.
/// @param fragment a register a matrix: two elements each
/// @param row the row in shared memory whose address this lane brings, aligned to 16 bytes
__device__ __forceinline__ void ldmatrix_x1(std::uint32_t (&fragment)[1], const void* row,
                                            SourceLocation where = SourceLocation::current()) {
  ldmatrix<false>(fragment, row, where);
}
/// Loads two 8 x 8 matrices; see ldmatrix_x1().
__device__ __forceinline__ void ldmatrix_x2(std::uint32_t (&fragment)[2], const void* row,
                                            SourceLocation where = SourceLocation::current()) {
  ldmatrix<false>(fragment, row, where);
}
/// Loads four 8 x 8 matrices; see ldmatrix_x1().
__device__ __forceinline__ void ldmatrix_x4(std::uint32_t (&fragment)[4], const void* row,
                                            SourceLocation where = SourceLocation::current()) {
  ldmatrix<false>(fragment, row, where);
}
/// Loads one 8 x 8 matrix, transposed; see ldmatrix_x1().
__device__ __forceinline__ void ldmatrix_x1_trans(std::uint32_t (&fragment)[1], const void* row,
                                                  SourceLocation where = SourceLocation::current()) {
  ldmatrix<true>(fragment, row, where);
}
/// Loads two 8 x 8 matrices, each transposed; see ldmatrix_x1().
__device__ __forceinline__ void ldmatrix_x2_trans(std::uint32_t (&fragment)[2], const void* row,
                                                  SourceLocation where = SourceLocation::current()) {
  ldmatrix<true>(fragment, row, where);
}
/// Loads four 8 x 8 matrices, each transposed; see ldmatrix_x1().
__device__ __forceinline__ void ldmatrix_x4_trans(std::uint32_t (&fragment)[4], const void* row,
                                                  SourceLocation where = SourceLocation::current()) {
  ldmatrix<true>(fragment, row, where);
}

}  // namespace tutorial
