#pragma once
/// @file
/// The order of work in streams, for the detector of races. In the emulator streams run one after the other. On a GPU
/// launches and copies of one stream come one after the other, and those of two streams in no order, unless an event, the
/// default stream or a host thread that waits gives them one.

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace emulator::races {

/// By the number of a stream: up to which of its launches and copies, counted from 1, something has waited for.
using StreamClock = std::vector<std::uint32_t>;

/// Whether a clock covers a launch or a copy.
inline bool covers(const StreamClock& clock, unsigned stream, std::uint32_t number) {
  return stream < clock.size() && clock[stream] >= number;
}

/// All streams of the process.
class Streams {
 public:
  static Streams& instance();

  /// The number of a new stream. @param waits_for_default whether it waits for the default stream of its device, and that
  /// one for it
  unsigned add(int device, bool waits_for_default);
  /// That of a device's default stream.
  unsigned default_of(int device);
  /// Whether there has been more than one: else all is in order.
  bool are_several();

  /// What comes before work that this stream gets now; an event that is recorded there stands for it.
  StreamClock clock_of(unsigned stream);
  /// What the stream gets from now on comes after this.
  void wait(unsigned stream, const StreamClock& event);
  /// What any stream gets from now on comes after this: a host thread has waited for it. Host threads count as one.
  void wait_on_host(const StreamClock& event);
  void wait_on_host_for_device(int device);
  void wait_on_host_for_all();
  StreamClock host_clock();

  /// A launch or a copy: its number in its stream.
  std::uint32_t add_work(unsigned stream);

 private:
  struct Stream {
    int device;
    bool waits_for_default;
    StreamClock clock;  ///< with itself
  };

  unsigned add_locked(int device, bool waits_for_default);
  unsigned default_of_locked(int device);
  /// Adds what the default stream or, of that one, all others bring.
  const StreamClock& updated(unsigned stream);

  std::mutex mutex_;
  std::vector<Stream> streams_;
  std::map<int, unsigned> defaults_;  ///< by device
  StreamClock host_;
};

/// The stream whose work this OS thread of the host runs.
class CurrentStream {
 public:
  explicit CurrentStream(unsigned number);
  ~CurrentStream();
  CurrentStream(const CurrentStream&) = delete;
  CurrentStream& operator=(const CurrentStream&) = delete;
  static unsigned number();

 private:
  unsigned before_;
};

}  // namespace emulator::races
