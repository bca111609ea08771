#include "cluster.hpp"

#include <algorithm>
#include <utility>

#include "counters.hpp"
#include "emulator/builtins.hpp"
#include "emulator/counters.hpp"
#include "report.hpp"

// Not zero: the part of the thread_local variables that starts as zeros is the shared memory of the block.
constinit thread_local uint3 threadIdx{~0u, ~0u, ~0u};
constinit thread_local uint3 blockIdx{~0u, ~0u, ~0u};
constinit thread_local dim3 blockDim{1, 1, 1};
constinit thread_local dim3 gridDim{1, 1, 1};

namespace emulator {
namespace {

uint3 unflatten(std::uint64_t number, dim3 size) {
  return {static_cast<unsigned>(number % size.x), static_cast<unsigned>(number / size.x % size.y),
          static_cast<unsigned>(number / size.x / size.y)};
}

}  // namespace

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
  if (launch_.detector) launch_.detector->begin_cluster(*this, number);
  races::set_active(launch_.detector);
  if (launch_.recorder) launch_.recorder->begin_cluster(*this);
  scheduler_.strand().adopt_current();
  scheduler_.switch_to(next());  // comes back when no thread is ready any more
  races::set_active(nullptr);
  if (launch_.recorder) launch_.recorder->end_cluster(*this);
  // First of all, because it explains whatever else goes wrong then.
  if (size() > 1 && !static_shared_.is_untouched()) {
    failure_ = describe_trap(threads_[0],
                             "the kernel has written to a static __shared__ array, of which the emulator has one for "
                             "all blocks of a cluster; take dynamic_shared() instead",
                             launch_.where);
  }
  const bool is_stuck = std::ranges::any_of(blocks_, [](const auto& block) { return !block->has_ended(); });
  if (is_stuck && failure_.empty()) failure_ = describe_stuck(*this);
  if (failure_.empty()) loads_.check_at_end();
  for (const auto& block : blocks_) {
    block->for_each_part([this](auto& part) {
      if (failure_.empty()) part.check_at_end();
    });
  }
  for (KernelThread& thread : threads_) {
    thread.fiber.discard(thread.state == KernelThread::State::returned, launch_.end);
  }
  for (const auto& block : blocks_) block->dynamic_shared_.open();
  add_to_counters(block_counters);
  Block::set_current(nullptr);
  return failure_;
}

void Cluster::prepare(std::uint64_t number) {
  static_shared_.fill();
  block_counters = Counters{.blocks = size(), .threads = threads_.size()};
  blockDim = launch_.block;
  gridDim = launch_.grid;

  ready_.restart(number);
  failure_.clear();
  loads_.reset(number);
  barrier_.reset();

  const dim3 size = launch_.cluster;
  const uint3 place = unflatten(number, {launch_.grid.x / size.x, launch_.grid.y / size.y, launch_.grid.z / size.z});
  for (const auto& block : blocks_) {
    const uint3 part = unflatten(block->rank(), size);
    block->prepare({place.x * size.x + part.x, place.y * size.y + part.y, place.z * size.z + part.z});
  }
  for (unsigned i = 0; i < threads_.size(); ++i) {
    KernelThread& thread = threads_[i];
    std::string name;
    if (sanitizer::kThread) {
      name = "block " + describe(thread.block->index()) + ", thread " + describe(thread.index);
    }
    thread.fiber.prepare(stacks_.top(i), stacks_.bounds(i), &run_thread, &thread, name.c_str());
  }
  enter(*blocks_[0]);
  ready_.push_batch(0, static_cast<unsigned>(threads_.size()), [this](unsigned i) {
    Block::make_ready(threads_[i]);
    return true;
  });
  for (const auto& block : blocks_) block->begin_.release();
}

void Cluster::enter(Block& block) {
  entered_ = &block;
  Block::set_current(&block);
  blockIdx = block.index();
}

Fiber& Cluster::next() {
  if (ready_.empty() && !loads_.empty()) loads_.finish_awaited();
  if (ready_.empty() || !failure_.empty()) return scheduler_;
  KernelThread& thread = threads_[ready_.pop()];
  if (thread.block != entered_) [[unlikely]]
    enter(*thread.block);
  entered_->running_ = &thread;
  threadIdx = thread.index;
  return thread.fiber;
}

// Flat, because a kernel spends its time here.
[[gnu::flatten]] void Cluster::pause(Fiber& self) {
  self.switch_to(next());
}

void Cluster::wake(const void* on) {
  ready_.push_batch(0, thread_count(), [&](unsigned i) {
    if (threads_[i].on != on) return false;
    Block::make_ready(threads_[i]);
    return true;
  });
}

void Cluster::run_thread(void* thread) {
  KernelThread& self = *static_cast<KernelThread*>(thread);
  Block& block = *self.block;
  block.run_thread();
  if (block.has_ended()) block.cluster_.end_block(block);
  self.fiber.leave_to(block.cluster_.next());
}

void Cluster::end_block(Block& block) {
  if (size() == 1) return;
  const sanitizer::Unwatched unwatched;
  loads_.check_at_end_of(block);
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
