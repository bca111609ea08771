#include "register_pool.hpp"

#include <algorithm>
#include <cstdio>

#include "block.hpp"
#include "counters.hpp"
#include "emulator/warp.hpp"
#include "emulator/warp_roles.hpp"

namespace emulator {

void RegisterPool::reset() {
  const unsigned warps = block_.warp_count();
  // Granted in steps of 8 per thread, and 256 at most.
  const unsigned most = kRegisters / (warps * kWarpSize) / 8 * 8;
  of_warp_.assign(warps, std::min(most, 256u));
  free_ = 0;
  last_release_ = 0;
}

void RegisterPool::change(unsigned count, bool increase, std::source_location where) {
  unsigned counts[kWarpSize];
  block_.warps().exchange(~0u, &count, sizeof count, counts, where);  // all lanes are here
  const unsigned number = block_.thread().number;
  const bool is_first = number % kWarpSize == 0;
  unsigned& held = of_warp_[number / kWarpSize];
  if (is_first && (increase ? count < held : count > held)) {
    char text[120];
    std::snprintf(text, sizeof text, "the warp's threads have %u registers, which cannot %s to %u", held,
                  increase ? "increase" : "decrease", count);
    block_.trap(text, where);
  }
  if (is_first) ++block_counters.register_changes;
  const std::int64_t begin = block_.thread().clock;
  if (is_first && !increase) {
    free_ += held - count;
    held = count;
    last_release_ = std::max(last_release_, begin);
    block_.wake(this);
  }
  while (is_first && held < count) {
    if (free_ >= count - held) {
      free_ -= count - held;
      held = count;
      block_.thread().clock = std::max(begin, last_release_);
    } else {
      block_.wait({KernelThread::State::at_registers, where, this});
    }
  }
  block_.warps().exchange(~0u, &count, sizeof count, counts, where);  // the other lanes wait for the first
  if (Recorder* recorder = Recorder::active()) {
    recorder->note(block_.thread(), Recorder::Kind::registers, where, begin, {.value = count});
  }
}

void RegisterPool::check_at_end() {
  for (unsigned warp = 0; warp < of_warp_.size(); ++warp) {
    if (of_warp_[warp] == of_warp_[warp / 4 * 4]) continue;
    block_.fail("the warps of a warpgroup have changed their registers to different numbers", block_.launch().where,
                block_.threads()[warp * kWarpSize]);
  }
}

void change_registers(unsigned registers, bool increase, std::source_location where) {
  Block& block = *Block::current();
  block.require(Feature::warpgroup_products, "setmaxnreg", where);
  block.registers().change(registers, increase, where);
}

}  // namespace emulator
