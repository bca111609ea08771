#pragma once
/// @file
/// The tensor cores' product of a 64 x 16 and a 16 x N matrix, added to a 64 x N matrix in fp32, by the four warps of a
/// warpgroup. Factors are bf16. For sm_90a.
///
/// B lies in shared memory, and A in shared memory or in registers, so no ldmatrix is needed. The product is
/// asynchronous: it reads its factors and writes its sums at some time before wgmma_wait() returns.
///
///     const SharedFactor<Major::kK> b(tile, panel_bytes);
///     float d[32];                                      // 64 x 64 sums of the warpgroup
///     wgmma_fence(d);                                   // the registers are as the products shall find them
///     for (int k = 0; k < 128; k += 16) wgmma<64>(d, a.along_k(k), b.along_k(k), k > 0);
///     wgmma_commit();                                   // these products are a group
///     wgmma_wait<0>(d);                                 // all groups are done: d holds A B
///
/// Between a product and the wait for it
///
/// - the thread neither reads nor writes the sums, but other products of the same width may add to them,
/// - the thread does not write the registers of A, and their array stays in scope,
/// - no thread overwrites the factors in shared memory. A tile is released (mbarrier.cuh) after the wait.
///
/// Call wgmma_fence() before the first product after a wait, and after each write to sums or to registers of A. Use an
/// array of sums for one width only. Indices into arrays are constants after unrolling, so that arrays stay in
/// registers.
///
/// Products see shared memory as bulk copies do (proxy_fence.cuh): each thread that has stored part of a factor calls
/// fence_async_proxy(), and then all pass a barrier. Products do not wait for other warps.
///
/// On the emulator sums are NaN until a wait that names them, and a product reads its factors when its warp waits for
/// it. EMULATOR_ASYNC=early or random:SEED lets products happen when they are issued. What breaks one of the rules
/// above ends the launch with a report, or gives wrong sums.
///
/// With warp w, lane l, g = l / 4 (0 to 7) and p = 2 * (l % 4) (0, 2, 4, 6), a thread holds of the 64 x N sums:
///
///                       n = p     p + 1      p + 8   p + 9         n
///                     +--------+--------+  +------+------+
///     m = 16 w + g    |  d[0]  |  d[1]  |  | d[4] | d[5] |  ...  d[n / 8 * 4 + n % 2]
///                     +--------+--------+  +------+------+
///     m = 16 w + g+8  |  d[2]  |  d[3]  |  | d[6] | d[7] |  ...  d[n / 8 * 4 + n % 2 + 2]
///                     +--------+--------+  +------+------+
///
/// Each warp has 16 rows, laid out as by mma_m16n8k16() (mma.cuh). So 16 columns of sums, packed in pairs, are a
/// fragment of A: wgmma_fragment() makes sums the left factor of the next product without leaving the registers.
///
/// Source: PTX ISA, "Asynchronous warpgroup level matrix instructions: wgmma".

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/pack.cuh"
#include "common/device/source_location.hpp"
#include "common/device/trace.cuh"

#if TUTORIAL_EMULATOR
#include <emulator/shared.hpp>
#include <emulator/trap.hpp>
#include <emulator/wgmma.hpp>

#include "common/device/alignment.hpp"
#else
#include "common/device/architecture.cuh"
#include "common/device/shared_address.cuh"
#include "common/device/wgmma_instructions.cuh"
#endif

namespace tutorial {

/// Which index of a factor runs along a row of a tile. A is M x K, and B is K x N.
enum class Major {
  kK,   ///< k: a row is an m of A or an n of B. So the tile of B holds B^T
  kMn,  ///< m of A or n of B: a row is a k. So the tile of A holds A^T
};

/// A factor in shared memory: the place of a tile, as PTX's matrix descriptor wants it.
///
/// A tile consists of panels of 64 columns. A row of a panel takes 128 bytes, and unit u of 16 bytes of row r lies at
/// u ^ (r % 8): a tile of tensor_map.hpp, or a SwizzledTile<64>. A tile of 128 columns is two panels, the second one
/// `panel_bytes` behind the first. On the emulator panels lie in dynamic shared memory.
///
/// Source: PTX ISA, "Asynchronous warpgroup level matrix instructions: matrix descriptor", "strides".
template <Major kMajor>
class SharedFactor {
 public:
  /// @param panel the first panel, aligned to 1024 bytes
  /// @param panel_bytes from one panel to the next, a multiple of 1024 below 2^18. It has no meaning for a factor of
  /// one panel
  __device__ __forceinline__ SharedFactor(const __nv_bfloat16* panel, unsigned panel_bytes,
                                          [[maybe_unused]] SourceLocation where = SourceLocation::current())
      : panel_bytes_(panel_bytes) {
#if TUTORIAL_EMULATOR
    if (panel_bytes % kGroupBytes != 0 || panel_bytes >= 1u << 18) {
      emulator::trap("from one panel to the next it is a multiple of 1024 bytes below 2^18", where);
    }
#endif
    // Numbers of 14 bits in units of 16 bytes: where it begins, from panel to panel (which K-major factors do not
    // have), and from one group of 8 rows to the next. Then 1 for the permutation within 128 bytes.
    const unsigned leading = kMajor == Major::kMn ? panel_bytes / 16 : 1;
    lower_half_ = (leading & 0x3FFF) << 16 | (place(panel, where) & 0x3FFFF) / 16;
  }

  /// The factor from `k` onwards, a multiple of 16. On the emulator other numbers end the launch with a report.
  __device__ __forceinline__ SharedFactor
  along_k(int k, [[maybe_unused]] SourceLocation where = SourceLocation::current()) const {
    check_multiple(k, 16, where);
    if constexpr (kMajor == Major::kMn) return moved(static_cast<unsigned>(k) * kRowBytes);
    return moved(static_cast<unsigned>(k) / 64 * panel_bytes_ + static_cast<unsigned>(k) % 64 * 2);
  }

  /// The factor from row m of A or column n of B onwards: a multiple of 8 if it is K-major, otherwise of 64.
  /// On the emulator other numbers end the launch with a report.
  __device__ __forceinline__ SharedFactor
  along_mn(int mn, [[maybe_unused]] SourceLocation where = SourceLocation::current()) const {
    check_multiple(mn, kMajor == Major::kMn ? 64 : 8, where);
    if constexpr (kMajor == Major::kMn) return moved(static_cast<unsigned>(mn) / 64 * panel_bytes_);
    return moved(static_cast<unsigned>(mn) * kRowBytes);
  }

  /// The matrix descriptor.
  __device__ __forceinline__ std::uint64_t descriptor() const {
    return std::uint64_t{kUpperHalf} << 32 | lower_half_;
  }

 private:
  static constexpr unsigned kRowBytes = 128;
  static constexpr unsigned kGroupBytes = 8 * kRowBytes;

  static __device__ __forceinline__ unsigned place(const void* panel, [[maybe_unused]] SourceLocation where) {
#if TUTORIAL_EMULATOR
    check_alignment(panel, kGroupBytes, where);
    const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(panel) -
                                                 static_cast<const std::byte*>(emulator::dynamic_shared()));
    if (offset >= emulator::dynamic_shared_size()) emulator::trap("a factor is not in dynamic shared memory", where);
    return static_cast<unsigned>(offset);
#else
    return shared_address(panel);
#endif
  }

  static __device__ __forceinline__ void check_multiple([[maybe_unused]] int index, [[maybe_unused]] int unit,
                                                        [[maybe_unused]] SourceLocation where) {
#if TUTORIAL_EMULATOR
    if (index % unit == 0) return;
    emulator::trap(unit == 16   ? "a factor goes on at a multiple of 16 along k"
                   : unit == 64 ? "an MN-major factor goes on at a multiple of 64 along m or n"
                                : "a K-major factor goes on at a multiple of 8 along m or n",
                   where);
#endif
  }

  __device__ __forceinline__ SharedFactor moved(unsigned bytes) const {
    SharedFactor result = *this;
    result.lower_half_ += bytes / 16;
    return result;
  }

  /// Steps from place to place change the lower half alone, so that they take 32-bit additions.
  static constexpr std::uint32_t kUpperHalf = 1u << 30 | kGroupBytes / 16;
  std::uint32_t lower_half_;
  unsigned panel_bytes_;
};

namespace wgmma_registers {

/// In place of an array that is not given.
struct None {};

#if TUTORIAL_EMULATOR
/// The bytes of an array.
inline emulator::RegisterRange range(None) {
  return {};
}
template <class T, std::size_t kSize>
emulator::RegisterRange range(const T (&values)[kSize]) {
  return {values, sizeof values};
}
/// The emulator's form of a factor.
template <Major kMajor>
emulator::WgmmaFactor factor(const SharedFactor<kMajor>& shared) {
  return {.descriptor = shared.descriptor(), .is_mn_major = kMajor == Major::kMn};
}
#else
/// The compiler neither moves writes of these registers behind this point, nor reads of them before it.
__device__ __forceinline__ void pin(None) {}
/// For one sum.
__device__ __forceinline__ void pin(float& value) {
  asm volatile("" : "+f"(value) : : "memory");
}
/// For one register of A.
__device__ __forceinline__ void pin(std::uint32_t& value) {
  asm volatile("" : "+r"(value) : : "memory");
}
/// For all of an array.
template <class T, int kSize>
__device__ __forceinline__ void pin(T (&values)[kSize]) {
#pragma unroll
  for (int i = 0; i < kSize; ++i) pin(values[i]);
}
#endif

}  // namespace wgmma_registers

/// Makes what this thread has written to registers known to the products that follow. Called by all threads of the
/// warpgroup, before the first product after a wait, and after writes to registers of A or to sums.
/// @param a,b,c,d,e,f all arrays of registers, of sums and of A, that products use from here to the next fence: of
/// float or std::uint32_t, also arrays of arrays
template <class A = wgmma_registers::None, class B = wgmma_registers::None, class C = wgmma_registers::None,
          class D = wgmma_registers::None, class E = wgmma_registers::None, class F = wgmma_registers::None>
__device__ __forceinline__ void wgmma_fence(A&& a = {}, B&& b = {}, C&& c = {}, D&& d = {}, E&& e = {}, F&& f = {},
                                            [[maybe_unused]] SourceLocation where = SourceLocation::current()) {
  trace::note(trace::Kind::fence_products, where);
#if TUTORIAL_EMULATOR
  using wgmma_registers::range;
  emulator::wgmma({.kind = emulator::WgmmaCall::Kind::fence,
                   .registers = {range(a), range(b), range(c), range(d), range(e), range(f)}},
                  where);
#elif TUTORIAL_SM90A
  using wgmma_registers::pin;
  pin(a), pin(b), pin(c), pin(d), pin(e), pin(f);
  asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
#else
  (void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
  __trap();
#endif
}

/// Starts D = A B or D += A B with A from registers. Called by all 128 threads of a warpgroup: four warps, the first of
/// which has a number that is a multiple of 4. Different factors or widths in its threads are undefined on a GPU; on
/// the emulator they end the launch with a report.
/// @tparam kN the width N: 16, 32, 64, 72 or 128
/// @param d the thread's sums
/// @param a the thread's fragment of A: rows 16 w to 16 w + 15 are those of warp w, as mma.cuh's picture shows
/// @param b K x N, of which 16 k are used
/// @param accumulate if false, d is overwritten
template <int kN, Major kMajorB>
__device__ __forceinline__ void wgmma(float (&d)[kN / 2], const std::uint32_t (&a)[4], const SharedFactor<kMajorB>& b,
                                      bool accumulate,
                                      [[maybe_unused]] SourceLocation where = SourceLocation::current()) {
  static_assert(kN == 16 || kN == 32 || kN == 64 || kN == 72 || kN == 128);
#if TUTORIAL_EMULATOR
  emulator::wgmma(
      {.kind = emulator::WgmmaCall::Kind::product,
       .product =
           {.n = kN, .sums = d, .a_registers = a, .a = {}, .b = wgmma_registers::factor(b), .accumulate = accumulate}},
      where);
#elif TUTORIAL_SM90A
  issue_wgmma<kMajorB == Major::kMn>(d, a, b.descriptor(), accumulate);
#else
  (void)d, (void)a, (void)b, (void)accumulate;
  __trap();
#endif
}

/// Starts D = A B or D += A B with both factors from shared memory.
/// @param a M x K, of which 64 m and 16 k are used
template <int kN, Major kMajorA, Major kMajorB>
__device__ __forceinline__ void wgmma(float (&d)[kN / 2], const SharedFactor<kMajorA>& a,
                                      const SharedFactor<kMajorB>& b, bool accumulate,
                                      [[maybe_unused]] SourceLocation where = SourceLocation::current()) {
  static_assert(kN == 16 || kN == 32 || kN == 64 || kN == 72 || kN == 128);
#if TUTORIAL_EMULATOR
  emulator::wgmma({.kind = emulator::WgmmaCall::Kind::product,
                   .product = {.n = kN,
                               .sums = d,
                               .a_registers = nullptr,
                               .a = wgmma_registers::factor(a),
                               .b = wgmma_registers::factor(b),
                               .accumulate = accumulate}},
                  where);
#elif TUTORIAL_SM90A
  issue_wgmma<kMajorA == Major::kMn, kMajorB == Major::kMn>(d, a.descriptor(), b.descriptor(), accumulate);
#else
  (void)d, (void)a, (void)b, (void)accumulate;
  __trap();
#endif
}

/// Closes the products since the last commit into a group, which may be empty. Called by all threads of the warpgroup.
/// No wait waits for a product that is in no group.
__device__ __forceinline__ void wgmma_commit([[maybe_unused]] SourceLocation where = SourceLocation::current()) {
  trace::note(trace::Kind::commit_products, where);
#if TUTORIAL_EMULATOR
  emulator::wgmma({.kind = emulator::WgmmaCall::Kind::commit}, where);
#elif TUTORIAL_SM90A
  asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
#else
  __trap();
#endif
}

/// Waits until all groups but the kPending newest are done. Called by all threads of the warpgroup.
/// @param a,b,c,d,e,f all arrays of sums whose last product is in these groups, so that the compiler does not read them
/// earlier. The emulator insists on it. Arrays of A may be named, too
template <int kPending, class A = wgmma_registers::None, class B = wgmma_registers::None,
          class C = wgmma_registers::None, class D = wgmma_registers::None, class E = wgmma_registers::None,
          class F = wgmma_registers::None>
__device__ __forceinline__ void wgmma_wait([[maybe_unused]] A&& a = {}, [[maybe_unused]] B&& b = {},
                                           [[maybe_unused]] C&& c = {}, [[maybe_unused]] D&& d = {},
                                           [[maybe_unused]] E&& e = {}, [[maybe_unused]] F&& f = {},
                                           [[maybe_unused]] SourceLocation where = SourceLocation::current()) {
  static_assert(kPending >= 0 && kPending <= 7);
  [[maybe_unused]] const trace::Wait traced(trace::Kind::wait_products, where, {}, kPending);
#if TUTORIAL_EMULATOR
  using wgmma_registers::range;
  emulator::wgmma({.kind = emulator::WgmmaCall::Kind::wait,
                   .pending = kPending,
                   .registers = {range(a), range(b), range(c), range(d), range(e), range(f)}},
                  where);
#elif TUTORIAL_SM90A
  asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(kPending) : "memory");
  using wgmma_registers::pin;
  pin(a), pin(b), pin(c), pin(d), pin(e), pin(f);
#else
  __trap();
#endif
}

/// The row m of the sum d[i] of the thread that calls, 0 to 63. For one-dimensional blocks.
__device__ __forceinline__ int wgmma_row(int i) {
  const int thread = static_cast<int>(threadIdx.x) % 128;
  return thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
}

/// The column n of the sum d[i] of the thread that calls, 0 to N - 1. For one-dimensional blocks.
__device__ __forceinline__ int wgmma_column(int i) {
  return i / 4 * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + i % 2;
}

/// Rounds the sums of 16 columns to a fragment of A, whose k are those columns.
/// @param d sums of a product, after the wait for it
/// @param k the first column, a multiple of 16
template <int kSums>
__device__ __forceinline__ void wgmma_fragment(std::uint32_t (&a)[4], const float (&d)[kSums], int k) {
#pragma unroll
  for (int i = 0; i < 4; ++i) a[i] = pack(d[k / 2 + 2 * i], d[k / 2 + 2 * i + 1]);
}

}  // namespace tutorial
