#include "race_streams.hpp"

#include <algorithm>

namespace emulator::races {
namespace {

thread_local unsigned current_stream = 0;

void join(StreamClock& to, const StreamClock& from) {
  if (to.size() < from.size()) to.resize(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) to[i] = std::max(to[i], from[i]);
}

}  // namespace

Streams& Streams::instance() {
  static Streams streams;
  return streams;
}

unsigned Streams::add_locked(int device, bool waits_for_default) {
  streams_.push_back({device, waits_for_default, {}});
  return static_cast<unsigned>(streams_.size() - 1);
}

unsigned Streams::default_of_locked(int device) {
  const auto found = defaults_.find(device);
  return found != defaults_.end() ? found->second : defaults_[device] = add_locked(device, false);
}

unsigned Streams::add(int device, bool waits_for_default) {
  const std::lock_guard lock(mutex_);
  return add_locked(device, waits_for_default);
}

unsigned Streams::default_of(int device) {
  const std::lock_guard lock(mutex_);
  return default_of_locked(device);
}

bool Streams::are_several() {
  const std::lock_guard lock(mutex_);
  return streams_.size() > 1;
}

const StreamClock& Streams::updated(unsigned stream) {
  const unsigned by_default = default_of_locked(streams_[stream].device);
  StreamClock& clock = streams_[stream].clock;
  join(clock, host_);
  if (stream == by_default) {
    for (const Stream& other : streams_) {
      if (other.waits_for_default && other.device == streams_[stream].device) join(clock, other.clock);
    }
  } else if (streams_[stream].waits_for_default) {
    join(clock, streams_[by_default].clock);
  }
  return clock;
}

StreamClock Streams::clock_of(unsigned stream) {
  const std::lock_guard lock(mutex_);
  return updated(stream);
}

void Streams::wait(unsigned stream, const StreamClock& event) {
  const std::lock_guard lock(mutex_);
  join(streams_[stream].clock, event);
}

void Streams::wait_on_host(const StreamClock& event) {
  const std::lock_guard lock(mutex_);
  join(host_, event);
}

void Streams::wait_on_host_for_device(int device) {
  const std::lock_guard lock(mutex_);
  for (const Stream& stream : streams_) {
    if (stream.device == device) join(host_, stream.clock);
  }
}

void Streams::wait_on_host_for_all() {
  const std::lock_guard lock(mutex_);
  for (const Stream& stream : streams_) join(host_, stream.clock);
}

StreamClock Streams::host_clock() {
  const std::lock_guard lock(mutex_);
  return host_;
}

std::uint32_t Streams::add_work(unsigned stream) {
  const std::lock_guard lock(mutex_);
  StreamClock& clock = streams_[stream].clock;
  if (clock.size() <= stream) clock.resize(stream + 1);
  return ++clock[stream];
}

CurrentStream::CurrentStream(unsigned number) : before_(current_stream) {
  current_stream = number;
}

CurrentStream::~CurrentStream() {
  current_stream = before_;
}

unsigned CurrentStream::number() {
  return current_stream;
}

}  // namespace emulator::races
