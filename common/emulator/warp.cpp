#include "emulator/warp.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <type_traits>

#include "block.hpp"
#include "emulator/barrier.hpp"
#include "emulator/counters.hpp"
#include "latencies.hpp"
#include "place.hpp"

namespace emulator {
namespace {

/// Each lane gets what all lanes brought. @param size a constant where it can be, or each copy is a call
template <class Size>
void hand_out(std::span<KernelThread> warp, unsigned lanes, Size size) {
  auto* all = static_cast<std::byte*>(warp[static_cast<unsigned>(std::countr_zero(lanes))].all);
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (lanes >> lane & 1) {
      std::memmove(all + lane * size, warp[lane].mine, size);
    } else {
      std::memset(all + lane * size, kPoison, size);
    }
  }
  for (unsigned left = lanes & (lanes - 1); left != 0; left &= left - 1) {
    std::memcpy(warp[static_cast<unsigned>(std::countr_zero(left))].all, all, 32 * size);
  }
}

}  // namespace

Warps::Warps(Block& block) : block_(block), warps_(block.warp_count()) {
  for (unsigned i = 0; i < block.threads().size(); ++i) warps_[i / 32].existing |= 1u << i % 32;
}

void Warps::reset() {
  for (Warp& warp : warps_) warp.waiting = 0;
}

void Warps::exchange(unsigned mask, const void* mine, std::size_t size, void* all, std::source_location where,
                     bool orders_memory) {
  KernelThread& self = block_.thread();
  self.mask = mask;
  self.mine = mine;
  self.size = size;
  self.all = all;
  self.together = nullptr;
  meet_others(where, orders_memory);
}

void Warps::compute(unsigned mask, void* mine, std::size_t size, WarpFunction* together, std::source_location where) {
  KernelThread& self = block_.thread();
  self.mask = mask;
  self.size = size;
  self.all = mine;
  self.together = together;
  meet_others(where, false);
}

void Warps::meet_others(std::source_location where, bool orders_memory) {
  KernelThread& self = block_.thread();
  const unsigned first = self.number / 32 * 32, mask = self.mask;
  Warp& warp = warps_[first / 32];
  block_.begin_wait({KernelThread::State::in_collective, where, &warp});
  warp.waiting |= 1u << (self.number - first);
  const unsigned lanes = mask & warp.existing;
  if ((warp.waiting & lanes) == lanes) finish(first, lanes, where, orders_memory);
  block_.pause();
}

// Not inlined, so that the 31 others save few registers.
[[gnu::noinline]] void Warps::finish(unsigned first, unsigned lanes, std::source_location where, bool orders_memory) {
  const KernelThread& self = block_.thread();
  // A warp of which nobody can go on stays as it is; so the block gets stuck, which run() reports.
  if (!agree(self, first, lanes)) return;
  if (self.size > 0) deliver(first, lanes);
  if (Recorder::active()) meet(first, lanes);
  Warp& warp = warps_[first / 32];
  warp.waiting &= ~lanes;
  warp.parity ^= lanes & -lanes;
  ++(orders_memory ? block_counters.warp_barriers : block_counters.warp_collectives);
  races::Detector* detector = orders_memory ? races::active() : nullptr;
  if (detector) detector->meet_warp(block_, first, lanes, where);
  block_.wake(first, 32, [&](unsigned thread) { return lanes >> (thread - first) & 1; });
}

bool Warps::agree(const KernelThread& one, unsigned first, unsigned lanes) const {
  bool has_itself = false;
  for (unsigned left = lanes; left != 0; left &= left - 1) {
    const KernelThread& other = block_.threads()[first + static_cast<unsigned>(std::countr_zero(left))];
    has_itself = has_itself || &other == &one;
    if (other.mask != one.mask || other.size != one.size || other.together != one.together ||
        !is_same_place(other.where, one.where))
      return false;
  }
  return has_itself;
}

void Warps::deliver(unsigned first, unsigned lanes) {
  const sanitizer::Unwatched unwatched;
  const std::span<KernelThread> threads = block_.threads().subspan(first);
  const KernelThread& one = threads[static_cast<unsigned>(std::countr_zero(lanes))];
  const std::size_t size = one.size;
  if (one.together) {
    void* parts[kWarpSize];
    for (unsigned lane = 0; lane < kWarpSize; ++lane) parts[lane] = lanes >> lane & 1 ? threads[lane].all : nullptr;
    one.together(parts);
  } else if (size == 4) {  // a vote
    hand_out(threads, lanes, std::integral_constant<std::size_t, 4>());
  } else if (size == 8) {  // an address, as ldmatrix() takes
    hand_out(threads, lanes, std::integral_constant<std::size_t, 8>());
  } else {
    hand_out(threads, lanes, size);
  }
}

void Warps::meet(unsigned first, unsigned lanes) {
  const std::span<KernelThread> threads = block_.threads();
  std::int64_t last = 0;
  for (unsigned left = lanes; left != 0; left &= left - 1) {
    last = std::max(last, threads[first + static_cast<unsigned>(std::countr_zero(left))].clock);
  }
  for (unsigned left = lanes; left != 0; left &= left - 1) {
    threads[first + static_cast<unsigned>(std::countr_zero(left))].clock = last + latencies::kCollective;
  }
}

void Warps::sync(unsigned mask, std::source_location where) {
  // Lanes that wait for each other name the same mask, so its lowest lane stands for the group.
  KernelThread& self = block_.thread();
  Warp& warp = warps_[self.number / 32];
  const auto leader = static_cast<unsigned>(std::countr_zero(mask & warp.existing)) % 32;
  sanitizer::SyncPoint& point = warp.points[leader][warp.parity >> leader & 1];
  point.release();
  exchange(mask, nullptr, 0, nullptr, where, true);
  point.acquire();
  self.barrier_line = where.line();
  self.is_warps_barrier = true;
}

unsigned lane() {
  return Block::current()->thread().number % kWarpSize;
}

// The functions below are flat, because a kernel spends its time here: a thread that comes back from a switch returns once, and
// each return after a switch goes where the processor did not expect it.
[[gnu::flatten]] void warp_exchange(unsigned mask, const void* mine, std::size_t size, void* all,
                                    std::source_location where) {
  Block::current()->warps().exchange(mask, mine, size, all, where);
}

namespace {

void take_from_sources(void* const (&lanes)[kWarpSize]) {
  std::uint64_t values[kWarpSize];
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    values[lane] = lanes[lane] ? static_cast<const Shuffled*>(lanes[lane])->value : ~std::uint64_t{0};  // kPoison
  }
  for (void* lane : lanes) {
    if (!lane) continue;
    auto& mine = *static_cast<Shuffled*>(lane);
    mine.value = values[mine.source];
  }
}

}  // namespace

[[gnu::flatten]] void warp_shuffle(unsigned mask, Shuffled& mine, std::size_t size, std::source_location where) {
  Block::current()->warps().compute(mask, &mine, size, &take_from_sources, where);
}

}  // namespace emulator

[[gnu::flatten]] void __syncwarp(unsigned mask, std::source_location where) {
  emulator::Block::current()->warps().sync(mask, where);
}
