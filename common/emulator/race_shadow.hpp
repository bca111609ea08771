#pragma once
/// @file
/// What is known of each word of memory that kernels use: its last write, and the reads since.

#include <algorithm>
#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "race_clocks.hpp"

namespace emulator::races {

/// How something was accessed.
enum Kind : std::uint8_t {
  kPlain = 0,
  kAtomic = 1,
  kUpdate = 2,       ///< an atomic operation that reads and writes
  kBulkCopy = 4,     ///< `thread` is the number of the mbarrier that counts the copy, `clock` its phase
  kUnfinished = 8,   ///< a copy of cp.async that its thread has not waited for
  kStreamCopy = 32,  ///< by cudaMemcpyAsync() and its like
  kUnordered = 16    ///< a bulk copy, in no order with another one before: a race once something reads it
};

/// A write.
struct Write {
  std::uint32_t run = 0;  ///< the cluster, counted from 1 since the process began; 0: nobody has written
  std::uint32_t clock = 0;
  Place place = 0;
  std::uint16_t thread = 0;  ///< its number in the cluster
  std::uint8_t kind = kPlain;
  std::uint8_t low = 0;  ///< 1 and 2 for a single byte, the even and the odd one of two
};

/// Reads of a word by lanes of one warp at the same value of their clocks.
struct Reads {
  std::uint32_t run = 0;
  std::uint32_t clock = 0;
  Place place = 0;          ///< of the last
  std::uint32_t lanes = 0;  ///< a bit for each
  std::uint16_t warp = 0;   ///< its number in the cluster
  std::uint8_t kind = kPlain;
  std::uint8_t low = 0;
  std::uint32_t next = 0;  ///< in the list of the same word; 0: it is the last
};

/// A word of four bytes, or one half of it.
struct Cell {
  Write write;
  std::uint32_t reads = 0;  ///< the first of a list
};

/// The cells of all memory, made when they are first needed. A word is split into halves once something touches one half.
class Shadow {
 public:
  /// Calls visit(cell, address) for each cell that holds one of these bytes.
  template <class Visit>
  void visit(const void* address, std::size_t bytes, Visit visit) {
    auto first = reinterpret_cast<std::uintptr_t>(address);
    const std::uintptr_t end = first + bytes;
    while (first < end) {
      Page& page = page_of(first);
      const std::uintptr_t page_end = (first / kPageBytes + 1) * kPageBytes;
      for (; first < end && first < page_end; first = (first / 4 + 1) * 4) {
        const std::size_t word = first % kPageBytes / 4;
        const bool has_low = first % 4 < 2, has_high = first / 4 * 4 + 2 < end;
        if (has_low && has_high && !page.is_split[word]) {
          visit(page.words[word], reinterpret_cast<const void*>(first));
          continue;
        }
        if (!page.is_split[word]) split(page, word);
        if (has_low) visit(page.halves[2 * word], reinterpret_cast<const void*>(first));
        if (has_high)
          visit(page.halves[2 * word + 1], reinterpret_cast<const void*>(std::max(first, first / 4 * 4 + 2)));
      }
    }
  }
  Reads& reads(std::uint32_t number) { return reads_[number]; }
  /// Adds one to the list of a cell.
  void add(Cell& cell, const Reads& reads);
  /// Takes the one after `previous` out of the list of a cell; the first if `previous` is 0.
  void remove_after(Cell& cell, std::uint32_t previous);
  void clear_reads(Cell& cell);
  /// Nothing is known of these bytes any more.
  void forget(const void* address, std::size_t bytes);

 private:
  static constexpr std::uintptr_t kPageBytes = 4096;

  struct Page {
    std::array<Cell, kPageBytes / 4> words;
    std::unique_ptr<std::array<Cell, kPageBytes / 2>> halves_memory;
    Cell* halves = nullptr;
    std::bitset<kPageBytes / 4> is_split;
  };

  Page& page_of(std::uintptr_t address) {
    const std::uintptr_t number = address / kPageBytes;
    Cached& cached = cache_[number % cache_.size()];
    if (cached.number != number || !cached.page) cached = {number, &find_page(number)};
    return *cached.page;
  }
  Page& find_page(std::uintptr_t number);
  void split(Page& page, std::size_t word);

  struct Cached {
    std::uintptr_t number = 0;
    Page* page = nullptr;
  };
  std::array<Cached, 256> cache_;
  std::unordered_map<std::uintptr_t, std::unique_ptr<Page>> pages_;
  std::vector<Reads> reads_{1};  ///< number 0 is none
  std::uint32_t unused_ = 0;     ///< the first of a list
};

}  // namespace emulator::races
