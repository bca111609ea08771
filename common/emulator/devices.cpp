#include "devices.hpp"

#include <mutex>
#include <set>
#include <utility>

#include "emulator/runtime_device.hpp"
#include "environment.hpp"
#include "error.hpp"

namespace emulator {
namespace {

constexpr int kDevices = 2;  // unless EMULATOR_DEVICES is set

thread_local int device_of_this_thread = 0;

std::mutex devices_mutex;
std::set<std::pair<int, int>> peers;  // devices, and those whose memory they may access

/// An error where `peer` is no device other than the current one.
cudaError_t check_peer(int peer) {
  return is_device(peer) && peer != current_device() ? cudaSuccess : cudaErrorInvalidDevice;
}

}  // namespace

int device_count() {
  return devices_from_environment().value_or(kDevices);
}

bool is_device(int device) {
  return device >= 0 && device < device_count();
}

int current_device() {
  return device_of_this_thread;
}

bool may_access(int device, int peer) {
  const std::lock_guard lock(devices_mutex);
  return device == peer || peers.contains({device, peer});
}

}  // namespace emulator

using emulator::checked_result;
using emulator::result;

cudaError_t cudaGetDeviceCount(int* count) {
  if (!count) return result(cudaErrorInvalidValue);
  return checked_result([&] {
    *count = emulator::device_count();
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  if (!device) return result(cudaErrorInvalidValue);
  *device = emulator::current_device();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  return checked_result([&] {
    if (!emulator::is_device(device)) return cudaErrorInvalidDevice;
    emulator::device_of_this_thread = device;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* can_access, int device, int peer) {
  if (!can_access) return result(cudaErrorInvalidValue);
  return checked_result([&] {
    if (!emulator::is_device(device) || !emulator::is_device(peer)) return cudaErrorInvalidDevice;
    *can_access = device != peer;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  if (flags != 0) return result(cudaErrorInvalidValue);
  return checked_result([&] {
    if (const cudaError_t error = emulator::check_peer(peer); error != cudaSuccess) return error;
    const std::lock_guard lock(emulator::devices_mutex);
    const bool is_new = emulator::peers.emplace(emulator::current_device(), peer).second;
    return is_new ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled;
  });
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  return checked_result([&] {
    if (const cudaError_t error = emulator::check_peer(peer); error != cudaSuccess) return error;
    const std::lock_guard lock(emulator::devices_mutex);
    return emulator::peers.erase({emulator::current_device(), peer}) > 0 ? cudaSuccess : cudaErrorPeerAccessNotEnabled;
  });
}
