// What a report of a race says beside both places: names, and what is missing between the two.

#include <algorithm>
#include <bit>
#include <cstdio>
#include <iterator>
#include <ranges>

#include "cluster.hpp"
#include "devices.hpp"
#include "race_detector.hpp"
#include "report.hpp"

namespace emulator::races {
namespace {

constexpr std::size_t kMostFound = 8;

uint3 unflatten(std::uint64_t number, dim3 size) {
  return {static_cast<unsigned>(number % size.x), static_cast<unsigned>(number / size.x % size.y),
          static_cast<unsigned>(number / size.x / size.y)};
}

/// Nothing is watched while this lives.
class Pause {
 public:
  Pause() { set_active(nullptr); }
  ~Pause() { set_active(before_); }
  Pause(const Pause&) = delete;
  Pause& operator=(const Pause&) = delete;

 private:
  Detector* before_ = active();
};

/// The last hand-over of a thread that comes before this value of its clock; nullptr if it is not known.
const Release* last_before(const ThreadClock& clock, std::uint32_t value) {
  const Release* found = nullptr;
  for (unsigned i = 0; i < std::min<std::size_t>(clock.released, std::size(clock.releases)); ++i) {
    const Release& one = clock.releases[i];
    if (one.clock < value && (!found || found->clock < one.clock)) found = &one;
  }
  return found;
}

/// The first hand-over of a thread from this value of its clock on.
const Release* first_after(const ThreadClock& clock, std::uint32_t value) {
  const Release* found = nullptr;
  for (unsigned i = 0; i < std::min<std::size_t>(clock.released, std::size(clock.releases)); ++i) {
    const Release& one = clock.releases[i];
    if (one.clock >= value && (!found || one.clock < found->clock)) found = &one;
  }
  return found;
}

}  // namespace

ThreadName Detector::name_of(std::uint32_t run, unsigned thread) const {
  if (run < first_run_ || run - first_run_ >= cluster_numbers_.size()) return {};
  const Launch& launch = cluster_->launch();
  const dim3 size = launch.cluster;
  const dim3 clusters{launch.grid.x / size.x, launch.grid.y / size.y, launch.grid.z / size.z};
  const uint3 place = unflatten(cluster_numbers_[run - first_run_], clusters);
  const uint3 part = unflatten(thread / threads_per_block_, size);
  const uint3 block{place.x * size.x + part.x, place.y * size.y + part.y, place.z * size.z + part.z};
  return {describe(block), describe(unflatten(thread % threads_per_block_, launch.block))};
}

Seen Detector::seen_of(const Write& write) const {
  Seen seen;
  seen.is_write = true;
  seen.kind = write.kind;
  seen.place = write.place;
  seen.run = write.run;
  seen.clock = write.clock;
  seen.thread = write.thread;
  if (!(write.kind & kBulkCopy)) seen.name = name_of(write.run, write.thread);
  return seen;
}

Seen Detector::seen_of(const Reads& reads) const {
  Seen seen;
  seen.kind = reads.kind;
  seen.place = reads.place;
  seen.run = reads.run;
  seen.clock = reads.clock;
  const unsigned lane = static_cast<unsigned>(std::countr_zero(reads.lanes));
  seen.thread = reads.warp / warps_per_block_ * threads_per_block_ + reads.warp % warps_per_block_ * 32 + lane;
  if (!(reads.kind & kBulkCopy)) seen.name = name_of(reads.run, seen.thread);
  return seen;
}

Memory Detector::memory_at(const void* address, bool shared) const {
  Memory memory;
  memory.address = address;
  if (is_static_shared(address)) {
    memory.variable = shared_variable_at(address);
  } else if (shared) {
    for (unsigned rank = 0; rank < cluster_->size(); ++rank) {
      Block& block = cluster_->block(rank);
      if (!block.dynamic_shared().contains(address, 1)) continue;
      memory.other = "dynamic shared memory at byte " + std::to_string(block.dynamic_shared().offset(address));
      if (cluster_->size() > 1) memory.other += " of block " + describe(block.index());
    }
  } else if (const NamedMemory* named = find_named_memory(address)) {
    memory.named = *named;
  } else {
    memory.other = describe_memory(address);
  }
  return memory;
}

void Detector::report(Finding::Kind kind, Found::Why why, const void* address, const Seen& first, const Seen& second) {
  // What this function calls may itself be instrumented.
  const Pause pause;
  // Host memory is no stream's: it may have been freed and come again.
  if (kind == Finding::Kind::race && is_of_other_stream(first) && !is_device_memory(address)) return;
  const std::pair places(first.place, second.place);
  if (found_.size() >= kMostFound || std::ranges::find(told_, places) != told_.end()) return;
  told_.push_back(places);
  const bool shared = is_shared(address);
  Found found;
  found.kind = kind;
  found.why = why;
  found.memory = memory_at(address, shared);
  found.first = first;
  found.second = second;
  found.is_shared = shared;
  found.barrier_line = Block::current()->thread().barrier_line;
  found.is_warps_barrier = Block::current()->thread().is_warps_barrier;
  if (kind == Finding::Kind::race) explain(found);
  found_.push_back(found);
  if (is_collecting()) return;
  const Block& block = *Block::current();
  cluster_->fail(sentence_of(found) + "\n  kernel launched at " + describe(block.launch().where) + "\n");
}

bool Detector::is_of_other_stream(const Seen& seen) const {
  if (seen.kind & kStreamCopy) return true;
  return !(seen.kind & kBulkCopy) && seen.run < first_run_ && !(previous_ && seen.run >= previous_->first_run);
}

void Detector::report_race(const void* address, const Seen& first, const Seen& second) {
  report(Finding::Kind::race, Found::Why::no_barrier, address, first, second);
}

void Detector::explain(Found& found) const {
  const auto says = [&](Found::Why why, Place hint = 0, const void* flag = nullptr) {
    found.why = why;
    found.hint = hint;
    if (flag) found.hint_memory = memory_at(flag, false);
  };
  const Seen& first = found.first;
  const Seen& second = found.second;
  if (first.kind & kUnordered) return says(Found::Why::copies_race);
  if (first.kind & (kUnfinished | kBulkCopy)) return says(Found::Why::copy_under_way);
  if (!found.is_shared && (first.kind ^ second.kind) & kAtomic && !((first.kind | second.kind) & kUpdate)) {
    return says(Found::Why::plain_access);
  }
  const ThreadClock& clock = clocks_[second.thread];
  if (is_of_other_stream(first)) return says(Found::Why::other_stream);
  if (first.run < first_run_) return says(Found::Why::early_start);
  const bool is_of_this_run = first.run == second.run;
  const bool uses_flags =
      clock.unreleased.run == first.run || std::ranges::any_of(flag_releases_, [&](const FlagRelease& one) {
        return one.run == first.run && one.thread == first.thread;
      });
  // Warps of a block may order what they do in global memory by flags, too.
  if (!is_of_this_run || (!found.is_shared && uses_flags)) {
    if (is_of_this_run) {
      for (const FlagRelease& release : std::views::reverse(flag_releases_)) {
        if (release.run != run_ || release.thread != first.thread || release.clock >= first.clock) continue;
        if (release.clock > known(second.thread, first.thread)) continue;
        return says(Found::Why::announced_before, release.place, release.flag);
      }
    } else if (const Message* message = find_newest(clock.others.messages, first.run, first.thread);
               message && message->clock < first.clock) {
      return says(Found::Why::announced_before, message->place, message->flag);
    }
    if (clock.unreleased.place != 0 && clock.unreleased.run == first.run) {
      return says(Found::Why::not_released, clock.unreleased.place, clock.unreleased.flag);
    }
    if (clock.unacquired.place != 0 && clock.unacquired.run == first.run) {
      return says(Found::Why::load_relaxed, clock.unacquired.place, clock.unacquired.flag);
    }
    for (const FlagRelease& release : flag_releases_) {
      if (release.run == first.run && release.thread == first.thread && release.clock >= first.clock) {
        return says(Found::Why::not_acquired, release.place, release.flag);
      }
    }
    if (!is_of_this_run) return says(Found::Why::no_order);
  }
  if (first.thread / threads_per_block_ != second.thread / threads_per_block_) says(Found::Why::no_order);
  const std::uint32_t value = known(second.thread, first.thread);
  const ThreadClock& other = clocks_[first.thread];
  const Release* before = last_before(other, first.clock);
  if (before && !before->is_barrier && value >= before->clock) return says(Found::Why::release_before, before->place);
  const Release* after = first_after(other, first.clock);
  if (after && !after->is_barrier) return says(Found::Why::not_awaited, after->place);
}

}  // namespace emulator::races
