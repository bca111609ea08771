#pragma once
/// @file
/// Products of warpgroups that are under way: see include/emulator/wgmma.hpp.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <source_location>
#include <vector>

#include "emulator/wgmma.hpp"
#include "recorder.hpp"
#include "sanitizer.hpp"

namespace emulator {

class Block;
struct KernelThread;

// What is forgotten keeps its memory for the next one: most of a kernel's products are alike.

/// Registers of a thread as a fence has found them.
struct FencedRegisters {
  const std::byte* address = nullptr;  ///< nullptr once the fence is forgotten
  std::vector<std::byte> bytes;
};

/// Sums of one thread that products under way write.
struct WgmmaSums {
  float* address = nullptr;   ///< nullptr once they are no longer under way
  std::vector<float> values;  ///< with all products that have happened
  unsigned products = 0;      ///< under way
  bool is_shown = false;      ///< whether the thread's array holds the values; otherwise it holds poison

  std::size_t bytes() const { return values.size() * sizeof(float); }
  /// Whether the thread's array is as the emulator has left it.
  bool is_untouched() const;
  /// Writes the values to the thread's array.
  void show();
  /// Writes poison to it.
  void poison();
};

/// What one thread has to do with the products of its warpgroup.
struct ThreadProducts {
  const WgmmaCall* call = nullptr;  ///< that it makes, until its warp has made it
  std::vector<FencedRegisters> fenced;
  std::vector<WgmmaSums> sums;

  /// The sums under way at this address, or for nullptr some that are not; nullptr if there are none.
  WgmmaSums* find_sums(const float* address);
  /// Whether a fence has named these registers; if so, `is_same` says whether they still hold what they held there.
  bool is_fenced(const void* address, std::size_t bytes, bool& is_same) const;
  /// What is wrong with the registers of a product that the thread issues, in a sentence; nullptr if nothing is.
  const char* find_fault(const WgmmaProduct& product);
  /// Its sums are under way from now on.
  void begin(const WgmmaProduct& product);
  /// Remembers what the registers hold.
  void fence(const RegisterRange& registers);
  /// Forgets fences that name some of these registers.
  void unfence(const void* address, std::size_t bytes);
  /// As at the start of a block.
  void reset();
};

/// A product of one warp that is under way. `product` is as one of its lanes has issued it.
struct ProductUnderWay {
  WgmmaProduct product;
  std::source_location where;
  unsigned group;  ///< its number, or that of the next group to be closed
  bool is_done = false;
  std::array<float*, kWarpSize> sums = {};
  std::array<const std::uint32_t*, kWarpSize> a_registers = {};
  std::array<std::array<std::uint32_t, 4>, kWarpSize> a = {};  ///< what these held when it was issued
};

/// The products of one warp.
struct WarpProducts {
  std::deque<ProductUnderWay> under_way;
  unsigned groups = 0;         ///< closed so far
  sanitizer::SyncPoint reads;  ///< those of shared memory come before the returns of the wait

  // For a trace.
  struct Line {
    std::source_location where;
    std::int64_t begin, end;
  };
  GroupClocks clocks;
  std::vector<Line> lines;    ///< of the products of the open group
  std::int64_t last_end = 0;  ///< when the last product ends: they run one after the other

  /// Whether a wait that leaves this many groups waits for it.
  bool is_awaited(const ProductUnderWay& product, unsigned pending) const { return product.group + pending < groups; }
  /// As at the start of a block.
  void reset();
};

/// The calls of the four warps of a warpgroup, which have to be the same.
class WarpgroupCalls {
 public:
  struct Made {
    WgmmaCall call;
    std::source_location where;
  };

  /// Counts a call of a warp, 0 to 3. Returns the call of the others that it differs from, nullptr if there is none.
  const Made* add(unsigned warp, const WgmmaCall& call, std::source_location where);
  /// The first call that some warp has not made; nullptr if there is none. @param warp becomes a warp that lacks it
  const Made* find_missing(unsigned& warp) const;

 private:
  std::deque<Made> made_;                    ///< that not all four warps have made
  std::uint64_t forgotten_ = 0;              ///< that all four have made
  std::array<std::uint64_t, 4> count_ = {};  ///< of each warp
};

/// What the warps of one block do together in products.
class Warpgroups {
 public:
  explicit Warpgroups(Block& block) : block_(block) {}

  /// As at the start of a block.
  void reset();
  /// Looks for products that the block leaves behind, and for warps that lack some calls of their warpgroup.
  void check_at_end();
  /// See emulator::meet_at_wgmma().
  void call(const WgmmaCall& call, std::source_location where);
  /// See awaited_wgmma().
  bool find_awaited(unsigned i, unsigned pending, WgmmaProduct& product) const;

 private:
  /// What the first lane that goes on does for its warp: it makes the warp's call.
  void make_call(unsigned warp, const WgmmaCall& call, std::source_location where);
  /// That is: it starts a product,
  void issue(unsigned warp, std::source_location where);
  /// makes sure that its factors lie in shared memory,
  bool has_its_factors(const WgmmaProduct& product) const;
  /// tells the detector of races that the product reads its factors from its issue to the wait,
  void note_reads(unsigned warp, const ProductUnderWay& under_way) const;
  /// computes the warp's rows of it, unless that is done,
  void multiply_warp(unsigned warp, ProductUnderWay& under_way);
  /// and gives the lanes their sums.
  void wait(unsigned warp, unsigned pending, std::source_location where);
  /// Tells a trace of the call.
  void note(Recorder& recorder, unsigned warp, const WgmmaCall& call, std::source_location where);
  KernelThread* lanes_of(unsigned warp) const;

  Block& block_;
  std::vector<WarpProducts> warps_;
  std::vector<WarpgroupCalls> groups_;
};

}  // namespace emulator
