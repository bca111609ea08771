#include "emulator/warp.hpp"

#include <bit>
#include <cstring>

#include "block.hpp"
#include "emulator/barrier.hpp"
#include "emulator/counters.hpp"
#include "place.hpp"

namespace emulator {

void Block::exchange(unsigned mask, const void* mine, std::size_t size, void* all, std::source_location where) {
  KernelThread& self = *running_;
  self.state = KernelThread::State::in_collective;
  self.where = where;
  self.mask = mask;
  self.mine = mine;
  self.size = size;
  self.all = all;

  const unsigned first = self.number / 32 * 32;
  Warp& warp = warps_[first / 32];
  warp.waiting |= 1u << (self.number - first);
  // A warp of which nobody can go on stays as it is; so the block gets stuck, which run() reports.
  const unsigned lanes = mask & warp.existing;
  if ((warp.waiting & lanes) == lanes && agree(self, first, lanes)) {
    if (size > 0) deliver(first, lanes);
    warp.waiting &= ~lanes;
    warp.parity ^= lanes & -lanes;
    ++block_counters.warp_collectives;
    ready_.push_batch(first, 32, [&](unsigned i) {
      if (!(lanes >> (i - first) & 1)) return false;
      threads_[i].state = KernelThread::State::ready;
      return true;
    });
  }
  pause();
}

bool Block::agree(const KernelThread& one, unsigned first, unsigned lanes) const {
  bool has_itself = false;
  for (unsigned left = lanes; left != 0; left &= left - 1) {
    const KernelThread& other = threads_[first + static_cast<unsigned>(std::countr_zero(left))];
    has_itself = has_itself || &other == &one;
    if (other.mask != one.mask || other.size != one.size || !is_same_place(other.where, one.where)) return false;
  }
  return has_itself;
}

void Block::deliver(unsigned first, unsigned lanes) {
  const sanitizer::Unwatched unwatched;
  const auto first_lane = static_cast<unsigned>(std::countr_zero(lanes));
  const KernelThread& collector = threads_[first + first_lane];
  auto* all = static_cast<std::byte*>(collector.all);
  const std::size_t size = collector.size;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (lanes >> lane & 1) {
      std::memmove(all + lane * size, threads_[first + lane].mine, size);
    } else {
      std::memset(all + lane * size, kPoison, size);
    }
  }
  for (unsigned left = lanes & (lanes - 1); left != 0; left &= left - 1) {
    std::memcpy(threads_[first + static_cast<unsigned>(std::countr_zero(left))].all, all, 32 * size);
  }
}

void Block::sync_warp(unsigned mask, std::source_location where) {
  // Lanes that wait for each other name the same mask, so its lowest lane stands for the group.
  const unsigned number = running_->number;
  Warp& warp = warps_[number / 32];
  const auto leader = static_cast<unsigned>(std::countr_zero(mask & warp.existing)) % 32;
  sanitizer::SyncPoint& point = warp.points[leader][warp.parity >> leader & 1];
  point.release();
  exchange(mask, nullptr, 0, nullptr, where);
  point.acquire();
  ++running_->warp_barriers;
  running_->barrier_line = where.line();
}

unsigned lane() {
  return Block::current()->thread().number % kWarpSize;
}

void warp_exchange(unsigned mask, const void* mine, std::size_t size, void* all, std::source_location where) {
  Block::current()->exchange(mask, mine, size, all, where);
}

}  // namespace emulator

void __syncwarp(unsigned mask, std::source_location where) {
  emulator::Block::current()->sync_warp(mask, where);
}
