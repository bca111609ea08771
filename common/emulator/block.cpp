#include "block.hpp"

#include "cluster.hpp"
#include "emulator/trap.hpp"
#include "latencies.hpp"
#include "report.hpp"

namespace emulator {
namespace {

/// The block that this OS thread runs. Not zero: see threadIdx in cluster.cpp.
struct Current {
  Block* block;
  bool is_never_zero;
};
constinit thread_local Current running{nullptr, true};

}  // namespace

void KernelThread::reset() {
  async_copies.reset();
  bulk_stores.reset();
  async_proxy_writes.reset();
  products.reset();
  copy_clocks.reset();
  store_clocks.reset();
  has_arrived = false;
  peer_shared = {};
}

Block::Block(Cluster& cluster, Launch& launch, unsigned rank, std::span<KernelThread> threads, ReadyQueue& ready)
    : cluster_(cluster),
      launch_(launch),
      rank_(rank),
      dynamic_shared_(launch.shared_bytes, launch.blocks_per_cluster() > 1),
      threads_(threads),
      ready_(ready, rank * static_cast<unsigned>(threads.size())) {}

Block* Block::current() {
  return running.block;
}

void Block::set_current(Block* block) {
  running.block = block;
}

void Block::prepare(uint3 index) {
  dynamic_shared_.fill();
  index_ = index;
  live_ = launch_.threads_per_block();
  for (KernelThread& thread : threads_) thread.reset();
  for_each_part([](auto& part) { part.reset(); });
}

void Block::run_thread() {
  begin_.acquire();
  KernelThread& self = *running_;
  Recorder* recorder = Recorder::active();
  if (recorder) recorder->note(self, Recorder::Kind::start, launch_.where, self.clock);
  launch_.body();
  if (recorder) recorder->note(self, Recorder::Kind::end, launch_.where, self.clock);
  const sanitizer::Unwatched unwatched;
  if (const BulkStore* store = self.bulk_stores.finish()) {
    fail("the thread has ended, but has not waited until its bulk store has read shared memory", store->where, self);
  }
  self.state = KernelThread::State::returned;
  --live_;
}

void Block::begin_wait(const Wait& wait) {
  running_->state = wait.state;
  running_->where = wait.where;
  running_->on = wait.on;
}

void Block::pause() {
  cluster_.pause(running_->fiber);
}

void Block::wait(const Wait& wait) {
  begin_wait(wait);
  pause();
}

void Block::wake(const void* on) {
  wake(0, static_cast<unsigned>(threads_.size()), [&](unsigned i) { return threads_[i].on == on; });
}

void Block::yield() {
  if (Recorder::active()) running_->clock += latencies::kSleep;
  // While threads look again and again, the block never runs out of threads that can go on.
  if (!cluster_.loads().empty()) cluster_.loads().finish_awaited();
  ready_.push(running_->number);
  pause();
}

void Block::fail(const char* what, std::source_location where, const KernelThread& thread) {
  const sanitizer::Unwatched unwatched;
  cluster_.fail(describe_trap(thread, what, where));
}

void Block::require(Feature feature, const char* instruction, std::source_location where) {
  if (launch_.device.has(feature)) return;
  {
    const sanitizer::Unwatched unwatched;
    const std::string what = std::string(instruction) + " needs compute capability 9.0" +
                             (feature == Feature::warpgroup_products ? "" : " or later") +
                             ", and the device of EMULATOR_DEVICE has " + launch_.device.capability_text();
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
