#include "race_clocks.hpp"

#include <algorithm>
#include <iterator>
#include <unordered_set>
#include <utility>

namespace emulator::races {
namespace {

void raise(std::vector<std::uint32_t>& to, const std::vector<std::uint32_t>& from) {
  if (to.size() < from.size()) to.resize(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) to[i] = std::max(to[i], from[i]);
}

/// Calls visit(message) for each message and those that it brings along, until one call returns true.
template <class Visit>
const Message* search(const Messages& messages, Visit visit) {
  if (messages.empty()) return nullptr;
  std::vector<const Message*> left;
  std::unordered_set<const Message*> seen;
  const auto push = [&](const Messages& more) {
    for (const auto& one : more) {
      if (seen.insert(one.get()).second) left.push_back(one.get());
    }
  };
  push(messages);
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (visit(*left[i])) return left[i];
    push(left[i]->knowledge.messages);
  }
  return nullptr;
}

}  // namespace

void VectorClock::join(const VectorClock& other) {
  raise(threads, other.threads);
  raise(barriers, other.barriers);
  add(messages, other.messages);
  has_previous = has_previous || other.has_previous;
}

void add(Messages& messages, const Messages& more) {
  for (const auto& one : more) {
    if (std::ranges::find(messages, one) == messages.end()) messages.push_back(one);
  }
}

const Message* find(const Messages& messages, std::uint32_t run, unsigned thread, std::uint32_t clock) {
  return search(messages, [=](const Message& message) {
    const auto& threads = message.knowledge.threads;
    return message.run == run && thread < threads.size() && threads[thread] >= clock;
  });
}

const Message* find_newest(const Messages& messages, std::uint32_t run, unsigned thread) {
  const Message* newest = nullptr;
  search(messages, [&](const Message& message) {
    if (message.run == run && message.thread == thread && (!newest || newest->clock < message.clock)) newest = &message;
    return false;
  });
  return newest;
}

void ThreadClock::reset(std::uint32_t start) {
  own = start;
  block_floor = warp_floor = 0;
  others.threads.clear();
  others.barriers.clear();
  others.messages.clear();
  others.has_previous = false;
  deferred = {};
  deferred_since = last_access = last_shared_access = 0;
  proxy_fences.clear();
  known_at_fence.clear();
  has_late_fence = false;
  released = 0;
  fenced.reset();
  unfenced.clear();
  unreleased = unacquired = {};
}

void ThreadClock::learn() {
  if (deferred_since == 0 || last_shared_access < deferred_since) return;
  others.join(deferred);
  deferred = {};
  deferred_since = 0;
}

void ThreadClock::defer(const VectorClock& what) {
  deferred.join(what);
  deferred_since = own;
}

std::uint32_t ThreadClock::before_access() const {
  const std::uint32_t last = last_shared_access != 0 ? last_shared_access : last_access;
  return last != 0 ? last - 1 : own;
}

void ThreadClock::tick(Place place, bool is_barrier) {
  releases[released++ % std::size(releases)] = {own, place, is_barrier};
  ++own;
  if (std::exchange(has_late_fence, false)) proxy_fences.push_back(own++);
}

}  // namespace emulator::races
