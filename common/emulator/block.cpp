#include "block.hpp"

#include "cluster.hpp"
#include "emulator/trap.hpp"
#include "report.hpp"

namespace emulator {

Block::Block(Cluster& cluster, Launch& launch, unsigned rank, std::span<KernelThread> threads, ReadyQueue& ready)
    : cluster_(cluster),
      launch_(launch),
      rank_(rank),
      dynamic_shared_(launch.shared_bytes, launch.blocks_per_cluster() > 1),
      threads_(threads),
      warps_((threads.size() + 31) / 32),
      ready_(ready, rank * static_cast<unsigned>(threads.size())) {
  for (unsigned i = 0; i < threads_.size(); ++i) warps_[i / 32].existing |= 1u << i % 32;
}

void Block::prepare(uint3 index) {
  dynamic_shared_.fill();
  index_ = index;
  live_ = launch_.threads_per_block();
  arrived_ = 0;
  holds_[0] = holds_[1] = 0;
  for (Warp& warp : warps_) {
    warp.waiting = 0;
    warp.products.clear();
  }
  warpgroups_.assign((warps_.size() + 3) / 4, {});
  mbarriers_.clear();
  async_image_.clear();
  shared_reads_.clear();
  fences_ = 0;
  for (NamedBarrier& barrier : named_barriers_) barrier.reset();
  registers_.reset(static_cast<unsigned>(warps_.size()));
}

void Block::wake_all() {
  ready_.push_batch(0, static_cast<unsigned>(threads_.size()), [this](unsigned i) {
    threads_[i].state = KernelThread::State::ready;
    return true;
  });
}

void Block::fail(const char* what, std::source_location where, const KernelThread& thread) {
  const sanitizer::Unwatched unwatched;
  cluster_.fail(describe_trap(thread, what, where));
}

void Block::require(Feature feature, const char* instruction, std::source_location where) {
  if (launch_.device.has(feature)) return;
  std::string what;
  {
    const sanitizer::Unwatched unwatched;
    what = std::string(instruction) + " needs compute capability 9.0" +
           (feature == Feature::warpgroup_products ? "" : " or later") + ", and the device of EMULATOR_DEVICE has " +
           launch_.device.capability_text();
    fail(what.c_str(), where, *running_);
  }
  pause();  // next() picks no thread any more
}

void Block::trap(const char* what, std::source_location where) {
  fail(what, where, *running_);
  pause();  // next() picks no thread any more
  __builtin_unreachable();
}

void require(Feature feature, const char* instruction, std::source_location where) {
  Block::current()->require(feature, instruction, where);
}

void trap(const char* what, std::source_location where) {
  Block::current()->trap(what, where);
}

}  // namespace emulator
