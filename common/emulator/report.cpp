#include "report.hpp"

#include <cstdio>
#include <mutex>

#include "cluster.hpp"
#include "emulator/launch.hpp"

namespace emulator {
namespace {

std::mutex report_mutex;
std::string last;

/// Threads that do the same.
struct Alike {
  const KernelThread* example;
  unsigned count = 0;
  std::vector<std::pair<unsigned, unsigned>> ranges;  // first and last

  void add(unsigned thread) {
    ++count;
    if (!ranges.empty() && ranges.back().second + 1 == thread) {
      ranges.back().second = thread;
    } else {
      ranges.emplace_back(thread, thread);
    }
  }
};

/// "threads 0-31, 64"
std::string describe_threads(const Alike& group) {
  constexpr std::size_t kMostRanges = 8;
  std::string text = group.count == 1 ? "thread" : "threads";
  const char* separator = " ";
  unsigned left = group.count;
  for (std::size_t i = 0; i < group.ranges.size(); ++i) {
    const auto [first, final] = group.ranges[i];
    if (i == kMostRanges) return text + " and " + std::to_string(left) + " more";
    text += separator + std::to_string(first);
    if (final > first) text += "-" + std::to_string(final);
    separator = ", ";
    left -= final - first + 1;
  }
  return text;
}

bool same_doing(const KernelThread& a, const KernelThread& b) {
  if (a.state != b.state) return false;
  if (a.state == KernelThread::State::returned) return true;
  if (describe(a.where) != describe(b.where) || a.on != b.on) return false;
  return a.state != KernelThread::State::in_collective || a.mask == b.mask;
}

/// "3 arrivals"
std::string describe_arrivals(unsigned count) {
  return std::to_string(count) + (count == 1 ? " arrival" : " arrivals");
}

/// "3 arrivals, 16384 bytes missing": why the current phase does not end.
std::string describe_missing(const MBarrier& barrier) {
  const std::string text = describe_arrivals(barrier.arrivals_left);
  if (barrier.bytes_left < 0) return text + " missing, " + std::to_string(-barrier.bytes_left) + " bytes too many";
  return text + ", " + std::to_string(barrier.bytes_left) + " bytes missing";
}

std::string line_of(const Block& block, const Alike& group) {
  const bool one = group.count == 1;
  const std::string waits = one ? " waits" : " wait";
  const KernelThread& example = *group.example;
  const std::string line = "  " + describe_threads(group);
  switch (example.state) {
    case KernelThread::State::returned:
      return line + (one ? " has" : " have") + " returned from the kernel\n";
    case KernelThread::State::at_barrier:
      return line + waits + " at the barrier " + describe(example.where) + "\n";
    case KernelThread::State::at_cluster_barrier:
      return line + waits + " at the cluster's barrier " + describe(example.where) + "; " +
             describe_arrivals(block.cluster().barrier().missing()) + " missing\n";
    case KernelThread::State::at_mbarrier: {
      const auto& barrier = *static_cast<const MBarrier*>(example.on);
      return line + waits + " at " + describe(example.where) + " for parity " + std::to_string(barrier.parity()) +
             "; " + describe_missing(barrier) + "\n";
    }
    case KernelThread::State::at_named_barrier: {
      const auto& barrier = *static_cast<const NamedBarrier*>(example.on);
      return line + waits + " at named barrier " + std::to_string(block.named_barriers().id(barrier)) + ", " +
             describe(example.where) + "; " + std::to_string(barrier.threads - barrier.arrived) + " of its " +
             std::to_string(barrier.threads) + " threads are missing\n";
    }
    case KernelThread::State::at_registers:
      return line + waits + " for registers at " + describe(example.where) + "; " +
             std::to_string(static_cast<const RegisterPool*>(example.on)->free()) + " per thread and warp are free\n";
    case KernelThread::State::in_collective:
      break;
    case KernelThread::State::ready:
      return line + " could go on\n";
  }
  char mask[16];
  std::snprintf(mask, sizeof mask, "0x%08X", example.mask);
  return line + waits + " for the lanes " + mask + " at " + describe(example.where) + "\n";
}

/// What the threads of a block do.
std::string lines_of(const Block& block) {
  std::vector<Alike> groups;
  for (const KernelThread& thread : block.threads()) {
    std::size_t i = 0;
    while (i < groups.size() && !same_doing(*groups[i].example, thread)) ++i;
    if (i == groups.size()) groups.push_back({.example = &thread, .count = 0, .ranges = {}});
    groups[i].add(thread.number);
  }
  std::string text;
  for (const Alike& group : groups) text += line_of(block, group);
  return text;
}

}  // namespace

std::string describe(uint3 index) {
  return "(" + std::to_string(index.x) + "," + std::to_string(index.y) + "," + std::to_string(index.z) + ")";
}

std::string describe(const std::source_location& where) {
  return std::string(where.file_name()) + ":" + std::to_string(where.line()) + " in " + where.function_name();
}

std::string describe_stuck(const Cluster& cluster) {
  std::string text;
  for (unsigned rank = 0; rank < cluster.size(); ++rank) {
    const Block& block = cluster.block(rank);
    if (block.has_ended()) {
      text += "block " + describe(block.index()) + " has ended\n";
    } else {
      text += "block " + describe(block.index()) + " is stuck, some of its " + std::to_string(block.threads().size()) +
              " threads wait for others that never come\n";
      text += lines_of(block);
    }
  }
  return text + "  kernel launched at " + describe(cluster.block(0).launch().where) + "\n";
}

std::string describe_trap(const KernelThread& thread, const std::string& what, const std::source_location& where) {
  return what + " at " + describe(where) + "\n  block " + describe(thread.block->index()) + ", thread " +
         describe(thread.index) + "; kernel launched at " + describe(thread.block->launch().where) + "\n";
}

void report(const std::string& text) {
  std::fprintf(stderr, "emulator: %s", text.c_str());
  const std::lock_guard lock(report_mutex);
  last = text;
}

std::string last_report() {
  const std::lock_guard lock(report_mutex);
  return last;
}

}  // namespace emulator
