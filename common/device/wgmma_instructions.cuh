#pragma once
/// @file
/// GPU only: the instruction of wgmma.cuh for each width. Its operands are written out here, because inline PTX wants a
/// name for each register.
///
/// Source: PTX ISA, "Asynchronous warpgroup level matrix instructions: wgmma.mma_async".

#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/architecture.cuh"

#if TUTORIAL_SM90A

namespace tutorial {

// The sums d[first], d[first + 1], ... as operands that are read and written.
#define TUTORIAL_SUMS_8(first)                                                                              \
  "+f"(d[(first)]), "+f"(d[(first) + 1]), "+f"(d[(first) + 2]), "+f"(d[(first) + 3]), "+f"(d[(first) + 4]), \
      "+f"(d[(first) + 5]), "+f"(d[(first) + 6]), "+f"(d[(first) + 7])
#define TUTORIAL_SUMS_4(first) "+f"(d[(first)]), "+f"(d[(first) + 1]), "+f"(d[(first) + 2]), "+f"(d[(first) + 3])
#define TUTORIAL_SUMS_16(first) TUTORIAL_SUMS_8(first), TUTORIAL_SUMS_8((first) + 8)
#define TUTORIAL_SUMS_32(first) TUTORIAL_SUMS_16(first), TUTORIAL_SUMS_16((first) + 16)
#define TUTORIAL_SUMS_36(first) TUTORIAL_SUMS_32(first), TUTORIAL_SUMS_4((first) + 32)
#define TUTORIAL_SUMS_64(first) TUTORIAL_SUMS_32(first), TUTORIAL_SUMS_32((first) + 32)

// Their numbers in the instruction's text.
#define TUTORIAL_NUMBERS_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define TUTORIAL_NUMBERS_16 TUTORIAL_NUMBERS_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define TUTORIAL_NUMBERS_32 \
  TUTORIAL_NUMBERS_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TUTORIAL_NUMBERS_36 TUTORIAL_NUMBERS_32 ", %32, %33, %34, %35"
#define TUTORIAL_NUMBERS_64                                                                                \
  TUTORIAL_NUMBERS_32                                                                                      \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, " \
  "%52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

// Both forms of one width: A from registers (operands r0 to r3), and from shared memory. Behind the kSums sums come r0,
// r1, ...: the factors, then whether to accumulate, then which factors are MN-major. The two "1" are the signs of A and
// B.
#define TUTORIAL_WGMMA(kN, kSums, r0, r1, r2, r3, r4, r5, r6)                                                       \
  template <int kIsMnMajorB>                                                                                        \
  __device__ __forceinline__ void issue_wgmma(float(&d)[kSums], const std::uint32_t(&a)[4], std::uint64_t b,        \
                                              int accumulate) {                                                     \
    asm volatile(                                                                                                   \
        "{\n"                                                                                                       \
        ".reg .pred accumulate;\n"                                                                                  \
        "setp.ne.b32 accumulate, %" #r5                                                                             \
        ", 0;\n"                                                                                                    \
        "wgmma.mma_async.sync.aligned.m64n" #kN "k16.f32.bf16.bf16 {" TUTORIAL_NUMBERS_##kSums                      \
        "}, {%" #r0 ", %" #r1 ", %" #r2 ", %" #r3 "}, %" #r4 ", accumulate, 1, 1, %" #r6                            \
        ";\n"                                                                                                       \
        "}"                                                                                                         \
        : TUTORIAL_SUMS_##kSums(0)                                                                                  \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(kIsMnMajorB));                   \
  }                                                                                                                 \
  template <int kIsMnMajorA, int kIsMnMajorB>                                                                       \
  __device__ __forceinline__ void issue_wgmma(float(&d)[kSums], std::uint64_t a, std::uint64_t b, int accumulate) { \
    asm volatile(                                                                                                   \
        "{\n"                                                                                                       \
        ".reg .pred accumulate;\n"                                                                                  \
        "setp.ne.b32 accumulate, %" #r2                                                                             \
        ", 0;\n"                                                                                                    \
        "wgmma.mma_async.sync.aligned.m64n" #kN "k16.f32.bf16.bf16 {" TUTORIAL_NUMBERS_##kSums                      \
        "}, %" #r0 ", %" #r1 ", accumulate, 1, 1, %" #r3 ", %" #r4                                                  \
        ";\n"                                                                                                       \
        "}"                                                                                                         \
        : TUTORIAL_SUMS_##kSums(0)                                                                                  \
        : "l"(a), "l"(b), "r"(accumulate), "n"(kIsMnMajorA), "n"(kIsMnMajorB));                                     \
  }

TUTORIAL_WGMMA(16, 8, 8, 9, 10, 11, 12, 13, 14)
TUTORIAL_WGMMA(32, 16, 16, 17, 18, 19, 20, 21, 22)
TUTORIAL_WGMMA(64, 32, 32, 33, 34, 35, 36, 37, 38)
TUTORIAL_WGMMA(72, 36, 36, 37, 38, 39, 40, 41, 42)
TUTORIAL_WGMMA(128, 64, 64, 65, 66, 67, 68, 69, 70)

#undef TUTORIAL_WGMMA
#undef TUTORIAL_NUMBERS_64
#undef TUTORIAL_NUMBERS_36
#undef TUTORIAL_NUMBERS_32
#undef TUTORIAL_NUMBERS_16
#undef TUTORIAL_NUMBERS_8
#undef TUTORIAL_SUMS_64
#undef TUTORIAL_SUMS_36
#undef TUTORIAL_SUMS_32
#undef TUTORIAL_SUMS_16
#undef TUTORIAL_SUMS_8
#undef TUTORIAL_SUMS_4

}  // namespace tutorial

#endif
