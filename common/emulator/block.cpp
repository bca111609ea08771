#include "block.hpp"

#include <bit>
#include <cstdio>
#include <cstring>

#include "counters.hpp"
#include "emulator/barrier.hpp"
#include "emulator/builtins.hpp"
#include "emulator/counters.hpp"
#include "emulator/trap.hpp"
#include "emulator/warp.hpp"
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

bool is_same_place(const std::source_location& a, const std::source_location& b) {
  return a.line() == b.line() && (a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0);
}

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
      ready_(launch.schedule, launch.threads_per_block(), 0) {
  stacks_.reserve(launch.threads_per_block());
  for (unsigned i = 0; i < threads_.size(); ++i) {
    threads_[i].number = i;
    threads_[i].index = unflatten(i, launch.block);
    warps_[i / 32].existing |= 1u << i % 32;
  }
}

std::string Block::run(std::uint64_t number) {
  prepare(number);
  while (!ready_.empty() && failure_.empty()) resume(threads_[ready_.pop()]);

  if (live_ > 0 && failure_.empty()) failure_ = describe_stuck(*this, threads_);
  for (unsigned i = 0; i < threads_.size(); ++i) {
    threads_[i].fiber.discard();
    if (threads_[i].state != KernelThread::State::returned) sanitizer::forget_frames(stacks_.bounds(i));
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

  ready_ = ReadyQueue(launch_.schedule, launch_.threads_per_block(), number);
  live_ = launch_.threads_per_block();
  failure_.clear();
  arrived_ = 0;
  holds_[0] = holds_[1] = 0;
  for (Warp& warp : warps_) warp.waiting = 0;
  for (unsigned i = 0; i < threads_.size(); ++i) {
    threads_[i].async_copies.clear();
    char name[80] = "";  // for ThreadSanitizer's reports
    if (sanitizer::kThread) {
      const uint3 thread = threads_[i].index;
      std::snprintf(name, sizeof name, "block (%u,%u,%u), thread (%u,%u,%u)", index_.x, index_.y, index_.z, thread.x,
                    thread.y, thread.z);
    }
    threads_[i].fiber.prepare(stacks_.top(i), stacks_.bounds(i), &Block::run_thread, this, name);
  }
  wake_all();
}

void Block::resume(KernelThread& thread) {
  running_ = &thread;
  threadIdx = thread.index;
  thread.fiber.resume();
}

void Block::run_thread(void* block) {
  auto& self = *static_cast<Block*>(block);
  self.launch_.body();
  KernelThread& thread = *self.running_;
  thread.state = KernelThread::State::returned;
  --self.live_;
  self.launch_.end.release();
  thread.fiber.leave();
}

void Block::wake_all() {
  ready_.push_batch(0, static_cast<unsigned>(threads_.size()), [this](unsigned i) {
    threads_[i].state = KernelThread::State::ready;
    return true;
  });
}

int Block::barrier(bool predicate, std::source_location where) {
  if (launch_.skipped_barrier && launch_.skipped_barrier->is_at(where)) return predicate;
  if (arrived_ == 0) {
    first_arrival_ = where;
    same_place_ = true;
  }
  same_place_ = same_place_ && is_same_place(where, first_arrival_);
  running_->state = KernelThread::State::at_barrier;
  running_->where = where;

  const unsigned parity = parity_;
  holds_[parity] += predicate;
  points_[parity].release();
  // Threads that met at different lines stay where they are; so the block gets stuck, which run() reports.
  if (++arrived_ == threads_.size() && same_place_) {
    arrived_ = 0;
    parity_ ^= 1;
    holds_[parity_] = 0;
    ++block_counters.barriers;
    wake_all();
  }
  running_->fiber.suspend();
  points_[parity].acquire();
  return holds_[parity];
}

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
  self.fiber.suspend();
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
}

void Block::yield() {
  ready_.push(static_cast<std::uint16_t>(running_->number));
  running_->fiber.suspend();
}

void Block::trap(const char* what, std::source_location where) {
  {
    const sanitizer::Unwatched unwatched;  // run() reads it on another strand
    failure_ = describe_trap(*this, what, where);
  }
  running_->fiber.suspend();  // run() resumes no thread any more
  __builtin_unreachable();
}

unsigned lane() {
  return Block::current()->thread().number % kWarpSize;
}

void warp_exchange(unsigned mask, const void* mine, std::size_t size, void* all, std::source_location where) {
  Block::current()->exchange(mask, mine, size, all, where);
}

void trap(const char* what, std::source_location where) {
  Block::current()->trap(what, where);
}

}  // namespace emulator

void __syncthreads(std::source_location where) {
  emulator::Block::current()->barrier(false, where);
}

int __syncthreads_count(int predicate, std::source_location where) {
  return emulator::Block::current()->barrier(predicate != 0, where);
}

int __syncthreads_and(int predicate, std::source_location where) {
  emulator::Block& block = *emulator::Block::current();
  return block.barrier(predicate == 0, where) == 0;
}

int __syncthreads_or(int predicate, std::source_location where) {
  return emulator::Block::current()->barrier(predicate != 0, where) != 0;
}

void __syncwarp(unsigned mask, std::source_location where) {
  emulator::Block::current()->sync_warp(mask, where);
}

void __nanosleep(unsigned) {
  emulator::Block::current()->yield();
}
