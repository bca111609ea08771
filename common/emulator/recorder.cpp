#include "recorder.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>

#include "cluster.hpp"
#include "device_model.hpp"
#include "emulator/trace.hpp"
#include "environment.hpp"
#include "latencies.hpp"
#include "sanitizer.hpp"

namespace emulator {

namespace trace = tutorial::trace;

Recorder* Recorder::active_ = nullptr;

namespace {

/// That of begin_trace(), and that of the environment.
std::unique_ptr<Recorder> asked, of_environment;

std::array<std::uint32_t, 3> three(dim3 size) {
  return {size.x, size.y, size.z};
}

}  // namespace

Recorder* Recorder::wanted() {
  const char* file = std::getenv("EMULATOR_TRACE");
  if (asked) return asked.get();
  if (!file) return nullptr;
  if (!of_environment) {
    of_environment = std::make_unique<Recorder>(trace_blocks_from_environment());
    of_environment->keep_one_in(file);
  }
  return of_environment->has_stuck_ ? nullptr : of_environment.get();
}

Recorder::Recorder(std::uint64_t blocks) : blocks_(blocks) {
  trace_.clock = "logical";
  trace_.device = latencies::kSource;
}

std::uint32_t Recorder::place_of(std::source_location where) {
  const auto [found, is_new] =
      places_.try_emplace({where.file_name(), where.line()}, static_cast<std::uint32_t>(trace_.places.size()));
  if (is_new) trace_.places.push_back({.file = where.file_name(), .hash = 0, .line = where.line()});
  return found->second;
}

void Recorder::begin_launch(const Launch& launch) {
  active_ = this;
  if (!file_.empty()) {  // one launch at a time
    trace_.places.clear();
    trace_.launches.clear();
    trace_.blocks.clear();
    places_.clear();
  }
  start_ = launch.starts_early && let_next_ > 0 ? let_next_ : end_ + (end_ > 0 ? latencies::kLaunch : 0);
  previous_end_ = end_;
  let_next_ = 0;
  end_ = start_;
  trace_.launches.push_back({.place = place_of(launch.where),
                             .grid = three(launch.grid),
                             .block = three(launch.block),
                             .cluster = three(launch.cluster),
                             .starts_early = launch.starts_early});
}

void Recorder::end_launch(const std::string& failure) {
  active_ = nullptr;
  if (!failure.empty() && trace_.stuck.empty()) trace_.stuck = failure;
  if (file_.empty()) return;
  has_stuck_ = !failure.empty();
  if (!has_stuck_ && end_ - start_ <= kept_clocks_) return;
  kept_clocks_ = end_ - start_;
  try {
    trace::write(trace_, file_);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "emulator: EMULATOR_TRACE: %s\n", error.what());
  }
}

Recorder::Recorded* Recorder::recorded(const Block& block) {
  const auto found = running_.find(&block);
  return found == running_.end() ? nullptr : &found->second;
}

void Recorder::begin_cluster(Cluster& cluster) {
  running_.clear();
  copied_.clear();
  const dim3 grid = cluster.launch().grid;
  for (unsigned rank = 0; rank < cluster.size(); ++rank) {
    Block& block = cluster.block(rank);
    for (KernelThread& thread : block.threads()) thread.clock = start_;
    const uint3 index = block.index();
    const std::uint64_t number = (std::uint64_t{index.z} * grid.y + index.y) * grid.x + index.x;
    if (number < blocks_) running_[&block];
  }
}

void Recorder::end_cluster(Cluster& cluster) {
  using State = KernelThread::State;
  for (unsigned rank = 0; rank < cluster.size(); ++rank) {
    Block& block = cluster.block(rank);
    for (KernelThread& thread : block.threads()) {
      end_ = std::max(end_, thread.clock);
      Kind kind = Kind::none;
      Details details{.object = thread.on};
      switch (thread.state) {
        case State::ready:
        case State::returned:
          continue;
        case State::at_barrier:
          kind = Kind::block_wait;
          details.object = nullptr;
          break;
        case State::at_cluster_barrier:
          kind = Kind::cluster_wait;
          details.object = nullptr;
          break;
        case State::at_mbarrier: {
          const auto& barrier = *static_cast<const MBarrier*>(thread.on);
          kind = Kind::wait;
          details = {.object = barrier.address, .phase = static_cast<std::int64_t>(barrier.phase)};
          break;
        }
        case State::at_named_barrier:
          kind = Kind::named_wait;
          details = {.number = block.named_barriers().id(*static_cast<const NamedBarrier*>(thread.on))};
          break;
        case State::at_registers:
          kind = Kind::registers;
          details = {.value = static_cast<std::int64_t>(block.registers().of_warp(thread.number / 32))};
          break;
        case State::in_collective:
          kind = Kind::collective;
          details.object = nullptr;
          break;
      }
      note_until(thread, kind, thread.where, thread.clock, trace::Event::kNever, details);
    }
    if (Recorded* of_block = recorded(block)) {
      const uint3 index = block.index();
      trace_.blocks.push_back({.index = {index.x, index.y, index.z},
                               .launch = static_cast<int>(trace_.launches.size()) - 1,
                               .shift = 0,
                               .events = std::move(of_block->events)});
    }
  }
  running_.clear();
}

void Recorder::note(KernelThread& thread, Kind kind, std::source_location where, std::int64_t begin,
                    const Details& details) {
  thread.clock += latencies::kStep;
  note_until(thread, kind, where, begin, thread.clock, details);
}

void Recorder::note_until(KernelThread& thread, Kind kind, std::source_location where, std::int64_t begin,
                          std::int64_t end, const Details& details) {
  const sanitizer::Unwatched unwatched;
  Recorded* of_block = recorded(*thread.block);
  if (!of_block) return;
  const Block& of = details.of ? *details.of : *thread.block;
  trace::Event event{.warp = thread.number / 32,
                     .kind = kind,
                     .place = place_of(where),
                     .begin = begin,
                     .end = end,
                     .object = details.number,
                     .phase = details.phase,
                     .value = details.value,
                     .peer = &of == thread.block ? -1 : static_cast<int>(of.rank())};
  if (details.object) {
    DynamicSharedMemory& dynamic = const_cast<Block&>(of).dynamic_shared();
    // Static arrays lie behind, wherever they are.
    event.object = dynamic.contains(details.object, 1)
                       ? dynamic.offset(details.object)
                       : (reinterpret_cast<std::uintptr_t>(details.object) & 0xFFFFFFu) + (1u << 24);
  }
  const unsigned time = of_block->times[{thread.number, kind, event.place, event.object}]++;
  const auto [found, is_new] =
      of_block->by_key.try_emplace({event.warp, kind, event.place, event.object, time}, of_block->events.size());
  if (is_new) {
    of_block->events.push_back(event);
    return;
  }
  // Another lane of the warp has been here: the last one to come makes the warp wait, or go on.
  trace::Event& known = of_block->events[found->second];
  known.begin = std::max(known.begin, begin);
  if (known.end != trace::Event::kNever) known.end = end == trace::Event::kNever ? end : std::max(known.end, end);
}

std::int64_t Recorder::arrival_of_load(const KernelThread& thread, std::size_t bytes, bool is_push) {
  std::int64_t& last = copied_[thread.block];
  const std::int64_t transfer = is_push ? latencies::push_transfer(bytes) : latencies::transfer(bytes);
  return last = std::max(thread.clock + (is_push ? latencies::kPush : latencies::kLoad), last) + transfer;
}

void Recorder::let_next_start(KernelThread& thread, std::source_location where) {
  let_next_ = std::max(let_next_, thread.clock);
  note(thread, Kind::next_kernel, where, thread.clock);
}

void Recorder::wait_for_previous(KernelThread& thread, std::source_location where) {
  const std::int64_t begin = thread.clock;
  thread.clock = std::max(thread.clock, previous_end_);
  note(thread, Kind::previous_kernel, where, begin);
}

trace::Trace Recorder::take() {
  return std::move(trace_);
}

void begin_trace(std::uint64_t blocks) {
  asked = std::make_unique<Recorder>(blocks);
}

trace::Trace end_trace() {
  trace::Trace result = asked->take();
  asked.reset();
  return result;
}

}  // namespace emulator
