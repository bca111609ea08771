#include "race_detector.hpp"

#include <algorithm>
#include <bit>
#include <iterator>

#include "cluster.hpp"
#include "race_places.hpp"
#include "shared_memory.hpp"

namespace emulator::races {
namespace {

/// Not zero: see threadIdx in cluster.cpp.
struct Active {
  Detector* detector;
  bool is_never_zero;
};
constinit thread_local Active on_this_thread{nullptr, true};

// Of all that have read a word of device memory, so many are remembered beside those of the same cluster.
constexpr unsigned kReadsOfOtherClusters = 2;

/// Which byte of two a single one is, for Write::low.
std::uint8_t low_of(const void* address, std::size_t bytes) {
  if (bytes > 1) return 0;
  return reinterpret_cast<std::uintptr_t>(address) % 2 == 0 ? 1 : 2;
}

bool are_apart(std::uint8_t low, std::uint8_t other) {
  return low != 0 && other != 0 && low != other;
}

}  // namespace

Detector* active() {
  return on_this_thread.detector;
}

void set_active(Detector* detector) {
  on_this_thread.detector = detector;
}

Detector& Detector::instance() {
  static Detector detector;
  return detector;
}

// --- launches, clusters, threads ---

void Detector::add_work() {
  Streams& streams = Streams::instance();
  const unsigned stream = CurrentStream::number();
  order_ = streams.clock_of(stream);
  previous_.reset();
  if (first_runs_.size() <= stream) first_runs_.resize(stream + 1);
  first_runs_[stream].push_back(run_ + 1);
  works_.push_back({run_ + 1, stream, streams.add_work(stream)});
}

std::uint32_t Detector::first_unordered() const {
  std::uint32_t first = run_ + 1;
  for (unsigned stream = 0; stream < first_runs_.size(); ++stream) {
    const std::uint32_t covered = stream < order_.size() ? order_[stream] : 0;
    if (covered < first_runs_[stream].size()) first = std::min(first, first_runs_[stream][covered]);
  }
  return first;
}

bool Detector::is_unordered(std::uint32_t run) const {
  const auto after = std::ranges::upper_bound(works_, run, {}, &Work::first_run);
  if (after == works_.begin()) return false;
  const Work& work = *std::prev(after);
  return !covers(order_, work.stream, work.number);
}

void Detector::begin_launch(bool starts_early) {
  const std::optional<Work> last = works_.empty() ? std::nullopt : std::optional(works_.back());
  add_work();
  const unsigned stream = works_.back().stream;
  if (starts_early && lets_next_start_ && last && last->stream == stream &&
      !covers(Streams::instance().host_clock(), stream, last->number)) {
    previous_ = last;
    --order_[stream];
  }
  lets_next_start_ = false;
  first_run_ = run_ + 1;
  first_recent_ = first_unordered();
  open_copies_.clear();
  if (!copies_.empty()) {
    const StreamClock host = Streams::instance().host_clock();
    std::erase_if(copies_, [&](const Copied& one) { return covers(host, one.work.stream, one.work.number); });
    std::ranges::copy_if(copies_, std::back_inserter(open_copies_),
                         [&](const Copied& one) { return !covers(order_, one.work.stream, one.work.number); });
  }
  finds_unwritten_ = is_collecting();
  if (!is_collecting()) take();  // each launch ends at its first finding, also one that an earlier launch had
  flags_.clear();
  flag_releases_.clear();
  cluster_numbers_.clear();
}

void Detector::begin_cluster(Cluster& cluster, std::uint64_t number) {
  ++run_;
  cluster_ = &cluster;
  cluster_numbers_.push_back(number);
  threads_per_block_ = cluster.launch().threads_per_block();
  warps_per_block_ = (threads_per_block_ + 31) / 32;
  barriers_ = 0;
  // Clocks that go on let points of synchronisation be used again: what they know of earlier clusters is too old.
  start_ = next_start_;
  for (const ThreadClock& clock : clocks_) start_ = std::max(start_, clock.own + 1);
  clocks_.resize(cluster.thread_count());
  for (ThreadClock& clock : clocks_) {
    clock.reset(start_);
    clock.others.has_previous = !previous_;
  }
  const StaticSharedMemory statics;
  statics_ = statics.begin();
  static_bytes_ = statics.bytes();
  thread_locals_ = statics.thread_locals();
  thread_local_bytes_ = statics.thread_local_bytes();
}

unsigned Detector::number_of(const KernelThread& thread) const {
  return thread.block->rank() * threads_per_block_ + thread.number;
}

unsigned Detector::running() const {
  return number_of(Block::current()->thread());
}

unsigned Detector::warp_of(unsigned thread) const {
  return thread / threads_per_block_ * warps_per_block_ + thread % threads_per_block_ / 32;
}

// --- what a thread knows ---

std::uint32_t Detector::known(unsigned thread, unsigned of) const {
  const ThreadClock& clock = clocks_[thread];
  if (thread == of) return clock.own;
  std::uint32_t value = of < clock.others.threads.size() ? clock.others.threads[of] : 0;
  if (of / threads_per_block_ == thread / threads_per_block_) {
    value = std::max(value, clock.block_floor);
    if (warp_of(of) == warp_of(thread)) value = std::max(value, clock.warp_floor);
  }
  return value;
}

bool Detector::knows(unsigned thread, std::uint32_t run, unsigned of, std::uint32_t clock) const {
  if (run == run_) return known(thread, of) >= clock;
  if (run < first_run_) return previous_ && run >= previous_->first_run && clocks_[thread].others.has_previous;
  return find(clocks_[thread].others.messages, run, of, clock) != nullptr;
}

bool Detector::knows_phase(unsigned thread, unsigned barrier, std::uint32_t clock) const {
  const auto& barriers = clocks_[thread].others.barriers;
  return barrier < barriers.size() && barriers[barrier] >= clock;
}

bool Detector::knows(unsigned thread, const Write& write) const {
  if (write.kind & kBulkCopy) return knows_phase(thread, write.thread, write.clock);
  return knows(thread, write.run, write.thread, write.clock);
}

bool Detector::knows(unsigned thread, const Reads& reads, unsigned& of) const {
  if (reads.kind & kBulkCopy) return knows_phase(thread, reads.warp, reads.clock);
  const unsigned first = reads.warp / warps_per_block_ * threads_per_block_ + reads.warp % warps_per_block_ * 32;
  for (std::uint32_t left = reads.lanes; left != 0; left &= left - 1) {
    of = first + static_cast<unsigned>(std::countr_zero(left));
    if (!knows(thread, reads.run, of, reads.clock)) return false;
  }
  return true;
}

void Detector::add_knowledge(VectorClock& clock, unsigned thread, bool is_early) const {
  const ThreadClock& mine = clocks_[thread];
  clock.threads.resize(clocks_.size());
  const std::uint32_t before = clock.threads[thread];
  clock.join(mine.others);
  const auto raise = [&](unsigned first, unsigned count, std::uint32_t floor) {
    for (unsigned i = first; i < first + count; ++i) clock.threads[i] = std::max(clock.threads[i], floor);
  };
  const unsigned block = thread / threads_per_block_ * threads_per_block_;
  const unsigned warp = thread % threads_per_block_ / 32 * 32;
  raise(block, threads_per_block_, mine.block_floor);
  raise(block + warp, std::min(32u, threads_per_block_ - warp), mine.warp_floor);
  // Barriers of the warp may stand between the access that is left out and this hand-over.
  clock.threads[thread] = std::max(before, is_early ? mine.before_access() : mine.own);
}

SkippedBarrier::Fault Detector::fault_at(std::source_location where) const {
  const auto& skipped = cluster_->launch().skipped_barrier;
  const bool is_here = skipped && skipped->fault != SkippedBarrier::Fault::weaker && skipped->is_at(where);
  return is_here ? skipped->fault : SkippedBarrier::Fault::skipped;
}

void Detector::release(VectorClock& clock, std::source_location where) {
  const unsigned thread = running();
  const SkippedBarrier::Fault fault = fault_at(where);
  clocks_[thread].learn();
  if (fault != SkippedBarrier::Fault::relaxed) {
    add_knowledge(clock, thread, fault == SkippedBarrier::Fault::early);
  }
  clocks_[thread].tick(place_of(where), false);
}

void Detector::acquire(const VectorClock& clock, std::source_location where) {
  ThreadClock& mine = clocks_[running()];
  const SkippedBarrier::Fault fault = fault_at(where);
  mine.learn();
  ++mine.own;  // what follows is another interval
  if (fault == SkippedBarrier::Fault::relaxed) return;
  if (fault == SkippedBarrier::Fault::late) {
    mine.defer(clock);
  } else {
    mine.others.join(clock);
  }
}

void Detector::end_phase(VectorClock& clock, unsigned barrier, std::uint64_t phase) {
  if (clock.barriers.size() <= barrier) clock.barriers.resize(barrier + 1);
  clock.barriers[barrier] = start_ + static_cast<std::uint32_t>(phase);
  next_start_ = std::max(next_start_, clock.barriers[barrier] + 1);
}

void Detector::meet_block(const Block& block, std::source_location where) {
  const unsigned first = block.rank() * threads_per_block_;
  const unsigned end = first + threads_per_block_;
  const Place place = place_of(where);
  for (unsigned i = first; i < end; ++i) clocks_[i].learn();
  if (const auto fault = fault_at(where); fault != SkippedBarrier::Fault::skipped) {
    VectorClock all;
    for (unsigned i = first; i < end; ++i) add_knowledge(all, i);
    if (fault == SkippedBarrier::Fault::early) {
      for (unsigned i = first; i < end; ++i) all.threads[i] = clocks_[i].before_access();
    }
    for (unsigned i = first; i < end; ++i) {
      if (fault == SkippedBarrier::Fault::early) clocks_[i].others.join(all);
      clocks_[i].tick(place, true);
      if (fault == SkippedBarrier::Fault::late) clocks_[i].defer(all);
    }
    return;
  }
  std::uint32_t most = 0;
  VectorClock others;
  for (unsigned i = first; i < end; ++i) {
    most = std::max(most, clocks_[i].own);
    if (cluster_->size() == 1) clocks_[i].others.threads.clear();  // the floor will say more
    others.join(clocks_[i].others);
  }
  for (unsigned i = first; i < end; ++i) {
    clocks_[i].own = most;
    clocks_[i].block_floor = most;
    clocks_[i].others = others;
    clocks_[i].tick(place, true);
  }
}

void Detector::meet_warp(const Block& block, unsigned first, std::uint32_t lanes, std::source_location where) {
  const unsigned start = block.rank() * threads_per_block_ + first;
  const auto for_each_lane = [&](auto visit) {
    for (std::uint32_t left = lanes; left != 0; left &= left - 1) {
      visit(start + static_cast<unsigned>(std::countr_zero(left)));
    }
  };
  const unsigned existing = std::min(32u, threads_per_block_ - first);
  const bool is_whole = static_cast<unsigned>(std::popcount(lanes)) == existing;
  const Place place = place_of(where);
  std::uint32_t most = 0;
  VectorClock others;
  for_each_lane([&](unsigned lane) {
    clocks_[lane].learn();
    most = std::max(most, clocks_[lane].own);
    others.join(clocks_[lane].others);
    if (!is_whole) add_knowledge(others, lane);
  });
  for_each_lane([&](unsigned lane) {
    ThreadClock& clock = clocks_[lane];
    if (is_whole) clock.own = clock.warp_floor = most;
    clock.others = others;
    clock.tick(place, true);
  });
}

void Detector::fence_proxy(std::source_location where) {
  ThreadClock& clock = clocks_[running()];
  const SkippedBarrier::Fault fault = fault_at(where);
  if (fault == SkippedBarrier::Fault::relaxed) return;
  clock.known_at_fence.resize(clocks_.size());
  for (unsigned i = 0; i < clocks_.size(); ++i) clock.known_at_fence[i] = known(running(), i);
  if (fault == SkippedBarrier::Fault::early) {
    clock.proxy_fences.push_back(clock.before_access());
  } else if (fault == SkippedBarrier::Fault::late) {
    clock.has_late_fence = true;
  } else {
    clock.proxy_fences.push_back(clock.own++);
  }
}

void Detector::wait_for_previous_launch() {
  clocks_[running()].others.has_previous = true;
}

// --- flags in device memory ---

std::shared_ptr<const Message> Detector::make_message(const void* flag, Place place) const {
  const unsigned thread = running();
  auto message = std::make_shared<Message>();
  message->run = run_;
  message->thread = thread;
  message->clock = clocks_[thread].own;
  message->place = place;
  message->flag = flag;
  add_knowledge(message->knowledge, thread);
  return message;
}

void Detector::acquire(const Messages& messages) {
  VectorClock& mine = clocks_[running()].others;
  for (const auto& message : messages) {
    if (message->run == run_) {
      mine.join(message->knowledge);
    } else {
      add(mine.messages, {message});
    }
  }
}

void Detector::load_flag(const void* address, std::size_t bytes, Place place, Order order) {
  read(address, bytes, place, kAtomic);
  const auto found = flags_.find(address);
  if (found == flags_.end()) return;
  ThreadClock& clock = clocks_[running()];
  if (found->second.relaxed_store != 0) clock.unreleased = {found->second.relaxed_store, address, found->second.run};
  if (order.acquires) {
    acquire(found->second.messages);
  } else if (!found->second.messages.empty()) {
    add(clock.unfenced, found->second.messages);
    clock.unacquired = {place, address, found->second.messages.back()->run};
  }
}

void Detector::store_flag(const void* address, std::size_t bytes, Place place, Order order) {
  write(address, bytes, place, kAtomic);
  Flag& flag = flags_[address];
  flag.messages.clear();
  flag.run = run_;
  flag.relaxed_store = place;
  ThreadClock& clock = clocks_[running()];
  if (order.releases) {
    flag.messages.push_back(make_message(address, place));
    flag_releases_.push_back({run_, running(), clock.own, place, address});
    clock.tick(place, false);
  } else if (clock.fenced) {
    flag.messages.push_back(clock.fenced);
  }
  if (!flag.messages.empty()) flag.relaxed_store = 0;
}

void Detector::update_flag(const void* address, std::size_t bytes, Place place, Order order) {
  write(address, bytes, place, kAtomic | kUpdate);
  Flag& flag = flags_[address];  // an update goes on with what was released there before
  ThreadClock& clock = clocks_[running()];
  if (order.acquires) {
    acquire(flag.messages);
  } else {
    add(clock.unfenced, flag.messages);
  }
  if (order.releases) {
    flag.messages.push_back(make_message(address, place));
    flag_releases_.push_back({run_, running(), clock.own, place, address});
    clock.tick(place, false);
  } else if (clock.fenced) {
    add(flag.messages, {clock.fenced});
  }
}

void Detector::fence(Place place) {
  ThreadClock& clock = clocks_[running()];
  acquire(clock.unfenced);
  clock.unfenced.clear();
  clock.fenced = make_message(nullptr, place);
  clock.tick(place, false);
}

// --- accesses ---

void Detector::note_access(unsigned thread, const void* address, bool shared) {
  if (!cluster_->launch().skipped_barrier) return;
  // That the code of a barrier reads the barrier itself does not count.
  if (shared && cluster_->find_mbarrier(*Block::current(), address)) return;
  ThreadClock& clock = clocks_[thread];
  clock.last_access = clock.own;
  if (shared) clock.last_shared_access = clock.own;
}

bool Detector::is_static_shared(const void* address) const {
  const auto* byte = static_cast<const char*>(address);
  return byte >= statics_ && byte < statics_ + static_bytes_;
}

bool Detector::is_watched(const void* address) const {
  if (cluster_->stacks().contains(address) || is_constant(address)) return false;
  const auto* byte = static_cast<const char*>(address);
  const bool is_thread_local = byte >= thread_locals_ && byte < thread_locals_ + thread_local_bytes_;
  return !is_thread_local || is_static_shared(address);
}

bool Detector::is_shared(const void* address) const {
  if (is_static_shared(address)) return true;
  for (unsigned rank = 0; rank < cluster_->size(); ++rank) {
    if (cluster_->block(rank).dynamic_shared().contains(address, 1)) return true;
  }
  return false;
}

void Detector::check_written(const Cell& cell, const void* address, const Reads& now, bool shared) {
  if (now.kind & kAtomic || is_recent(cell.write.run, shared)) return;
  const NamedMemory* named = shared ? nullptr : find_named_memory(address);
  if (!shared && (!named || named->is_written || cell.write.run != 0)) return;
  report(Finding::Kind::unwritten, Found::Why::unwritten, address, {}, seen_of(now));
}

void Detector::check_read(Cell& cell, const void* address, unsigned thread, const Reads& now, bool shared) {
  const Write& write = cell.write;
  if (is_recent(write.run, shared) && !(write.kind & now.kind & kAtomic) && !are_apart(write.low, now.low) &&
      (write.kind & (kUnfinished | kUnordered) || !knows(thread, write))) {
    report_race(address, seen_of(write), seen_of(now));
  }
  if (finds_unwritten_) check_written(cell, address, now, shared);
  // Old ones need not be remembered, nor those of the same warp that this thread knows of.
  std::uint32_t previous = 0;
  unsigned of_others = 0;
  for (std::uint32_t i = cell.reads; i != 0;) {
    Reads& one = shadow_.reads(i);
    const std::uint32_t next = one.next;
    const bool is_mine = one.run == run_ && one.warp == now.warp && one.kind == now.kind && one.low == now.low;
    if (is_mine && one.clock == now.clock) {
      one.lanes |= now.lanes;
      one.place = now.place;
      return;
    }
    unsigned of = 0;
    if (!is_recent(one.run, shared) || (one.run != run_ && ++of_others > kReadsOfOtherClusters) ||
        (is_mine && knows(thread, one, of))) {
      shadow_.remove_after(cell, previous);
    } else {
      previous = i;
    }
    i = next;
  }
  shadow_.add(cell, now);
}

void Detector::check_write(Cell& cell, const void* address, const Write& now, bool shared) {
  const unsigned thread = now.kind & kBulkCopy ? running() : now.thread;
  const auto second = [&] {
    Seen seen = seen_of(now);
    seen.thread = thread;  // the one that issues a copy
    return seen;
  };
  const Write& write = cell.write;
  bool is_unordered = false;  // messages whose bytes do not matter may all go to one place
  if (is_recent(write.run, shared) && !(write.kind & now.kind & kAtomic) && !are_apart(write.low, now.low) &&
      !knows(thread, write)) {
    if (write.kind & now.kind & kBulkCopy) {
      is_unordered = true;
    } else {
      report_race(address, seen_of(write), second());
    }
  }
  for (std::uint32_t i = cell.reads; i != 0; i = shadow_.reads(i).next) {
    const Reads& one = shadow_.reads(i);
    if (!is_recent(one.run, shared) || (one.kind & now.kind & kAtomic) || are_apart(one.low, now.low)) continue;
    unsigned of = 0;
    if (knows(thread, one, of) && !(one.kind & kUnfinished)) continue;
    Seen seen = seen_of(one);
    seen.thread = of;
    seen.name = name_of(one.run, of);
    report_race(address, seen, second());
  }
  shadow_.clear_reads(cell);
  cell.write = now;
  if (is_unordered) cell.write.kind |= kUnordered;
}

void Detector::read(const void* address, std::size_t bytes, Place place, std::uint8_t kind) {
  if (!is_watched(address)) return;
  const unsigned thread = running();
  const bool shared = is_shared(address);
  note_access(thread, address, shared);
  const Reads now{.run = run_,
                  .clock = clocks_[thread].own,
                  .place = place,
                  .lanes = 1u << thread % threads_per_block_ % 32,
                  .warp = static_cast<std::uint16_t>(warp_of(thread)),
                  .kind = kind,
                  .low = low_of(address, bytes)};
  shadow_.visit(address, bytes, [&](Cell& cell, const void* at) { check_read(cell, at, thread, now, shared); });
  if (shared) return;
  if (!open_copies_.empty()) check_copies(address, bytes, seen_of(now));
  count_access(address, bytes, false);
}

void Detector::write(const void* address, std::size_t bytes, Place place, std::uint8_t kind) {
  if (!is_watched(address)) return;
  const unsigned thread = running();
  const bool shared = is_shared(address);
  note_access(thread, address, shared);
  const Write now{.run = run_,
                  .clock = clocks_[thread].own,
                  .place = place,
                  .thread = static_cast<std::uint16_t>(thread),
                  .kind = kind,
                  .low = low_of(address, bytes)};
  shadow_.visit(address, bytes, [&](Cell& cell, const void* at) { check_write(cell, at, now, shared); });
  if (shared) return;
  if (!open_copies_.empty()) check_copies(address, bytes, seen_of(now));
  count_access(address, bytes, true);
}

void Detector::bulk_write(const void* address, std::size_t bytes, Place place, unsigned barrier, std::uint64_t phase) {
  note_access(running(), address, true);
  const Write now{.run = run_,
                  .clock = start_ + static_cast<std::uint32_t>(phase),
                  .place = place,
                  .thread = static_cast<std::uint16_t>(barrier),
                  .kind = kBulkCopy};
  shadow_.visit(address, bytes, [&](Cell& cell, const void* at) {
    check_refill(cell, at, now);
    check_write(cell, at, now, true);
  });
}

void Detector::bulk_read(const void* address, std::size_t bytes, Place place, unsigned barrier, std::uint64_t phase) {
  // What the copy reads has to come before its issue, and it reads until the phase of the barrier ends.
  Reads now{.run = run_,
            .clock = start_ + static_cast<std::uint32_t>(phase),
            .place = place,
            .lanes = 1,
            .warp = static_cast<std::uint16_t>(barrier),
            .kind = kBulkCopy};
  const unsigned thread = running();
  note_access(thread, address, true);
  shadow_.visit(address, bytes, [&](Cell& cell, const void* at) {
    check_read(cell, at, thread, now, true);
    check_fence(cell, at, thread, now);
  });
}

void Detector::check_fence(const Cell& cell, const void* address, unsigned thread, const Reads& now) {
  const Write& write = cell.write;
  if (write.run != run_ || write.kind & kBulkCopy || !knows(thread, write)) return;
  // A fence of the writing thread after the write, of which this thread knows.
  const auto& fences = clocks_[write.thread].proxy_fences;
  const auto fence = std::ranges::lower_bound(fences, write.clock);
  if (fence != fences.end() && known(thread, write.thread) >= *fence) return;
  report(Finding::Kind::proxy, Found::Why::not_fenced, address, seen_of(write), seen_of(now));
}

void Detector::check_refill(const Cell& cell, const void* address, const Write& now) {
  const Write& write = cell.write;
  const unsigned thread = running();
  if (write.run != run_ || write.kind != kPlain || !knows(thread, write)) return;
  const auto& fences = clocks_[write.thread].proxy_fences;
  const auto fence = std::ranges::lower_bound(fences, write.clock);
  if (fence != fences.end() && known(thread, write.thread) >= *fence) return;
  const std::vector<std::uint32_t>& at_fence = clocks_[thread].known_at_fence;
  if (write.thread < at_fence.size() && at_fence[write.thread] >= write.clock) return;
  report(Finding::Kind::proxy, Found::Why::not_fenced, address, seen_of(write), seen_of(now));
}

void Detector::begin_store(const void* address, std::size_t bytes, Place place) {
  const unsigned thread = running();
  const Reads now{.run = run_,
                  .clock = clocks_[thread].own,
                  .place = place,
                  .lanes = 1u << thread % threads_per_block_ % 32,
                  .warp = static_cast<std::uint16_t>(warp_of(thread)),
                  .kind = kUnfinished};
  shadow_.visit(address, bytes, [&](Cell& cell, const void*) { shadow_.add(cell, now); });
}

void Detector::end_store(const void* address, std::size_t bytes) {
  const unsigned thread = running();
  const std::uint32_t lane = 1u << thread % threads_per_block_ % 32;
  shadow_.visit(address, bytes, [&](Cell& cell, const void*) {
    for (std::uint32_t i = cell.reads; i != 0; i = shadow_.reads(i).next) {
      Reads& one = shadow_.reads(i);
      if (one.run != run_ || one.kind != kUnfinished || one.warp != warp_of(thread) || one.lanes != lane) continue;
      one.kind = kPlain;
      one.clock = clocks_[thread].own;
    }
  });
}

void Detector::proxy_read(const KernelThread& thread, const void* address, std::size_t bytes, Place place) {
  const unsigned number = number_of(thread);
  note_access(number, address, true);
  const Reads now{.run = run_,
                  .clock = clocks_[number].own,
                  .place = place,
                  .lanes = 1u << thread.number % 32,
                  .warp = static_cast<std::uint16_t>(warp_of(number))};
  shadow_.visit(address, bytes, [&](Cell& cell, const void* at) {
    check_read(cell, at, number, now, true);
    check_fence(cell, at, number, now);
  });
}

// --- copies in streams ---

void Detector::check_copies(const void* address, std::size_t bytes, const Seen& now) {
  const auto* begin = static_cast<const char*>(address);
  for (const Copied& one : open_copies_) {
    if (begin + bytes <= one.begin || one.begin + one.bytes <= begin || !(one.is_write || now.is_write)) continue;
    const Seen first{.is_write = one.is_write, .kind = kStreamCopy, .place = one.place};
    report(Finding::Kind::race, Found::Why::other_stream, address, first, now);
  }
}

void Detector::report_streams(const void* address, const Seen& first, const Seen& second) {
  const std::pair places(first.place, second.place);
  if (std::ranges::find(told_, places) != told_.end()) return;
  told_.push_back(places);
  Found found;
  found.why = Found::Why::other_stream;
  found.memory = memory_at(address, false);
  found.first = first;
  found.second = second;
  found_.push_back(found);
}

void Detector::check_copy(Cell& cell, const void* address, const Seen& now) {
  const auto is_open = [&](std::uint32_t run) { return run >= first_recent_ && is_unordered(run); };
  if (is_open(cell.write.run)) {
    report_streams(address, {.is_write = true, .place = cell.write.place, .run = cell.write.run}, now);
  }
  for (std::uint32_t i = now.is_write ? cell.reads : 0; i != 0; i = shadow_.reads(i).next) {
    const Reads& one = shadow_.reads(i);
    if (is_open(one.run)) report_streams(address, {.place = one.place, .run = one.run}, now);
  }
}

std::string Detector::copy(const void* to, const void* from, std::size_t bytes, Place place) {
  if (!Streams::instance().are_several()) return "";
  const std::size_t before = found_.size();
  add_work();
  first_recent_ = first_unordered();
  for (const bool is_write : {false, true}) {
    const auto* begin = static_cast<const char*>(is_write ? to : from);
    if (!begin) continue;
    const Seen now{.is_write = is_write, .kind = kStreamCopy, .place = place};
    if (first_recent_ <= run_) {
      shadow_.visit(begin, bytes, [&](Cell& cell, const void* at) { check_copy(cell, at, now); });
    }
    for (const Copied& one : copies_) {
      if (begin + bytes <= one.begin || one.begin + one.bytes <= begin || !(one.is_write || is_write)) continue;
      const bool is_own = one.work.stream == works_.back().stream && one.work.number == works_.back().number;
      if (is_own || covers(order_, one.work.stream, one.work.number)) continue;
      const Seen first{.is_write = one.is_write, .kind = kStreamCopy, .place = one.place};
      report_streams(std::max(begin, one.begin), first, now);
    }
    // What is in no order with an older one of the same bytes and stream is in none with this one.
    const Work& work = works_.back();
    std::erase_if(copies_, [&](const Copied& one) {
      return one.begin == begin && one.bytes == bytes && one.is_write == is_write && one.work.stream == work.stream;
    });
    copies_.push_back({begin, bytes, is_write, work, place});
  }
  if (is_collecting() || found_.size() == before) return "";
  const std::string text = sentence_of(found_[before]) + "\n";
  take();
  return text;
}

bool Detector::was_written(const void* address) {
  bool result = false;
  shadow_.visit(address, 1, [&](Cell& cell, const void*) { result = cell.write.run != 0; });
  return result;
}

std::vector<Found> Detector::take() {
  told_.clear();
  return std::exchange(found_, {});
}

}  // namespace emulator::races
