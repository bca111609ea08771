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
  const unsigned first = self.number / 32 * 32;
  Warp& warp = warps_[first / 32];
  block_.begin_wait({KernelThread::State::in_collective, where, &warp});
  self.mask = mask;
  self.mine = mine;
  self.size = size;
  self.all = all;

  warp.waiting |= 1u << (self.number - first);
  // A warp of which nobody can go on stays as it is; so the block gets stuck, which run() reports.
  const unsigned lanes = mask & warp.existing;
  if ((warp.waiting & lanes) == lanes && agree(self, first, lanes)) {
    if (size > 0) deliver(first, lanes);
    if (Recorder::active()) meet(first, lanes);
    warp.waiting &= ~lanes;
    warp.parity ^= lanes & -lanes;
    ++(orders_memory ? block_counters.warp_barriers : block_counters.warp_collectives);
    races::Detector* detector = orders_memory ? races::active() : nullptr;
    if (detector) detector->meet_warp(block_, first, lanes, where);
    block_.wake(first, 32, [&](unsigned thread) { return lanes >> (thread - first) & 1; });
  }
  block_.pause();
}

bool Warps::agree(const KernelThread& one, unsigned first, unsigned lanes) const {
  bool has_itself = false;
  for (unsigned left = lanes; left != 0; left &= left - 1) {
    const KernelThread& other = block_.threads()[first + static_cast<unsigned>(std::countr_zero(left))];
    has_itself = has_itself || &other == &one;
    if (other.mask != one.mask || other.size != one.size || !is_same_place(other.where, one.where)) return false;
  }
  return has_itself;
}

void Warps::deliver(unsigned first, unsigned lanes) {
  const sanitizer::Unwatched unwatched;
  const std::span<KernelThread> threads = block_.threads().subspan(first);
  const std::size_t size = threads[static_cast<unsigned>(std::countr_zero(lanes))].size;
  if (size == 4) {  // nearly always: a shuffle
    hand_out(threads, lanes, std::integral_constant<std::size_t, 4>());
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

void warp_exchange(unsigned mask, const void* mine, std::size_t size, void* all, std::source_location where) {
  Block::current()->warps().exchange(mask, mine, size, all, where);
}

}  // namespace emulator

void __syncwarp(unsigned mask, std::source_location where) {
  emulator::Block::current()->warps().sync(mask, where);
}
