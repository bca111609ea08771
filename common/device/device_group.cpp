#include "common/device/device_group.hpp"

#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <stdexcept>
#include <thread>

#if TUTORIAL_NCCL
#include <nccl.h>
#endif

#include "common/device/error.hpp"
#include "common/device/stream.hpp"
#include "common/error.hpp"

namespace tutorial {
namespace {

using Clock = std::chrono::steady_clock;
constexpr Clock::rep kNone = Clock::duration::max().count();
std::atomic<Clock::rep> deadline = kNone;  // of the call of NCCL that is under way

/// Ends the process when the deadline has passed. It never returns.
void watch_host_calls() {
  for (;;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (Clock::now().time_since_epoch().count() < deadline) continue;
    std::fputs("NCCL: a call has not returned in time (DEVICES_TIMEOUT sets how long to wait)\n", stderr);
    std::fflush(nullptr);
    std::_Exit(1);
  }
}

/// Makes a device and a stream the current ones for its life.
class Current {
 public:
  Current(int device, cudaStream_t stream) : stream_(current_stream()) {
    check(cudaGetDevice(&device_));
    check(cudaSetDevice(device));
    set_current_stream(stream);
  }
  ~Current() {
    set_current_stream(stream_);
    (void)cudaSetDevice(device_);  // it was the current one before
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  int device_ = 0;
  cudaStream_t stream_;
};

}  // namespace

std::string group_unsupported(const std::vector<DeviceKind>& kinds, const std::function<bool(int, int)>& can_access) {
  const int N = int(kinds.size());
  for (int n = 1; n < N; ++n) {
    if (kinds[n] == kinds[0]) continue;
    return "device " + std::to_string(n) + " (" + kinds[n].name + ") is of another kind than device 0 (" +
           kinds[0].name + "): equal shares would wait for the slowest";
  }
  for (int first = 0; first < N; ++first) {
    for (int second = 0; second < N; ++second) {
      if (first == second || can_access(first, second)) continue;
      return "device " + std::to_string(first) + " has no access to the memory of device " + std::to_string(second);
    }
  }
  return "";
}

double timeout_from_environment() {
  const char* variable = std::getenv("DEVICES_TIMEOUT");
  if (!variable) return 60;
  const std::string text = variable;
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || !(seconds > 0) || seconds > 86400) {
    throw UsageError("DEVICES_TIMEOUT is '" + text + "': seconds from above 0 to 86400 expected");
  }
  return seconds;
}

std::string wait_for(const Watched& watched, double timeout_s) {
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    if (const std::string error = watched.error(); !error.empty()) return error;
    if (watched.has_finished()) return "";
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
    if (waited.count() > timeout_s)
      return "the transfers have not ended in time (DEVICES_TIMEOUT sets how long to wait)";
    std::this_thread::yield();
  }
}

HostCall::HostCall() {
  [[maybe_unused]] static const bool is_watched = [] {
    std::thread(watch_host_calls).detach();
    return true;
  }();
  const auto timeout = std::chrono::duration<double>(timeout_from_environment());
  deadline = (Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout)).time_since_epoch().count();
}

HostCall::~HostCall() {
  deadline = kNone;
}

void DeviceGroup::on(int n, const std::function<void()>& work) const {
  const Current current(n, streams_[n]);
  work();
}

void DeviceGroup::on_each(const std::function<void(int)>& work) const {
  for (int n = 0; n < size(); ++n) {
    on(n, [&] { work(n); });
  }
}

void put_after(cudaStream_t later, cudaStream_t earlier) {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  check(cudaEventRecord(event, earlier));
  check(cudaStreamWaitEvent(later, event, 0));
  check(cudaEventDestroy(event));  // when its work is done
}

#if TUTORIAL_NCCL

namespace {

std::map<int, std::unique_ptr<DeviceGroup>>& groups() {
  static auto& all = *new std::map<int, std::unique_ptr<DeviceGroup>>;  // never destroyed, as CUDA may be gone before
  return all;
}

DeviceKind kind_of(int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device));
  return {properties.name, 10 * properties.major + properties.minor, properties.multiProcessorCount};
}

bool can_access(int first, int second) {
  int can = 0;
  check(cudaDeviceCanAccessPeer(&can, first, second));
  return can != 0;
}

/// Throws std::runtime_error unless the result of a call of NCCL is ncclSuccess.
void check_nccl(int result, std::source_location where = std::source_location::current()) {
  if (result == ncclSuccess) return;
  throw std::runtime_error(std::string("NCCL call failed: ") + ncclGetErrorString(ncclResult_t(result)) + ", at " +
                           where.file_name() + ":" + std::to_string(where.line()));
}

/// The calls of NCCL in `calls` as one group of transfers, which ends also where one of them throws: a group that stays
/// open would hold back all later ones. @throws std::runtime_error where NCCL refuses the group
void in_one_group(const std::function<void()>& calls, std::source_location where) {
  const HostCall call;
  check_nccl(ncclGroupStart(), where);
  try {
    calls();
  } catch (...) {
    (void)ncclGroupEnd();  // what went wrong is known
    throw;
  }
  check_nccl(ncclGroupEnd(), where);
}

}  // namespace

std::string group_unsupported(int N) {
  std::vector<DeviceKind> kinds;
  for (int n = 0; n < N; ++n) kinds.push_back(kind_of(n));
  return group_unsupported(kinds, can_access);
}

DeviceGroup& DeviceGroup::of(int N) {
  std::unique_ptr<DeviceGroup>& group = groups()[N];
  if (!group || group->aborted_) group.reset(new DeviceGroup(N));
  return *group;
}

DeviceGroup::DeviceGroup(int N) : streams_(N), transfer_streams_(2 * N), communicators_(N) {
  {
    const HostCall call;
    check_nccl(ncclCommInitAll(communicators_.data(), N, nullptr));
  }
  for (int n = 0; n < N; ++n) {
    const Current current(n, nullptr);
    check(cudaStreamCreateWithFlags(&streams_[n], cudaStreamNonBlocking));
    for (int i = 0; i < 2; ++i) {
      check(cudaStreamCreateWithFlags(&transfer_streams_[2 * n + i], cudaStreamNonBlocking));
    }
  }
}

DeviceGroup::~DeviceGroup() {
  for (const ncclComm_t communicator : communicators_) {
    if (!aborted_) (void)ncclCommDestroy(communicator);
  }
  for (const auto& streams : {streams_, transfer_streams_}) {
    for (const cudaStream_t stream : streams) (void)cudaStreamDestroy(stream);
  }
}

void DeviceGroup::run(const std::function<void()>& work) {
  const cudaStream_t before = current_stream();
  for (const cudaStream_t stream : streams_) put_after(stream, before);

  std::string failure;
  try {
    work();
    failure = wait_for({.has_finished =
                            [&] {
                              for (const auto& streams : {streams_, transfer_streams_}) {
                                for (const cudaStream_t stream : streams) {
                                  const cudaError_t status = cudaStreamQuery(stream);
                                  if (status == cudaErrorNotReady) {
                                    (void)cudaGetLastError();  // no failure, so later checks shall not find it
                                    return false;
                                  }
                                  check(status);
                                }
                              }
                              return true;
                            },
                        .error = [&]() -> std::string {
                          for (const ncclComm_t communicator : communicators_) {
                            ncclResult_t result = ncclSuccess;
                            check_nccl(ncclCommGetAsyncError(communicator, &result));
                            if (result != ncclSuccess && result != ncclInProgress) return ncclGetErrorString(result);
                          }
                          return "";
                        }},
                       timeout_from_environment());
  } catch (...) {
    abort();
    throw;
  }
  if (failure.empty()) return;
  abort();
  throw std::runtime_error("NCCL: " + failure);
}

void DeviceGroup::send(const float* sent, int from, float* received, int to, std::size_t count,
                       std::source_location where) const {
  in_one_group(
      [&] {
        check_nccl(ncclSend(sent, count, ncclFloat32, to, communicators_[from], streams_[from]), where);
        check_nccl(ncclRecv(received, count, ncclFloat32, from, communicators_[to], streams_[to]), where);
      },
      where);
}

void DeviceGroup::all_gather(const std::vector<float*>& all, std::size_t count, std::optional<int> transfers,
                             std::source_location where) const {
  in_one_group(
      [&] {
        for (int n = 0; n < size(); ++n) {
          const cudaStream_t in = transfers ? transfer_stream(n, *transfers) : stream(n);
          check_nccl(ncclAllGather(all[n] + n * count, all[n], count, ncclFloat32, communicators_[n], in), where);
        }
      },
      where);
}

void DeviceGroup::abort() {
  aborted_ = true;
  const HostCall call;
  for (const ncclComm_t communicator : communicators_) (void)ncclCommAbort(communicator);
}

#else

std::string group_unsupported(int) {
  return "this build has no NCCL (its package is libnccl-dev)";
}

DeviceGroup& DeviceGroup::of(int) {
  throw std::logic_error("this build has no NCCL");
}

DeviceGroup::DeviceGroup(int) {}
DeviceGroup::~DeviceGroup() = default;
void DeviceGroup::run(const std::function<void()>&) {}
void DeviceGroup::send(const float*, int, float*, int, std::size_t, std::source_location) const {}
void DeviceGroup::all_gather(const std::vector<float*>&, std::size_t, std::optional<int>, std::source_location) const {}
void DeviceGroup::abort() {}

#endif

}  // namespace tutorial
