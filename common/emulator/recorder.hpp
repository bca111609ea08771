#pragma once
/// @file
/// Writes down what the warps of a launch do (include/emulator/trace.hpp), and keeps the logical clocks of its threads: a
/// wait ends when the last of those that it waits for has come, or at once if it came later than they.

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <source_location>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "common/trace/trace.hpp"

namespace emulator {

class Block;
class Cluster;
struct KernelThread;
struct Launch;

/// The logical clock of something that phases of a barrier alternate between: the latest arrival at each.
using PhaseClocks = std::array<std::int64_t, 2>;

/// When the groups of a thread's copies, or of a warp's products, are done.
class GroupClocks {
 public:
  /// One more, which ends then, in the group that is open.
  void add(std::int64_t end) { open_ = std::max(open_, end); }
  /// Closes the group.
  void commit() {
    closed_.push_back(open_);
    open_ = 0;
  }
  /// When all but the `pending` newest groups are done.
  std::int64_t end_of_all_but(unsigned pending) const {
    std::int64_t end = 0;
    for (std::size_t i = 0; i + pending < closed_.size(); ++i) end = std::max(end, closed_[i]);
    return end;
  }
  void reset() {
    open_ = 0;
    closed_.clear();
  }

 private:
  std::int64_t open_ = 0;
  std::vector<std::int64_t> closed_;
};

/// The recorder of the launch that runs.
class Recorder {
 public:
  using Kind = tutorial::trace::Kind;

  /// Of the launch that runs; nullptr if it is not traced.
  static Recorder* active() { return active_; }
  /// The one that is to trace the launches to come; nullptr if none is. @throws std::invalid_argument for a number of
  /// blocks in the environment that makes no sense
  static Recorder* wanted();

  /// @param blocks of a launch that are written down
  explicit Recorder(std::uint64_t blocks);

  void begin_launch(const Launch& launch);
  /// @param failure the report of what went wrong, or nothing
  void end_launch(const std::string& failure);
  void begin_cluster(Cluster& cluster);
  /// Threads that have not returned wait forever.
  void end_cluster(Cluster& cluster);
  tutorial::trace::Trace take();
  /// Keeps one launch in a file, in place of all of them.
  void keep_one_in(std::string file) { file_ = std::move(file); }

  /// Details of an event.
  struct Details {
    const void* object = nullptr;  ///< a barrier's address, in shared memory of the block `of`, or ...
    std::uint64_t number = 0;      ///< ... its number
    std::int64_t phase = -1;
    std::int64_t value = 0;
    const Block* of = nullptr;
  };
  /// An event of the thread, which lasts from `begin` to the thread's clock.
  void note(KernelThread& thread, Kind kind, std::source_location where, std::int64_t begin, const Details& details);
  void note(KernelThread& thread, Kind kind, std::source_location where, std::int64_t begin) {
    note(thread, kind, where, begin, Details{});
  }
  /// The same, which ends at another time.
  void note_until(KernelThread& thread, Kind kind, std::source_location where, std::int64_t begin, std::int64_t end,
                  const Details& details);

  /// When a copy of so many bytes that the thread issues now arrives: copies of a block come one after the other.
  std::int64_t arrival_of_load(const KernelThread& thread, std::size_t bytes, bool is_push);

  // Early starts.
  void let_next_start(KernelThread& thread, std::source_location where);
  void wait_for_previous(KernelThread& thread, std::source_location where);

 private:
  /// What makes an event of one lane the same as that of another lane.
  using Key = std::tuple<std::uint32_t, Kind, std::uint32_t, std::uint64_t, unsigned>;  // warp, place, which time
  struct Recorded {
    std::vector<tutorial::trace::Event> events;
    std::map<Key, std::size_t> by_key;
    std::map<std::tuple<unsigned, Kind, std::uint32_t, std::uint64_t>, unsigned> times;  ///< by thread
  };

  std::uint32_t place_of(std::source_location where);
  /// What is written down of a block; nullptr if nothing is.
  Recorded* recorded(const Block& block);

  static Recorder* active_;

  std::uint64_t blocks_;
  std::string file_;
  tutorial::trace::Trace trace_;
  std::map<std::pair<std::string, std::uint32_t>, std::uint32_t> places_;
  std::map<const Block*, Recorded> running_;     ///< the blocks of the cluster
  std::map<const Block*, std::int64_t> copied_;  ///< when the last copy to each of them arrives
  std::int64_t start_ = 0;                       ///< of the launch
  std::int64_t end_ = 0;                         ///< of what has run of the launch
  std::int64_t previous_end_ = 0;                ///< of the launch before
  std::int64_t let_next_ = 0;      ///< when the last of its blocks has let the next launch start; 0 if none has
  std::int64_t kept_clocks_ = -1;  ///< what the launch in file_ took
  bool has_stuck_ = false;         ///< the launch in file_: no other one is of interest any more
};

}  // namespace emulator
