#include "block.hpp"

#include "counters.hpp"
#include "emulator/builtins.hpp"
#include "emulator/counters.hpp"
#include "emulator/trap.hpp"
#include "random.hpp"
#include "report.hpp"

// Not zero: the part of the thread_local variables that starts as zeros is the shared memory of the block.
constinit thread_local uint3 threadIdx{~0u, ~0u, ~0u};
constinit thread_local uint3 blockIdx{~0u, ~0u, ~0u};
constinit thread_local dim3 blockDim{1, 1, 1};
constinit thread_local dim3 gridDim{1, 1, 1};

namespace emulator {
namespace {

// Set right after shared memory was filled, so it may lie in it.
constinit thread_local Block* current_block = nullptr;

uint3 unflatten(std::uint64_t number, dim3 size) {
  return {static_cast<unsigned>(number % size.x), static_cast<unsigned>(number / size.x % size.y),
          static_cast<unsigned>(number / size.x / size.y)};
}

}  // namespace

Block* Block::current() {
  return current_block;
}

Block::Block(Launch& launch, Stacks& stacks)
    : launch_(launch),
      stacks_(stacks),
      dynamic_shared_(launch.shared_bytes),
      threads_(launch.threads_per_block()),
      warps_((threads_.size() + 31) / 32),
      ready_(launch.schedule, launch.threads_per_block()) {
  stacks_.reserve(launch.threads_per_block());
  for (unsigned i = 0; i < threads_.size(); ++i) {
    threads_[i].number = i;
    threads_[i].index = unflatten(i, launch.block);
    warps_[i / 32].existing |= 1u << i % 32;
  }
}

std::string Block::run(std::uint64_t number) {
  prepare(number);
  scheduler_.strand().adopt_current();
  scheduler_.switch_to(next());  // comes back when no thread is ready any more
  if (live_ > 0 && failure_.empty()) failure_ = describe_stuck(*this, threads_);
  if (failure_.empty()) check_copies_at_end();
  if (failure_.empty()) check_registers_at_end();
  if (failure_.empty()) check_products_at_end();
  for (KernelThread& thread : threads_) {
    thread.fiber.discard(thread.state == KernelThread::State::returned, launch_.end);
  }
  add_to_counters(block_counters);
  current_block = nullptr;
  return failure_;
}

void Block::prepare(std::uint64_t number) {
  static_shared_.fill();
  dynamic_shared_.fill();
  current_block = this;
  block_counters = Counters{.blocks = 1, .threads = threads_.size()};

  index_ = unflatten(number, launch_.grid);
  blockIdx = index_;
  blockDim = launch_.block;
  gridDim = launch_.grid;

  ready_.restart(number);
  live_ = launch_.threads_per_block();
  failure_.clear();
  arrived_ = 0;
  holds_[0] = holds_[1] = 0;
  for (Warp& warp : warps_) {
    warp.waiting = 0;
    warp.products.clear();
  }
  warpgroups_.assign((warps_.size() + 3) / 4, {});
  mbarriers_.clear();
  bulk_loads_.clear();
  async_image_.clear();
  for (NamedBarrier& barrier : named_barriers_) barrier.reset();
  registers_.reset(static_cast<unsigned>(warps_.size()));
  async_random_ = scramble(launch_.async_order.seed) ^ scramble(~number);
  for (unsigned i = 0; i < threads_.size(); ++i) {
    threads_[i].async_copies.clear();
    threads_[i].bulk_stores.clear();
    threads_[i].async_proxy_writes.clear();
    threads_[i].products.clear();
    std::string name;
    if (sanitizer::kThread) name = "block " + describe(index_) + ", thread " + describe(threads_[i].index);
    threads_[i].fiber.prepare(stacks_.top(i), stacks_.bounds(i), &Block::run_thread, this, name.c_str());
  }
  wake_all();
  begin_.release();
}

Fiber& Block::next() {
  if (ready_.empty() && !bulk_loads_.empty()) finish_awaited_loads();
  if (ready_.empty() || !failure_.empty()) return scheduler_;
  running_ = &threads_[ready_.pop()];
  threadIdx = running_->index;
  return running_->fiber;
}

void Block::pause() {
  Fiber& self = running_->fiber;
  self.switch_to(next());
}

void Block::run_thread(void* block) {
  auto& self = *static_cast<Block*>(block);
  self.begin_.acquire();
  self.launch_.body();
  self.finish_stores();
  KernelThread& thread = *self.running_;
  thread.state = KernelThread::State::returned;
  --self.live_;
  thread.fiber.leave_to(self.next());
}

void Block::wake_all() {
  ready_.push_batch(0, static_cast<unsigned>(threads_.size()), [this](unsigned i) {
    threads_[i].state = KernelThread::State::ready;
    return true;
  });
}

void Block::fail(const char* what, std::source_location where, const KernelThread& thread) {
  const sanitizer::Unwatched unwatched;  // run() reads it on another strand
  if (failure_.empty()) failure_ = describe_trap(*this, thread, what, where);
}

void Block::trap(const char* what, std::source_location where) {
  fail(what, where, *running_);
  pause();  // next() picks no thread any more
  __builtin_unreachable();
}

void trap(const char* what, std::source_location where) {
  Block::current()->trap(what, where);
}

}  // namespace emulator
