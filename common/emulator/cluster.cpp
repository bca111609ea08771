#include "cluster.hpp"

#include <algorithm>
#include <utility>

#include "counters.hpp"
#include "emulator/builtins.hpp"
#include "emulator/counters.hpp"
#include "random.hpp"
#include "report.hpp"

// Not zero: the part of the thread_local variables that starts as zeros is the shared memory of the block.
constinit thread_local uint3 threadIdx{~0u, ~0u, ~0u};
constinit thread_local uint3 blockIdx{~0u, ~0u, ~0u};
constinit thread_local dim3 blockDim{1, 1, 1};
constinit thread_local dim3 gridDim{1, 1, 1};

namespace emulator {
namespace {

/// The block that this OS thread runs. Not zero either.
struct Current {
  Block* block;
  bool is_never_zero;
};
constinit thread_local Current current{nullptr, true};

uint3 unflatten(std::uint64_t number, dim3 size) {
  return {static_cast<unsigned>(number % size.x), static_cast<unsigned>(number / size.x % size.y),
          static_cast<unsigned>(number / size.x / size.y)};
}

}  // namespace

Block* Block::current() {
  return emulator::current.block;
}

Cluster::Cluster(Launch& launch, Stacks& stacks)
    : launch_(launch),
      stacks_(stacks),
      threads_(std::size_t{launch.blocks_per_cluster()} * launch.threads_per_block()),
      ready_(launch.schedule, static_cast<unsigned>(threads_.size())) {
  stacks_.reserve(static_cast<unsigned>(threads_.size()));
  const unsigned threads = launch.threads_per_block();
  for (unsigned rank = 0; rank < launch.blocks_per_cluster(); ++rank) {
    blocks_.push_back(std::make_unique<Block>(
        *this, launch, rank, std::span(threads_).subspan(std::size_t{rank} * threads, threads), ready_));
    for (unsigned i = 0; i < threads; ++i) {
      KernelThread& thread = threads_[rank * threads + i];
      thread.block = blocks_.back().get();
      thread.number = i;
      thread.index = unflatten(i, launch.block);
    }
  }
}

std::string Cluster::run(std::uint64_t number) {
  prepare(number);
  scheduler_.strand().adopt_current();
  scheduler_.switch_to(next());  // comes back when no thread is ready any more
  // First of all, because it explains whatever else goes wrong then.
  if (size() > 1 && !static_shared_.is_untouched()) {
    failure_ = describe_trap(threads_[0],
                             "the kernel has written to a static __shared__ array, of which the emulator has one for "
                             "all blocks of a cluster; take dynamic_shared() instead",
                             launch_.where);
  }
  const bool is_stuck = std::ranges::any_of(blocks_, [](const auto& block) { return !block->has_ended(); });
  if (is_stuck && failure_.empty()) failure_ = describe_stuck(*this);
  if (failure_.empty()) check_copies_at_end();
  for (const auto& block : blocks_) {
    if (failure_.empty()) block->check_registers_at_end();
    if (failure_.empty()) block->check_products_at_end();
  }
  for (KernelThread& thread : threads_) {
    thread.fiber.discard(thread.state == KernelThread::State::returned, launch_.end);
  }
  for (const auto& block : blocks_) block->dynamic_shared_.open();
  add_to_counters(block_counters);
  emulator::current.block = nullptr;
  return failure_;
}

void Cluster::prepare(std::uint64_t number) {
  static_shared_.fill();
  block_counters = Counters{.blocks = size(), .threads = threads_.size()};
  blockDim = launch_.block;
  gridDim = launch_.grid;

  ready_.restart(number);
  failure_.clear();
  bulk_loads_.clear();
  async_random_ = scramble(launch_.async_order.seed) ^ scramble(~number);
  phase_ = arrived_ = 0;

  const dim3 size = launch_.cluster;
  const uint3 place = unflatten(number, {launch_.grid.x / size.x, launch_.grid.y / size.y, launch_.grid.z / size.z});
  for (const auto& block : blocks_) {
    const uint3 part = unflatten(block->rank(), size);
    block->prepare({place.x * size.x + part.x, place.y * size.y + part.y, place.z * size.z + part.z});
  }
  for (unsigned i = 0; i < threads_.size(); ++i) {
    KernelThread& thread = threads_[i];
    thread.async_copies.clear();
    thread.bulk_stores.clear();
    thread.async_proxy_writes.clear();
    thread.last_fence = 0;
    thread.products.clear();
    thread.has_arrived = false;
    thread.peer_shared = {};
    std::string name;
    if (sanitizer::kThread) {
      name = "block " + describe(thread.block->index()) + ", thread " + describe(thread.index);
    }
    thread.fiber.prepare(stacks_.top(i), stacks_.bounds(i), &Block::run_thread, thread.block, name.c_str());
  }
  enter(*blocks_[0]);
  ready_.push_batch(0, static_cast<unsigned>(threads_.size()), [this](unsigned i) {
    threads_[i].state = KernelThread::State::ready;
    return true;
  });
  for (const auto& block : blocks_) block->begin_.release();
}

void Cluster::enter(Block& block) {
  entered_ = &block;
  emulator::current.block = &block;
  blockIdx = block.index();
}

Fiber& Cluster::next() {
  if (ready_.empty() && !bulk_loads_.empty()) finish_awaited_loads();
  if (ready_.empty() || !failure_.empty()) return scheduler_;
  KernelThread& thread = threads_[ready_.pop()];
  if (thread.block != entered_) [[unlikely]]
    enter(*thread.block);
  entered_->running_ = &thread;
  threadIdx = thread.index;
  return thread.fiber;
}

// Flat, because a kernel spends its time here.
[[gnu::flatten]] void Block::pause() {
  Fiber& self = running_->fiber;
  self.switch_to(cluster_.next());
}

void Block::run_thread(void* block) {
  auto& self = *static_cast<Block*>(block);
  self.begin_.acquire();
  self.launch_.body();
  self.finish_stores();
  KernelThread& thread = *self.running_;
  thread.state = KernelThread::State::returned;
  if (--self.live_ == 0) self.cluster_.end_block(self);
  thread.fiber.leave_to(self.cluster_.next());
}

void Cluster::end_block(Block& block) {
  if (size() == 1) return;
  const sanitizer::Unwatched unwatched;
  for (const BulkLoad& load : bulk_loads_) {
    if (load.source_block != &block) continue;
    block.fail("the block has ended, but nothing has told it that this copy has read its shared memory", load.where,
               *load.thread);
  }
  block.dynamic_shared_.close();
}

const Block* Cluster::ended_block_at(const void* address) const {
  for (const auto& block : blocks_) {
    if (size() > 1 && block->has_ended() && block->dynamic_shared_.contains(address, 1)) return block.get();
  }
  return nullptr;
}

void Cluster::fail(std::string report) {
  const sanitizer::Unwatched unwatched;  // run() reads it on another strand
  if (failure_.empty()) failure_ = std::move(report);
}

}  // namespace emulator
