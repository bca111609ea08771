#include <nccl.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "devices.hpp"
#include "emulator/link_bytes.hpp"
#include "nccl_fault.hpp"
#include "race_detector.hpp"
#include "report.hpp"
#include "stream.hpp"

struct ncclComm {
  const void* clique;  ///< the same for the communicators that were made together
  int rank, size, device;
  ncclResult_t async_error = ncclSuccess;
  std::uint64_t groups = 0;           ///< of transfers that it had a part in
  std::set<cudaStream_t> stuck = {};  ///< streams that wait for a transfer that never ends
};

namespace emulator {
namespace {

enum class Kind { all_gather, send, receive };

struct Transfer {
  Kind kind;
  const void* from;
  void* to;
  std::size_t count;
  ncclDataType_t type;
  int peer;
  ncclComm_t communicator;
  cudaStream_t stream;
};

std::mutex communicators_mutex;  // guards the communicators
std::set<ncclComm_t> communicators;
std::atomic<std::uint64_t> bytes_between_devices = 0;

/// What this host thread has called since its outermost group began.
struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<Transfer> transfers;
};
thread_local Group group;

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclFloat64:
      return 8;
  }
  return 0;
}

std::size_t bytes_of(const Transfer& transfer) {
  return transfer.count * size_of(transfer.type);
}

bool is_there(ncclComm_t communicator) {
  const std::lock_guard lock(communicators_mutex);
  return communicators.contains(communicator);
}

const char* name_of(Kind kind) {
  return kind == Kind::all_gather ? "ncclAllGather" : kind == Kind::send ? "ncclSend" : "ncclRecv";
}

/// "ncclSend of rank 0 of 2 "
std::string describe_transfer(const Transfer& transfer) {
  return std::string(name_of(transfer.kind)) + " of rank " + std::to_string(transfer.communicator->rank) + " of " +
         std::to_string(transfer.communicator->size) + " ";
}

ncclResult_t fail_with(ncclResult_t error, const std::string& text) {
  report(text + "\n");
  return error;
}

ncclResult_t check(const Transfer& transfer) {
  if (!is_there(transfer.communicator)) {
    return fail_with(ncclInvalidArgument,
                     std::string(name_of(transfer.kind)) + " with a communicator that is not there");
  }
  const ncclComm& communicator = *transfer.communicator;
  if (size_of(transfer.type) == 0)
    return fail_with(ncclInvalidArgument, describe_transfer(transfer) + "has no type that is known");
  if (communicator.async_error != ncclSuccess) {
    return fail_with(communicator.async_error, describe_transfer(transfer) + "after an error of its communicator");
  }
  const std::string device = "device " + std::to_string(communicator.device);
  if (device_of(transfer.stream) != communicator.device && transfer.stream) {
    return fail_with(ncclInvalidArgument, describe_transfer(transfer) + "on a stream of device " +
                                              std::to_string(device_of(transfer.stream)) + ", not of " + device);
  }
  if (transfer.kind != Kind::all_gather &&
      (transfer.peer < 0 || transfer.peer >= communicator.size || transfer.peer == communicator.rank)) {
    return fail_with(ncclInvalidArgument, describe_transfer(transfer) + "with rank " + std::to_string(transfer.peer));
  }
  const std::size_t bytes = bytes_of(transfer);
  if (transfer.kind != Kind::receive && !is_memory_of(transfer.from, bytes, communicator.device)) {
    return fail_with(ncclInvalidArgument, describe_transfer(transfer) + "reads what is not memory of " + device);
  }
  const std::size_t received = transfer.kind == Kind::all_gather ? bytes * std::size_t(communicator.size) : bytes;
  if (transfer.kind != Kind::send && !is_memory_of(transfer.to, received, communicator.device)) {
    return fail_with(ncclInvalidArgument, describe_transfer(transfer) + "writes to what is not memory of " + device);
  }
  return ncclSuccess;
}

/// A copy from one device to another, in the order of the stream of the device that receives.
struct Copy {
  const void* from;
  void* to;
  std::size_t bytes;
  cudaStream_t stream;
  cudaStream_t sender;  ///< the stream that sends
  bool over_link;
};

/// Finds the counterparts of all transfers.
class Matching {
 public:
  ncclResult_t add(const Transfer& transfer) {
    const ncclComm& communicator = *transfer.communicator;
    if (transfer.kind == Kind::all_gather) {
      std::map<int, std::deque<Transfer>>& ranks = gathers_[communicator.clique];
      ranks[communicator.rank].push_back(transfer);
      return ranks.size() < std::size_t(communicator.size) ? ncclSuccess : gather(ranks);
    }
    const bool sends = transfer.kind == Kind::send;
    const std::tuple key(communicator.clique, sends ? communicator.rank : transfer.peer,
                         sends ? transfer.peer : communicator.rank);
    std::deque<Transfer>& waiting = pairs_[key];
    if (waiting.empty() || waiting.front().kind == transfer.kind) {
      waiting.push_back(transfer);
      return ncclSuccess;
    }
    const Transfer other = waiting.front();
    waiting.pop_front();
    if (waiting.empty()) pairs_.erase(key);
    if (!are_alike(transfer, other)) return ncclInvalidUsage;
    const Transfer &send = sends ? transfer : other, &receive = sends ? other : transfer;
    copies_.push_back({send.from, receive.to, bytes_of(send), receive.stream, send.stream, true});
    return ncclSuccess;
  }

  /// An error where a transfer has no counterpart.
  ncclResult_t end() const {
    for (const auto& [clique, ranks] : gathers_) {
      const Transfer& one = ranks.begin()->second.front();
      return fail_with(ncclInvalidUsage, describe_transfer(one) + "waits for others that are not in its group");
    }
    for (const auto& [key, waiting] : pairs_) {
      const Transfer& one = waiting.front();
      return fail_with(ncclInvalidUsage, describe_transfer(one) + "waits for rank " + std::to_string(one.peer) +
                                             ", which is not in its group");
    }
    return ncclSuccess;
  }

  const std::vector<Copy>& copies() const { return copies_; }

 private:
  static bool are_alike(const Transfer& a, const Transfer& b) {
    if (a.count == b.count && a.type == b.type) return true;
    fail_with(ncclInvalidUsage,
              describe_transfer(a) + "and " + describe_transfer(b) + "differ in their counts or types");
    return false;
  }

  ncclResult_t gather(std::map<int, std::deque<Transfer>>& ranks) {
    std::vector<Transfer> parts;
    for (auto& [rank, waiting] : ranks) {
      parts.push_back(waiting.front());
      waiting.pop_front();
    }
    std::erase_if(ranks, [](const auto& entry) { return entry.second.empty(); });
    if (ranks.empty()) gathers_.erase(parts.front().communicator->clique);
    const std::size_t bytes = bytes_of(parts.front());
    for (const Transfer& to : parts) {
      if (!are_alike(to, parts.front())) return ncclInvalidUsage;
      for (const Transfer& from : parts) {
        copies_.push_back({from.from, static_cast<std::byte*>(to.to) + std::size_t(from.communicator->rank) * bytes,
                           bytes, to.stream, from.stream, to.communicator != from.communicator});
      }
    }
    return ncclSuccess;
  }

  std::map<const void*, std::map<int, std::deque<Transfer>>> gathers_;       // by clique and rank
  std::map<std::tuple<const void*, int, int>, std::deque<Transfer>> pairs_;  // by clique, sender and receiver
  std::vector<Copy> copies_;
};

/// What the user has asked for: the transfers do not run, and their communicators know.
bool fails(const std::vector<Transfer>& transfers) {
  std::set<ncclComm_t> members;
  for (const Transfer& transfer : transfers) members.insert(transfer.communicator);
  const std::optional<NcclFault> fault = NcclFault::from_environment();
  bool is_hit = false;
  for (const ncclComm_t member : members) is_hit = (++member->groups == (fault ? fault->group : 0)) || is_hit;
  if (!is_hit) return false;
  while (fault->kind == NcclFault::Kind::block) std::this_thread::sleep_for(std::chrono::hours(1));
  for (const Transfer& transfer : transfers) {
    if (fault->kind == NcclFault::Kind::hang) {
      transfer.communicator->stuck.insert(transfer.stream);
      set_stuck(transfer.stream, true);
    } else {
      transfer.communicator->async_error = ncclRemoteError;
    }
  }
  return true;
}

ncclResult_t run(const std::vector<Transfer>& transfers) {
  if (transfers.empty()) return ncclSuccess;
  Matching matching;
  for (const Transfer& transfer : transfers) {
    if (const ncclResult_t error = matching.add(transfer); error != ncclSuccess) return error;
  }
  if (const ncclResult_t error = matching.end(); error != ncclSuccess) return error;
  if (fails(transfers)) return ncclSuccess;
  for (const Copy& copy : matching.copies()) {
    const unsigned receiver = number_of(copy.stream), sender = number_of(copy.sender);
    const cudaError_t error = submit(copy.stream, [copy, receiver, sender] {
      races::Streams& streams = races::Streams::instance();
      streams.wait(receiver, streams.clock_of(sender));
      std::memmove(copy.to, copy.from, copy.bytes);
      if (copy.over_link) bytes_between_devices += copy.bytes;
      const cudaError_t error = races::note_copy(copy.to, copy.from, copy.bytes, nullptr);
      streams.wait(sender, streams.clock_of(receiver));
      return error;
    });
    if (error != cudaSuccess) return ncclUnhandledCudaError;
  }
  return ncclSuccess;
}

ncclResult_t submit_transfer(const Transfer& transfer) {
  const ncclResult_t error = check(transfer);
  ncclGroupStart();
  if (error == ncclSuccess) {
    group.transfers.push_back(transfer);
  } else if (group.error == ncclSuccess) {
    group.error = error;
  }
  const ncclResult_t end = ncclGroupEnd();
  return error == ncclSuccess ? end : error;
}

ncclResult_t remove(ncclComm_t communicator) {
  {
    const std::lock_guard lock(communicators_mutex);
    if (communicators.erase(communicator) == 0) return ncclInvalidArgument;
  }
  for (const cudaStream_t stream : communicator->stuck) set_stuck(stream, false);
  delete communicator;
  return ncclSuccess;
}

}  // namespace

std::uint64_t link_bytes() {
  return bytes_between_devices;
}

std::optional<NcclFault> NcclFault::from_environment() {
  const char* variable = std::getenv("EMULATOR_NCCL_FAULT");
  if (!variable) return std::nullopt;
  const std::string text = variable;
  const char* end = text.data() + text.size();
  for (const auto& [name, kind] : {std::pair("error:", NcclFault::Kind::error),
                                   {"hang:", NcclFault::Kind::hang},
                                   {"block:", NcclFault::Kind::block}}) {
    if (!text.starts_with(name)) continue;
    NcclFault fault{.kind = kind};
    const auto [stop, error] = std::from_chars(text.data() + text.find(':') + 1, end, fault.group);
    if (error == std::errc() && stop == end && fault.group > 0) return fault;
  }
  throw std::invalid_argument("EMULATOR_NCCL_FAULT is '" + text + "': error:GROUP, hang:GROUP or block:GROUP expected");
}

}  // namespace emulator

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "a call of CUDA failed";
    case ncclSystemError:
      return "a call of the system failed";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "another device has failed or left";
    case ncclInProgress:
      return "in progress";
  }
  return "unknown result";
}

ncclResult_t ncclCommInitAll(ncclComm_t* communicators, int count, const int* devices) {
  if (!communicators || count <= 0) return ncclInvalidArgument;
  int there = 0;
  if (cudaGetDeviceCount(&there) != cudaSuccess) return ncclUnhandledCudaError;
  std::set<int> used;
  for (int rank = 0; rank < count; ++rank) {
    const int device = devices ? devices[rank] : rank;
    if (device < 0 || device >= there) {
      return emulator::fail_with(
          ncclInvalidArgument, "ncclCommInitAll for device " + std::to_string(device) + " of " + std::to_string(there));
    }
    if (!used.insert(device).second) {
      return emulator::fail_with(ncclInvalidUsage, "ncclCommInitAll for device " + std::to_string(device) + " twice");
    }
  }
  const std::lock_guard lock(emulator::communicators_mutex);
  for (int rank = 0; rank < count; ++rank) {
    communicators[rank] = new ncclComm{nullptr, rank, count, devices ? devices[rank] : rank};
    communicators[rank]->clique = communicators[0];
    emulator::communicators.insert(communicators[rank]);
  }
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  return emulator::remove(communicator);
}

ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  return emulator::remove(communicator);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* error) {
  if (!error || !emulator::is_there(communicator)) return ncclInvalidArgument;
  *error = communicator->async_error;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++emulator::group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  emulator::Group& group = emulator::group;
  if (group.depth == 0) return emulator::fail_with(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--group.depth > 0) return ncclSuccess;
  const ncclResult_t error = std::exchange(group.error, ncclSuccess);
  const std::vector<emulator::Transfer> transfers = std::exchange(group.transfers, {});
  if (error != ncclSuccess) return error;
  try {
    return emulator::run(transfers);
  } catch (const std::invalid_argument& problem) {  // a bad setting of the user
    return emulator::fail_with(ncclInvalidArgument, problem.what());
  }
}

ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t communicator,
                           cudaStream_t stream) {
  return emulator::submit_transfer({emulator::Kind::all_gather, from, to, count, type, 0, communicator, stream});
}

ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return emulator::submit_transfer({emulator::Kind::send, from, nullptr, count, type, peer, communicator, stream});
}

ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return emulator::submit_transfer({emulator::Kind::receive, nullptr, to, count, type, peer, communicator, stream});
}
