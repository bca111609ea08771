#include "emulator/mbarrier.hpp"

#include <algorithm>
#include <cstdio>

#include "cluster.hpp"
#include "emulator/cluster.hpp"
#include "emulator/trap.hpp"
#include "hopper_counters.hpp"
#include "latencies.hpp"
#include "mbarriers.hpp"

namespace emulator {

void MBarriers::reset() {
  const sanitizer::Unwatched unwatched;
  barriers_.clear();
}

void MBarriers::check_at_end() {
  for (const MBarrier& barrier : barriers_) {
    if (barrier.bytes_left >= 0) continue;
    block_.fail("the phases of this barrier expect fewer bytes than its copies have brought", barrier.where,
                block_.threads()[barrier.creator]);
  }
}

MBarrier* MBarriers::find(const void* address) {
  for (MBarrier& barrier : barriers_) {
    if (barrier.address == address) return &barrier;
  }
  return nullptr;
}

void MBarriers::create(const std::uint64_t* address, unsigned count, std::source_location where) {
  if (count == 0 || count > MBarrier::kMost) block_.trap("the count of a barrier is between 1 and 1048575", where);
  if (reinterpret_cast<std::uintptr_t>(address) % 8 != 0) block_.trap("a barrier is aligned to 8 bytes", where);
  if (find(address)) block_.trap("a barrier in shared memory is initialised a second time", where);
  if (block_.cluster().size() > 1 && !block_.dynamic_shared().contains(address, sizeof *address)) {
    block_.trap("a barrier is in a static __shared__ array, of which the emulator has one for all blocks of a cluster",
                where);
  }
  if (block_.is_weaker(where) && count > 1) --count;
  const sanitizer::Unwatched unwatched;
  MBarrier& barrier = barriers_.emplace_back();
  barrier.address = address;
  barrier.block = &block_;
  barrier.count = barrier.arrivals_left = count;
  barrier.where = where;
  barrier.creator = block_.thread().number;
  if (races::Detector* detector = races::active()) barrier.number = detector->add_barrier();
  if (Recorder* recorder = Recorder::active()) {
    KernelThread& thread = block_.thread();
    recorder->note(thread, Recorder::Kind::init, where, thread.clock, {.object = address, .value = count});
  }
}

void MBarriers::fence(unsigned creator) {
  for (MBarrier& barrier : barriers_) barrier.is_fenced = barrier.is_fenced || barrier.creator == creator;
}

MBarrier& MBarriers::usable(const std::uint64_t* address, std::uint64_t mark, std::source_location where) {
  MBarrier* barrier = block_.cluster().find_mbarrier(block_, address);
  if (!barrier) block_.trap("a barrier in shared memory is used before init()", where);
  if (mark != kBarrierMark) block_.trap("the 8 bytes of a barrier in shared memory have been overwritten", where);
  if (!barrier->is_fenced) {
    block_.trap("a barrier in shared memory is used, but no fence_barrier_init() has followed its init()", where);
  }
  return *barrier;
}

void MBarriers::end_phase_if_complete(MBarrier& barrier) {
  if (barrier.arrivals_left > 0 || barrier.bytes_left != 0) return;
  if (const BulkLoad* load = block_.cluster().loads().find(barrier)) {
    block_.fail("this phase of the barrier has ended before this copy came: it expects too few bytes", load->where,
                *load->thread);
  }
  if (races::Detector* detector = races::active()) {
    detector->end_phase(barrier.points[barrier.parity()].clock(), barrier.number, barrier.phase);
  }
  ++barrier.phase;
  barrier.arrivals_left = barrier.count;
  barrier.clocks[barrier.parity()] = 0;
  barrier.is_from_cluster[barrier.parity()] = false;
  block_.wake(&barrier);
}

void MBarriers::arrive(MBarrier& barrier, unsigned bytes, std::source_location where) {
  if (bytes > MBarrier::kMost) block_.trap("a barrier in shared memory can expect 1048575 bytes at most", where);
  if (barrier.arrivals_left == 0) {
    char text[120];
    std::snprintf(text, sizeof text,
                  "one arrival too many: this phase of the barrier has had all of its %u, it waits for bytes alone",
                  barrier.count);
    block_.trap(text, where);
  }
  ++arrival_count;
  barrier.points[barrier.parity()].release(where);
  if (Recorder* recorder = Recorder::active()) {
    KernelThread& thread = block_.thread();
    recorder->note(thread, bytes > 0 ? Recorder::Kind::expect : Recorder::Kind::arrive, where, thread.clock,
                   {.object = barrier.address,
                    .phase = static_cast<std::int64_t>(barrier.phase),
                    .value = bytes,
                    .of = barrier.block});
    const std::int64_t latency = barrier.block == &block_ ? latencies::kArrival : latencies::kRemoteArrival;
    std::int64_t& last = barrier.clocks[barrier.parity()];
    last = std::max(last, thread.clock + latency);
  }
  if (barrier.block != &block_) barrier.is_from_cluster[barrier.parity()] = true;
  --barrier.arrivals_left;
  barrier.bytes_left += bytes;
  if (barrier.arrivals_left == 0 && barrier.bytes_left < 0) {
    char text[120];
    std::snprintf(text, sizeof text, "this phase of the barrier expects %lld bytes fewer than its copies have brought",
                  static_cast<long long>(-barrier.bytes_left));
    block_.trap(text, where);
  }
  barrier.block->mbarriers().end_phase_if_complete(barrier);
}

void MBarriers::wait(MBarrier& barrier, unsigned parity, bool of_cluster, std::source_location where) {
  if (barrier.block != &block_) {
    block_.trap("a thread waits at a barrier of another block, but can do so only at its own", where);
  }
  const std::int64_t awaited = static_cast<std::int64_t>(barrier.phase) - (barrier.parity() == parity ? 0 : 1);
  if (barrier.parity() == parity) {
    const std::uint64_t phase = barrier.phase;
    block_.wait({KernelThread::State::at_mbarrier, where, &barrier});
    if (barrier.phase != phase + 1) {
      block_.trap("the next phase has ended, too, before this thread went on: another thread would wait forever",
                  where);
    }
  }
  if (barrier.is_from_cluster[parity] && !of_cluster) {
    block_.trap(
        "another block has arrived in this phase, or has pushed data: wait_cluster() makes that visible, wait() does "
        "not",
        where);
  }
  barrier.points[parity].acquire(where);
  if (Recorder* recorder = Recorder::active()) {
    KernelThread& thread = block_.thread();
    const std::int64_t begin = thread.clock;
    if (awaited >= 0) thread.clock = std::max(thread.clock, barrier.clocks[parity]);
    recorder->note(thread, Recorder::Kind::wait, where, begin, {.object = barrier.address, .phase = awaited});
  }
}

void create_mbarrier(const std::uint64_t* address, unsigned count, std::source_location where) {
  Block& block = *Block::current();
  block.require(Feature::bulk_copies, "mbarrier", where);  // so that the others need not ask
  block.mbarriers().create(address, count, where);
}

void mbarrier_fence_init(std::source_location where) {
  Block& block = *Block::current();
  if (!block.skips(where)) block.mbarriers().fence(block.thread().number);
}

void arrive_at_mbarrier(const std::uint64_t* barrier, std::uint64_t mark, unsigned bytes, std::source_location where) {
  Block& block = *Block::current();
  if (block.skips(where)) return;
  MBarriers& barriers = block.mbarriers();
  barriers.arrive(barriers.usable(barrier, mark, where), bytes, where);
}

void wait_for_mbarrier(const std::uint64_t* barrier, std::uint64_t mark, unsigned parity, bool of_cluster,
                       std::source_location where) {
  Block& block = *Block::current();
  if (block.skips(where)) return;
  if (parity > 1) block.trap("the parity of a phase is 0 or 1", where);
  MBarriers& barriers = block.mbarriers();
  barriers.wait(barriers.usable(barrier, mark, where), parity, of_cluster, where);
}

}  // namespace emulator
