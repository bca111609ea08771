#pragma once
/// @file
/// Looks for races in the launch that runs: see include/emulator/races.hpp. In a launch that it watches one OS thread
/// runs all blocks.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <source_location>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emulator/races.hpp"
#include "emulator/runtime_error.hpp"
#include "race_clocks.hpp"
#include "race_report.hpp"
#include "race_shadow.hpp"
#include "race_streams.hpp"
#include "skipped_barrier.hpp"

namespace emulator {

class Block;
class Cluster;
struct KernelThread;

namespace races {

/// What an atomic operation does beside its access.
struct Order {
  bool acquires = false;
  bool releases = false;
};

/// The detector of the process.
class Detector {
 public:
  static Detector& instance();

  /// One launch or copy at a time.
  std::mutex& mutex() { return mutex_; }
  /// What the stream that runs has done or waited for comes before all that follows; with `starts_early` not all that its
  /// last launch has done, if that one has called let_next_launch_start().
  void begin_launch(bool starts_early);
  /// A copy in the stream that runs. @param from nullptr if it does not read device memory @param to likewise
  /// @return a sentence about two accesses that nothing orders; empty if there are none, or if it is kept
  std::string copy(const void* to, const void* from, std::size_t bytes, Place place);
  /// A cluster of that launch runs from now on. @param number in the grid
  void begin_cluster(Cluster& cluster, std::uint64_t number);

  // What the thread that runs does.
  void read(const void* address, std::size_t bytes, Place place, std::uint8_t kind = kPlain);
  void write(const void* address, std::size_t bytes, Place place, std::uint8_t kind = kPlain);
  void load_flag(const void* address, std::size_t bytes, Place place, Order order);
  void store_flag(const void* address, std::size_t bytes, Place place, Order order);
  void update_flag(const void* address, std::size_t bytes, Place place, Order order);
  void fence(Place place);
  void fence_proxy(std::source_location where);
  void let_next_launch_start() { lets_next_start_ = true; }
  void wait_for_previous_launch();
  /// Something else than a kernel has run.
  void end_overlap() { lets_next_start_ = false; }
  /// Hands over what the thread knows.
  void release(VectorClock& clock, std::source_location where);
  void acquire(const VectorClock& clock, std::source_location where);
  /// A load that an mbarrier counts; a number stands for the barrier.
  void bulk_write(const void* address, std::size_t bytes, Place place, unsigned barrier, std::uint64_t phase);
  /// The source of a copy between blocks that an mbarrier counts.
  void bulk_read(const void* address, std::size_t bytes, Place place, unsigned barrier, std::uint64_t phase);

  /// A bulk store of the thread that runs reads this from its issue to the wait.
  void begin_store(const void* address, std::size_t bytes, Place place);
  void end_store(const void* address, std::size_t bytes);

  // What copies, products and barriers do.
  /// A read through the async proxy on behalf of this thread.
  void proxy_read(const KernelThread& thread, const void* address, std::size_t bytes, Place place);
  /// A number for a barrier in shared memory.
  unsigned add_barrier() { return barriers_++; }
  /// The phase of the barrier has ended: its loads are part of what `clock` hands over.
  void end_phase(VectorClock& clock, unsigned barrier, std::uint64_t phase);
  /// All threads of the block have come.
  void meet_block(const Block& block, std::source_location where);
  /// These lanes of the warp that starts at thread `first` have come.
  void meet_warp(const Block& block, unsigned first, std::uint32_t lanes, std::source_location where);

  /// Nothing is known of these bytes any more: they may be used for something else.
  void forget(const void* address, std::size_t bytes) { shadow_.forget(address, bytes); }
  bool was_written(const void* address);
  /// What was found since the last call.
  std::vector<Found> take();

 private:
  /// What atomic operations have released at an address.
  struct Flag {
    Messages messages;
    Place relaxed_store = 0;  ///< the last store, if it released nothing
    std::uint32_t run = 0;    ///< the cluster that has made it
  };
  /// A release at a flag, for reports.
  struct FlagRelease {
    std::uint32_t run;
    unsigned thread;
    std::uint32_t clock;
    Place place;
    const void* flag;
  };

  /// A launch or a copy.
  struct Work {
    std::uint32_t first_run;  ///< of a copy: that of the launch after it
    unsigned stream;
    std::uint32_t number;  ///< in the stream
  };
  /// What a copy has read or written.
  struct Copied {
    const char* begin;
    std::size_t bytes;
    bool is_write;
    Work work;
    Place place;
  };

  /// Adds what begins now to the stream that runs.
  void add_work();
  /// The first run that may be in no order with it.
  std::uint32_t first_unordered() const;
  /// Whether the launch of an earlier run is in no order with what runs.
  bool is_unordered(std::uint32_t run) const;
  /// Looks for copies of other streams into or out of this memory.
  void check_copies(const void* address, std::size_t bytes, const Seen& now);
  /// Of a copy: whether it races with what kernels have done.
  void check_copy(Cell& cell, const void* address, const Seen& now);
  void report_streams(const void* address, const Seen& first, const Seen& second);

  /// The fault that EMULATOR_SKIP_BARRIER asks for at this place: none or another one than to skip it.
  SkippedBarrier::Fault fault_at(std::source_location where) const;
  unsigned running() const;
  unsigned number_of(const KernelThread& thread) const;
  /// For EMULATOR_SKIP_BARRIER: when the thread has accessed something last.
  void note_access(unsigned thread, const void* address, bool shared);
  bool is_static_shared(const void* address) const;
  bool is_watched(const void* address) const;
  bool is_shared(const void* address) const;
  void check_read(Cell& cell, const void* address, unsigned thread, const Reads& now, bool shared);
  /// A read through the async proxy, of what a thread has written: whether it has called fence_async_proxy().
  void check_fence(const Cell& cell, const void* address, unsigned thread, const Reads& now);
  /// A bulk load over what a thread has stored: whether that one or the one that loads has called fence_async_proxy().
  void check_refill(const Cell& cell, const void* address, const Write& now);
  void check_write(Cell& cell, const void* address, const Write& now, bool shared);
  /// Whether an access of this cluster may be in no order with what runs. Shared memory lives as long as a cluster.
  bool is_recent(std::uint32_t run, bool shared) const {
    if (shared) return run == run_;
    return run >= first_recent_ && (run >= first_run_ || is_unordered(run));
  }
  /// Up to which clock a thread knows another one of its cluster.
  std::uint32_t known(unsigned thread, unsigned of) const;
  bool knows(unsigned thread, std::uint32_t run, unsigned of, std::uint32_t clock) const;
  bool knows(unsigned thread, const Write& write) const;
  bool knows_phase(unsigned thread, unsigned barrier, std::uint32_t clock) const;
  /// Whether a thread knows all of the reads; if not, `of` is one that has read unknown to it.
  bool knows(unsigned thread, const Reads& reads, unsigned& of) const;
  /// Reads and writes of memory with a name, where nothing has.
  void check_written(const Cell& cell, const void* address, const Reads& now, bool shared);
  /// Adds all that a thread knows, and its own clock. @param is_early but not what it has done since its last hand-over
  void add_knowledge(VectorClock& clock, unsigned thread, bool is_early = false) const;
  /// A release of the thread that runs.
  std::shared_ptr<const Message> make_message(const void* flag, Place place) const;
  void acquire(const Messages& messages);
  /// The number of the warp of a thread in the cluster.
  unsigned warp_of(unsigned thread) const;

  // Reports, in race_explain.cpp.
  Seen seen_of(const Write& write) const;
  Seen seen_of(const Reads& reads) const;
  /// Of an access before the one at hand: whether it is that of a copy, or of a launch of another stream.
  bool is_of_other_stream(const Seen& seen) const;
  void report_race(const void* address, const Seen& first, const Seen& second);
  void report(Finding::Kind kind, Found::Why why, const void* address, const Seen& first, const Seen& second);
  void explain(Found& found) const;
  ThreadName name_of(std::uint32_t run, unsigned thread) const;
  Memory memory_at(const void* address, bool shared) const;

  Shadow shadow_;
  Cluster* cluster_ = nullptr;
  std::vector<ThreadClock> clocks_;
  unsigned threads_per_block_ = 1;
  unsigned warps_per_block_ = 1;
  unsigned barriers_ = 0;
  std::uint32_t run_ = 0;
  std::uint32_t first_run_ = 1;     ///< of the launch
  std::uint32_t first_recent_ = 1;  ///< that may be under way with it: of other streams, or of the launch before
  std::optional<Work> previous_;    ///< the launch before, if this one starts early
  StreamClock order_;               ///< what comes before this launch or copy
  std::vector<Work> works_;
  std::vector<std::vector<std::uint32_t>> first_runs_;  ///< of each work, by stream and number - 1
  std::vector<Copied> copies_;                          ///< that something may be in no order with
  std::vector<Copied> open_copies_;                     ///< with which the launch is in no order
  std::mutex mutex_;
  bool lets_next_start_ = false;  ///< the launch
  std::uint32_t start_ = 1;       ///< of the clocks of this cluster, and of the phases of its barriers
  std::uint32_t next_start_ = 1;  ///< after the last phase
  bool finds_unwritten_ = false;
  std::unordered_map<const void*, Flag> flags_;
  std::vector<FlagRelease> flag_releases_;      ///< since the launch began
  std::vector<std::uint64_t> cluster_numbers_;  ///< of the launch, in the order in which they run
  std::vector<Found> found_;
  std::vector<std::pair<Place, Place>> told_;
  const char* statics_ = nullptr;  ///< the __shared__ variables of this OS thread
  std::size_t static_bytes_ = 0;
  const char* thread_locals_ = nullptr;  ///< among them these
  std::size_t thread_local_bytes_ = 0;
};

/// Whether launches are watched. @throws std::invalid_argument if EMULATOR_RACES makes no sense here
bool is_wanted();
/// Whether what is found is kept for take_findings().
bool is_collecting();
/// Counts an access of memory with a name.
void count_access(const void* address, std::size_t bytes, bool is_write);
/// Tells of a copy in the stream that runs; nullptr for what is not device memory. @param return_address of the call
/// @return cudaErrorLaunchFailure if it races and the report is printed
cudaError_t note_copy(const void* to, const void* from, std::size_t bytes, const void* return_address);
/// The detector while a kernel runs that it watches; nullptr otherwise, and on other OS threads.
Detector* active();
/// From now on, and until it is called with nullptr, this OS thread runs a kernel that is watched.
void set_active(Detector* detector);

}  // namespace races
}  // namespace emulator
