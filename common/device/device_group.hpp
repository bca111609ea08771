#pragma once
/// @file
/// N devices that work together: streams for each, and a communicator of NCCL for each. One host thread gives them
/// work. A build without NCCL has no group and says so.

#include <cuda_runtime.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

using ncclComm_t = struct ncclComm*;  ///< nccl.h's, which a build without NCCL lacks

namespace tutorial {

/// What tells devices apart.
struct DeviceKind {
  std::string name;
  int capability;                                      ///< 90 for 9.0
  int multiprocessors;                                 ///< of the device
  bool operator==(const DeviceKind&) const = default;  ///< all of it
};

/// Why devices of these kinds cannot share a problem, as a sentence; empty if they can.
/// @param can_access whether device `first` can access the memory of device `second`
std::string group_unsupported(const std::vector<DeviceKind>& kinds,
                              const std::function<bool(int first, int second)>& can_access);
/// The same for the first N devices of this machine, and for a build without NCCL.
std::string group_unsupported(int N);

/// The seconds in the variable DEVICES_TIMEOUT, 60 unless it is set.
/// @throws UsageError for anything but a number above 0
double timeout_from_environment();

/// What the devices of a group are asked for while they work.
struct Watched {
  std::function<bool()> has_finished;
  std::function<std::string()> error;  ///< of a transfer; empty while all is well
};
/// Waits until all has finished. Returns what went wrong; empty if nothing did.
std::string wait_for(const Watched& watched, double timeout_s);

/// While one lives, a call that may block the host for good is under way: NCCL's first transfer between two devices may
/// wait for either of them. Nothing but the end of the process ends such a call. So if an object lives longer than
/// DEVICES_TIMEOUT says, the process says so in a line and ends with status 1.
class HostCall {
 public:
  HostCall();   ///< The time starts. @throws UsageError if DEVICES_TIMEOUT makes no sense
  ~HostCall();  ///< The call has returned.
  HostCall(const HostCall&) = delete;
  HostCall& operator=(const HostCall&) = delete;
};

/// The first N devices of this machine.
class DeviceGroup {
 public:
  /// The group of N devices, which is made at first use and kept. @throws std::runtime_error where NCCL refuses
  static DeviceGroup& of(int N);

  DeviceGroup(const DeviceGroup&) = delete;
  DeviceGroup& operator=(const DeviceGroup&) = delete;
  ~DeviceGroup();

  /// N.
  int size() const { return int(streams_.size()); }
  /// Of the work of device n.
  cudaStream_t stream(int n) const { return streams_[n]; }
  /// Two for transfers beside the work of stream(n): 0 and 1.
  cudaStream_t transfer_stream(int n, int number) const { return transfer_streams_[2 * n + number]; }

  /// Calls `work` with device n as the current one, and its stream as current_stream().
  void on(int n, const std::function<void()>& work) const;
  /// on() for each device.
  void on_each(const std::function<void(int n)>& work) const;
  /// Calls `work`, which may use all devices, after the work that current_stream() has, and waits until all devices
  /// have finished. The time for that starts when `work` returns; calls of NCCL in it have their own, see HostCall.
  /// @throws std::runtime_error where a transfer fails or does not end in time: the group is gone then
  void run(const std::function<void()>& work);

  /// Sends floats from one device to another, in the streams of both: ncclSend() and ncclRecv(). What the receiver's
  /// stream gets later waits for them. @throws std::runtime_error where NCCL refuses
  void send(const float* sent, int from, float* received, int to, std::size_t count,
            std::source_location where = std::source_location::current()) const;
  /// Brings `count` floats of each device to all of them: ncclAllGather(). Device n has room for those of all devices at
  /// all[n], one after the other, and its own are there already. @throws std::runtime_error where NCCL refuses
  /// @param transfers the number of the transfer_stream() that it runs in; none: in stream(n)
  void all_gather(const std::vector<float*>& all, std::size_t count, std::optional<int> transfers = {},
                  std::source_location where = std::source_location::current()) const;

 private:
  explicit DeviceGroup(int N);
  void abort();

  std::vector<cudaStream_t> streams_, transfer_streams_;
  std::vector<ncclComm_t> communicators_;
  [[maybe_unused]] bool aborted_ = false;  // a build without NCCL has no such group
};

/// What `later` gets from now on runs after what `earlier` has, a stream of the current device.
void put_after(cudaStream_t later, cudaStream_t earlier);

}  // namespace tutorial
