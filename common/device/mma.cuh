#pragma once
/// @file
/// The tensor core's product of a 16 x 16 and a 16 x 8 matrix, added to a 16 x 8 matrix in fp32, by one warp.
///
/// Each lane holds a fragment of every matrix. With g = lane / 4 (0 to 7) and p = 2 * (lane % 4) (0, 2, 4, 6):
///
///     A, 16 x 16, 4 registers of two         B, 16 x 8, 2 registers of two        C and D, 16 x 8, 4 floats
///
///              k = p, p+1   p+8, p+9                     n = g                          n = p      p+1
///            +------------+------------+               +--------+                     +--------+--------+
///     m = g  |    a[0]    |    a[2]    |    k = p,p+1  |  b[0]  |              m = g  |  d[0]  |  d[1]  |
///            +------------+------------+               +--------+                     +--------+--------+
///     g + 8  |    a[1]    |    a[3]    |    p+8,p+9    |  b[1]  |              g + 8  |  d[2]  |  d[3]  |
///            +------------+------------+               +--------+                     +--------+--------+
///
/// A register of A or B holds two 16-bit numbers neighbouring in k, the one of smaller k in its lower half. So lane 6
/// (g = 1, p = 4) holds A[1][4] and A[1][5] in a[0], B[4][1] and B[5][1] in b[0], and D[1][4] in d[0].
///
/// Two results side by side, d0 (n = 0 to 7) and d1 (n = 8 to 15), become an A fragment of the next product without
/// leaving their lanes: a = {pack(d0[0], d0[1]), pack(d0[2], d0[3]), pack(d1[0], d1[1]), pack(d1[2], d1[3])}.
/// ldmatrix.cuh brings fragments of A and B from shared memory.
///
/// Source: PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type".

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "common/device/source_location.hpp"

#if TUTORIAL_EMULATOR
#include <emulator/warp_product.hpp>
#endif

namespace tutorial {

/// D += A B, called by all 32 lanes of a warp. A GPU of compute capability 8.0 or later does it in one instruction,
/// with exact products and sums in about fp32; on the emulator the sums are fp32. A warp whose lanes do not all call is
/// undefined on a GPU; on the emulator it ends the launch with a report.
/// @tparam Element __nv_bfloat16 or __half: the type of A's and B's elements
/// @param d the lane's fragment of D, and before the call of the matrix that is added to
/// @param a,b the lane's fragments of A and B, two elements a register
template <class Element = __nv_bfloat16>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                                             [[maybe_unused]] SourceLocation where = SourceLocation::current()) {
  static_assert(std::is_same_v<Element, __nv_bfloat16> || std::is_same_v<Element, __half>);
#if TUTORIAL_EMULATOR
  emulator::WarpProduct mine{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}, {d[0], d[1], d[2], d[3]}};
  emulator::warp_product<Element>(mine, where);
  for (unsigned i = 0; i < 4; ++i) d[i] = mine.d[i];
#else
  if constexpr (std::is_same_v<Element, __nv_bfloat16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
#endif
}

}  // namespace tutorial
