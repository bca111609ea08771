#pragma once
/// @file
/// Products of the four warps of a warpgroup: PTX's wgmma.
///
/// Lanes of a warp meet at each call here, and the emulator compares the calls of the four warps. Warps do not wait for
/// each other, as they do not on a GPU. The sums of a product are NaN from its issue on. It reads its factors, as bulk
/// copies see shared memory (async_proxy.hpp), and writes its sums when its warp waits for it; with
/// EMULATOR_ASYNC=early or random:SEED maybe when it is issued. To be called in kernels only.

#include <cstddef>
#include <cstdint>
#include <source_location>

#include "emulator/bulk_copy.hpp"
#include "emulator/shared.hpp"
#include "emulator/warp.hpp"

namespace emulator {

/// The k of one product.
inline constexpr unsigned kWgmmaDepth = 16;

/// A factor in shared memory.
struct WgmmaFactor {
  std::uint64_t descriptor = 0;  ///< PTX's, for rows of 128 bytes that are permuted within 8
  bool is_mn_major = false;      ///< whether m or n runs along a row, else k

  bool operator==(const WgmmaFactor&) const = default;

  /// Where element (mn, k) lies, in bytes from the beginning of dynamic shared memory.
  std::size_t place(unsigned mn, unsigned k) const {
    const auto field = [this](unsigned bit) { return static_cast<std::size_t>(descriptor >> bit & 0x3FFF) * 16; };
    const std::size_t start = field(0), from_panel_to_panel = field(16), from_group_to_group = field(32);
    const std::size_t place = is_mn_major ? start + mn / 64 * from_panel_to_panel + mn % 64 * 2 +
                                                k / 8 * from_group_to_group + k % 8 * kTileRowBytes
                                          : start + mn / 8 * from_group_to_group + mn % 8 * kTileRowBytes + k * 2;
    return place ^ place / kTileRowBytes % 8 * 16;
  }
  /// Calls visit(place, mn, k) for each unit of 8 elements of mn = first to first + count - 1; (mn, k) is the first of
  /// the unit's elements.
  template <class Visit>
  void for_each_unit(unsigned first, unsigned count, Visit visit) const {
    for (unsigned mn = first; mn < first + count; mn += is_mn_major ? 8 : 1) {
      for (unsigned k = 0; k < kWgmmaDepth; k += is_mn_major ? 1 : 8) visit(place(mn, k), mn, k);
    }
  }
};

/// One product, as a thread issues it: 64 x n sums of the warpgroup, n / 2 of the thread.
struct WgmmaProduct {
  unsigned n = 0;
  float* sums = nullptr;
  const std::uint32_t* a_registers = nullptr;  ///< 4 of them; nullptr if A lies in shared memory
  WgmmaFactor a, b;
  bool accumulate = false;
};

/// Some registers of a thread.
struct RegisterRange {
  const void* address = nullptr;
  std::size_t bytes = 0;
};

/// What all lanes of a warp, and then all warps of the warpgroup, call.
struct WgmmaCall {
  enum class Kind { fence, product, commit, wait };

  Kind kind;
  unsigned pending = 0;             ///< groups that a wait leaves under way
  WgmmaProduct product = {};        ///< if it is one
  RegisterRange registers[6] = {};  ///< that a fence or a wait names
};

/// Copies the product that is under way as number `i` for this warp, if the wait is for it. Returns false if it is not.
bool awaited_wgmma(unsigned i, unsigned pending, WgmmaProduct& product, std::source_location where);
/// The first row of a product that this thread's warp computes.
unsigned first_wgmma_row();
/// See wgmma().
void meet_at_wgmma(const WgmmaCall& call, std::source_location where);

/// Reads what this thread's warp needs of the product's factors, and forgets it. The product reads the image of shared
/// memory, and that access would be the emulator's, not the thread's.
inline void read_factors_for_sanitizers(const WgmmaProduct& product) {
  const auto* shared = static_cast<const std::byte*>(dynamic_shared());
  const std::size_t bytes = dynamic_shared_size();
  const auto read = [=](std::size_t place, unsigned, unsigned) {
    if (place + 16 <= bytes) read_for_sanitizers(shared + place, 16);  // what lies beyond is reported soon
  };
  if (!product.a_registers) product.a.for_each_unit(first_wgmma_row(), 16, read);
  product.b.for_each_unit(0, product.n, read);
}

/// Makes one call of a warpgroup. Ends the launch with a report if
///
/// - lanes or warps differ in what they call, or the block has fewer than four warps for this warpgroup,
/// - a product lacks a fence that names its registers, or they were written since,
/// - a product's sums overlap those of another one under way without being the same,
/// - registers of a product were written before the wait for it,
/// - a wait ends products without naming their sums,
/// - a factor lies outside of dynamic shared memory,
/// - the block ends with products that nobody has waited for, or before all four warps have made the same calls.
inline void wgmma(const WgmmaCall& call, std::source_location where) {
  if constexpr (kReadsForSanitizers) {
    if (lane() == 0 && call.kind == WgmmaCall::Kind::product) read_factors_for_sanitizers(call.product);
    if (lane() == 0 && call.kind == WgmmaCall::Kind::wait) {
      WgmmaProduct product;
      for (unsigned i = 0; awaited_wgmma(i, call.pending, product, where); ++i) read_factors_for_sanitizers(product);
    }
  }
  meet_at_wgmma(call, where);
}

}  // namespace emulator
